"""TLS with a certificate authority of this test: who is let in, and certificates that are replaced under load."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest
import pytest_asyncio
import trustme
from cryptography import x509
from pydantic import ValidationError

from pamspec_cli.servers.nats import EmbeddedNats
from pamspec_common import bus
from pamspec_common.calls import Answer, Call
from pamspec_common.peers import RemotePeer, peer_session
from pamspec_common.server import serving
from pamspec_common.service import Part, Service
from pamspec_common.settings import CommonSettings
from pamspec_common.tls import TlsFiles, UnusableFiles, client_context, server_context

CALLERS = frozenset({"gateway"})
LONG_S = 30


@dataclass(frozen=True)
class Authority:
    """A certificate authority, and a directory for what it signs."""

    ca: trustme.CA
    directory: Path

    def files(self, name: str, *hosts: str, expired: bool = False) -> TlsFiles:
        """A certificate for these names in files of this name, which are replaced as a whole when they exist."""
        until = datetime.now(UTC) - timedelta(days=1) if expired else None
        made = self.ca.issue_cert(*hosts, not_before=until and until - timedelta(days=1), not_after=until)
        files = TlsFiles(*(self.directory / f"{name}.{part}" for part in ("crt", "key", "ca")))
        assert files.certificate
        assert files.key
        assert files.authorities
        replace(files.certificate, b"".join(one.bytes() for one in made.cert_chain_pems))
        replace(files.key, made.private_key_pem.bytes())
        replace(files.authorities, self.ca.cert_pem.bytes())
        return files


def replace(path: Path, content: bytes) -> None:
    """Put a file in place of another, as a rotation does."""
    fresh = path.with_suffix(path.suffix + ".new")
    fresh.write_bytes(content)
    fresh.rename(path)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """The authority of the deployment."""
    return Authority(trustme.CA(), tmp_path)


def sample() -> Service:
    """A service that answers one operation."""

    async def answered(call: Call) -> Answer:
        return Answer(200, call.body)

    async def parts() -> list[Part]:
        return []

    async def nothing() -> None:
        return None

    return Service("sample", {"echo": answered}, parts, nothing, nothing)


@pytest_asyncio.fixture(loop_scope="session")
async def door(authority: Authority) -> AsyncIterator[str]:
    """The inner door of a service, which lets the gateway in."""
    async with serving(sample(), tls=authority.files("server", "127.0.0.1"), callers=CALLERS) as url:
        assert url.startswith("https://")
        yield url


async def called(url: str, files: TlsFiles) -> int:
    """The status of one call."""
    async with peer_session(files) as session:
        return (await RemotePeer(session, url).call(Call("echo", "", b"{}"))).status


async def shown_serial(url: str, files: TlsFiles) -> int:
    """The serial number of the certificate that a server shows in a new handshake."""
    parts = urlsplit(url)
    context = client_context(files)
    _, writer = await asyncio.open_connection(parts.hostname, parts.port, ssl=context)
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    return x509.load_der_x509_certificate(shown).serial_number


def serial_of(files: TlsFiles) -> int:
    """The serial number in a file."""
    assert files.certificate
    return x509.load_pem_x509_certificate(files.certificate.read_bytes()).serial_number


async def test_a_known_caller_is_let_in(door: str, authority: Authority) -> None:
    assert await called(door, authority.files("client", "gateway")) == 200


async def test_a_certificate_with_another_name_is_refused_in_words(door: str, authority: Authority) -> None:
    async with (
        peer_session(authority.files("client", "stranger")) as session,
        session.post(f"{door}/internal/operations", data=b"\x90") as answer,
    ):
        assert answer.status == 403
        assert (await answer.json())["error"]["code"] == "access_denied"


async def test_no_certificate_opens_only_the_health_pages(door: str, authority: Authority) -> None:
    trusting = TlsFiles(authorities=authority.files("client", "gateway").authorities)
    async with peer_session(trusting) as session:
        for path in ("/healthz", "/readyz", "/metrics"):
            async with session.get(door + path) as answer:
                assert answer.status == 200
        for path in ("/internal/operations", "/healthz/x", "/"):
            async with session.post(door + path, data=b"\x90") as answer:
                assert answer.status == 403
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await session.ws_connect(door + "/v1/tail")
        assert refused.value.status == 403


async def test_expired_and_foreign_certificates_end_the_handshake(
    door: str, authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The client may only see that the connection ended; the log of the server says why."""
    (tmp_path / "foreign").mkdir()
    foreign = Authority(trustme.CA(), tmp_path / "foreign").files("client", "gateway")
    trusted = authority.files("client", "gateway", expired=True)
    for shown, said in (
        (trusted, "expired"),
        (TlsFiles(foreign.certificate, foreign.key, trusted.authorities), "unable to get local issuer"),
    ):
        async with peer_session(shown) as session:
            with pytest.raises((aiohttp.ClientError, OSError)):
                await session.get(f"{door}/healthz")
        assert await called(door, shown) == 503
        told = [one.getMessage() for one in caplog.records if one.name == "pamspec_common.tls"]
        assert any(said in one for one in told)


