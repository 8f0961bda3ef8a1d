"""Where a webhook may lead: every kind of address that is not public is refused, however it is written."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pamspec_common.errors import InvalidRequest
from pamspec_subscription.webhooks.targets import Targets, port_ranges

PUBLIC = ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "::ffff:1.1.1.1", "100.63.255.255", "100.128.0.1"]
REFUSED = [
    *("0.0.0.0", "0.1.2.3", "10.0.0.1", "127.0.0.1", "127.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.1.1"),
    *("169.254.169.254", "169.254.0.1", "100.64.0.1", "100.100.100.200", "168.63.129.16", "192.0.0.192"),
    *("224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "198.18.0.1", "192.0.2.1", "192.88.99.1"),
    *("::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "ff02::1", "fec0::1"),
    *("::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:a00:1", "::ffff:0:10.0.0.1", "::127.0.0.1", "::10.0.0.1"),
    *("64:ff9b::7f00:1", "64:ff9b::8.8.8.8", "64:ff9b:1::1", "2002:7f00:1::1", "2001:0:1::1", "2001:db8::1", "100::1"),
    *("", "localhost", "127.1", "0x7f.0.0.1", "2130706433", "1.1.1.1 ", "017700000001"),
]


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_reached(address: str) -> None:
    assert Targets().allows(address)


@pytest.mark.parametrize("address", REFUSED)
def test_no_other_address_is(address: str) -> None:
    assert not Targets().allows(address)


@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)))
def test_what_python_calls_private_is_refused(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    if not address.is_global or address.is_multicast or address.is_reserved or address.is_loopback:
        mapped = getattr(address, "ipv4_mapped", None)
        assert Targets().allows(str(address)) == (mapped is not None and Targets().allows(str(mapped)))


def test_a_network_of_the_operator_is_reached_and_no_more() -> None:
    targets = Targets((ipaddress.ip_network("10.1.0.0/16"), ipaddress.ip_network("fd00::/8")))
    assert targets.allows("10.1.2.3")
    assert targets.allows("::ffff:10.1.2.3")
    assert targets.allows("fd12::1")
    assert not targets.allows("10.2.0.1")
    assert not targets.allows("fe80::1")


GOOD_URLS = [
    "https://hooks.example.org/garden",
    "https://hooks.example.org:8443/garden?topic=a%20b",
    "https://1.1.1.1/",
    "https://[2606:4700::1111]/x",
    "https://xn--bcher-kva.example/",
    "https://1.example.org/",
    "https://a1/",
]
BAD_URLS = [
    *("", "hooks.example.org", "//hooks.example.org/", "/garden", "https://", "https:///x", "https:hooks"),
    *("http://hooks.example.org/", "ftp://hooks.example.org/", "file:///etc/passwd", "gopher://x/", "javascript:1"),
    *("https://user@hooks.example.org/", "https://user:pw@hooks.example.org/", "https://@hooks.example.org/"),
    *("https://hooks.example.org/#part", "https://hooks.example.org/#", "https://hooks.example.org\\@10.0.0.1/"),
    *("https://hooks.example.org:22/", "https://hooks.example.org:0/", "https://hooks.example.org:99999/"),
    *("https://hooks.example.org:x/", "https://hooks.example.org/a b", "https://hooks.example.org/\n", "https://a\tb/"),
    *("https://127.0.0.1/", "https://[::1]/", "https://[::ffff:127.0.0.1]/", "https://169.254.169.254/latest"),
    *("https://[fe80::1%25eth0]/", "https://0.0.0.0/", "https://[64:ff9b::7f00:1]/", "https://b\u00fccher.example/"),
    *("https://127.1/", "https://2130706433/", "https://0x7f.0.0.1/", "https://0x7f000001/", "https://127.0.0.1./"),
    *("https://example.1/", "https://017700000001/"),
    "https://hooks.example.org/" + "a" * 2048,
]


@pytest.mark.parametrize("url", GOOD_URLS)
def test_urls_that_are_taken(url: str) -> None:
    assert str(Targets(ports=port_ranges(("443", "8443"))).check(url)).startswith("https://")


@pytest.mark.parametrize("url", BAD_URLS)
def test_urls_that_are_not_and_the_error_does_not_repeat_them(url: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        Targets(ports=port_ranges(("443", "8443"))).check(url)
    assert len(url) < 8 or url not in str(caught.value)
    assert caught.value.details == {"field": "webhook.url"}


def test_http_and_ports_are_the_operators_to_allow() -> None:
    targets = Targets((ipaddress.ip_network("127.0.0.0/8"),), port_ranges(("80", "8000-9000")), http=True)
    assert targets.check("http://127.0.0.1:8080/").port == 8080
    assert targets.check("http://hooks.example.org/").port == 80
    for url in ("https://hooks.example.org/", "http://hooks.example.org:9001/"):
        with pytest.raises(InvalidRequest, match="80, 8000-9000"):
            targets.check(url)
    for bad in ("0", "70000", "9-1", "a", "1-2-3", ""):
        with pytest.raises(ValueError, match="port"):
            port_ranges((bad,))
