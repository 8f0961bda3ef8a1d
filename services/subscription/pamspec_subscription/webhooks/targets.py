"""Where a webhook may lead: the rules for URLs, and those for addresses.

Invariants: a URL is read by one parser, the one that the request is made with; an address is checked as the bytes that
a connection is made to, never as a name, and what it embeds (IPv4-mapped IPv6) is checked in its place. Everything that
is not plainly on the public internet is refused, unless a network of the operator's holds it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass

from yarl import URL

from pamspec_common.errors import InvalidRequest

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

MAX_URL = 2048
_PLAIN = re.compile(r"[!-~]+")
_NUMERIC = re.compile(r"(^|\.)(0x[0-9a-f]*|[0-9]+)\.?$", re.IGNORECASE)
"""Hosts that some readers take for an address although they are written unlike one: 127.1, 0x7f000001, 2130706433."""
_PORTS = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")

_SPECIAL_4 = tuple(
    ipaddress.IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # carrier-grade NAT, also a metadata service
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # a metadata service on a public address
        "169.254.0.0/16",  # link-local and metadata services
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments and a metadata service
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved and broadcast
    )
)
_GLOBAL_6 = ipaddress.IPv6Network("2000::/3")
"""The only unicast addresses in use; loopback, ULA, link-local, multicast and NAT64 (64:ff9b::/96) lie outside."""
_SPECIAL_6 = tuple(
    ipaddress.IPv6Network(network)
    for network in (
        "2001::/23",  # protocol assignments, Teredo
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: embeds any IPv4 address
        "3fff::/20",  # documentation
    )
)


@dataclass(frozen=True)
class Targets:
    """What an operator lets webhooks reach."""

    networks: Sequence[Network] = ()
    """Reached although they are not public."""
    ports: Sequence[tuple[int, int]] = ((443, 443),)
    """Ranges, ends included."""
    http: bool = False
    """Whether unencrypted http is taken."""

    def allows(self, address: str) -> bool:
        """Whether a connection may be made to an IP address; False for what is none."""
        try:
            found = plain_address(address)
        except ValueError:
            return False
        if any(found in network for network in self.networks if network.version == found.version):
            return True
        if isinstance(found, ipaddress.IPv4Address):
            return not any(found in network for network in _SPECIAL_4)
        return found in _GLOBAL_6 and not any(found in network for network in _SPECIAL_6)

    def allows_host(self, host: str) -> bool:
        """Whether the host of a URL may be tried: a name, or an address that is allowed in its usual form."""
        try:
            plain_address(host)
        except ValueError:
            return _NUMERIC.search(host) is None
        return self.allows(host)

    def check(self, text: str) -> URL:
        """The URL of a webhook; InvalidRequest says what is wrong with it, without repeating it."""
        url = _parsed(text)
        if url.scheme != "https" and not (self.http and url.scheme == "http"):
            raise _refused("is an https URL" if not self.http else "is an https or http URL")
        if url.user is not None or url.password is not None or "@" in re.split(r"[/?#]", text.partition("//")[2])[0]:
            raise _refused("holds no credentials; deliveries are signed instead")
        if url.fragment or "#" in text:
            raise _refused("has no fragment")
        if not url.host or url.port is None:
            raise _refused("names a host")
        if not any(first <= url.port <= last for first, last in self.ports):
            raise _refused(f"has a port that is served here: {', '.join(_shown(one) for one in self.ports)}")
        if not self.allows_host(url.host):
            raise _refused("leads to a public address")
        return url


def plain_address(text: str) -> Address:
    """The address that is meant in the end: without a zone, and out of IPv4-mapped IPv6; ValueError for none."""
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def port_ranges(texts: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """Ranges of ports from `443` and `8000-9000`; ValueError for anything else."""
    ranges = []
    for text in texts:
        found = _PORTS.fullmatch(text)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
        if not 1 <= first <= last <= 65535:
            raise ValueError("a port is 1 to 65535, a range FIRST-LAST")
        ranges.append((first, last))
    return tuple(ranges)


def _parsed(text: str) -> URL:
    if len(text) > MAX_URL or not _PLAIN.fullmatch(text) or "\\" in text:
        raise _refused(f"is a URL of at most {MAX_URL} printable ASCII characters")
    try:
        url = URL(text)
        if not url.absolute or url.port is None or not url.host:
            raise _refused("names a scheme and a host")
    except ValueError:
        raise _refused("is a URL") from None
    return url


def _shown(ports: tuple[int, int]) -> str:
    return str(ports[0]) if ports[0] == ports[1] else f"{ports[0]}-{ports[1]}"


def _refused(rule: str) -> InvalidRequest:
    return InvalidRequest(f"The endpoint of a webhook {rule}.", details={"field": "webhook.url"})