async def test_a_client_refuses_a_server_of_another_authority_or_name(authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "foreign").mkdir()
    foreign = Authority(trustme.CA(), tmp_path / "foreign").files("client", "gateway")
    client = authority.files("client", "gateway")
    async with serving(sample(), tls=authority.files("server", "another.example")) as url:
        for files in (foreign, client):
            async with peer_session(files) as session:
                with pytest.raises(aiohttp.ClientConnectorCertificateError):
                    await session.get(f"{url}/healthz")


async def test_certificates_of_both_sides_are_replaced_under_load(door: str, authority: Authority) -> None:
    client = authority.files("client", "gateway")
    statuses: list[int] = []
    rotated = asyncio.Event()

    async def load() -> None:
        while not rotated.is_set():
            statuses.append(await called(door, client))

    workers = [asyncio.create_task(load()) for _ in range(4)]
    fresh = authority.files("server", "127.0.0.1")
    authority.files("client", "gateway")
    async with asyncio.timeout(LONG_S):
        while await shown_serial(door, client) != serial_of(fresh):
            await asyncio.sleep(0.05)
        after = len(statuses)
        while len(statuses) < after + 20:
            await asyncio.sleep(0.05)
    rotated.set()
    await asyncio.gather(*workers)
    assert set(statuses) == {200}


async def test_an_authority_that_was_taken_away_is_trusted_no_longer(door: str, authority: Authority) -> None:
    client = authority.files("client", "gateway")
    assert await called(door, client) == 200
    server_trusts = authority.directory / "server.ca"
    replace(server_trusts, trustme.CA().cert_pem.bytes())
    async with asyncio.timeout(LONG_S):
        while await called(door, client) != 503:
            await asyncio.sleep(0.05)


async def test_files_that_do_not_fit_leave_what_was_in_use(door: str, authority: Authority) -> None:
    client = authority.files("client", "gateway")
    before = await shown_serial(door, client)
    replace(authority.directory / "server.key", trustme.CA().issue_cert("127.0.0.1").private_key_pem.bytes())
    for _ in range(5):
        assert await shown_serial(door, client) == before
        await asyncio.sleep(0.3)
    fresh = authority.files("server", "127.0.0.1")
    async with asyncio.timeout(LONG_S):
        while await shown_serial(door, client) != serial_of(fresh):
            await asyncio.sleep(0.05)


async def test_no_session_is_resumed(door: str, authority: Authority) -> None:
    """A ticket would let a client in whose certificate has expired since."""
    context = server_context(authority.files("server", "127.0.0.1"), client_certificates=True).current()
    assert context.num_tickets == 0
    assert context.options & ssl.OP_NO_TICKET


def test_what_cannot_work_is_said_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(UnusableFiles, match="nowhere"):
        client_context(TlsFiles(authorities=tmp_path / "nowhere.pem"))
    for settings, said in (
        ({"tls_certificate": "a.pem"}, "PAMSPEC_TLS_KEY"),
        ({"tls_certificate": "a.pem", "tls_key": "b.pem"}, "PAMSPEC_TLS_AUTHORITIES"),
    ):
        with pytest.raises(ValidationError, match=said):
            CommonSettings.model_validate(settings)


async def test_the_bus_over_tls_with_its_accounts(authority: Authority, tmp_path: Path) -> None:
    """Verified both ways; a client of another authority does not get in; new certificates after a reconnect."""
    server, client = authority.files("bus", "127.0.0.1"), authority.files("client", "gateway")
    embedded = EmbeddedNats(tmp_path / "nats", tls=server)
    address = await embedded.start()
    try:
        settings = CommonSettings.model_validate(
            {
                "nats_url": address.url,
                "nats_nkey_seed": address.service_seed,
                "tls_certificate": client.certificate,
                "tls_key": client.key,
                "tls_authorities": client.authorities,
            }
        )
        reconnected = asyncio.Event()

        async def again() -> None:
            reconnected.set()

        async with asyncio.timeout(LONG_S):
            connection = await bus.connect(settings, "test", on_reconnect=again)
            heard = await connection.subscribe("pamspec.test")
            await connection.publish("pamspec.test", b"1")
            assert (await heard.next_msg(LONG_S)).data == b"1"
            authority.files("client", "gateway")
            authority.files("bus", "127.0.0.1")
            await embedded.process.stop(())
            await embedded.start()
            await reconnected.wait()
            await connection.publish("pamspec.test", b"2")
            assert (await heard.next_msg(LONG_S)).data == b"2"
            await bus.close(connection)
    finally:
        await embedded.stop()
