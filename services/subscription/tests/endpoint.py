"""An endpoint of a webhook on loopback, which verifies every signature by itself and answers as the test says."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime
import hashlib
import hmac
import ipaddress
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import orjson
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from pamspec_common import contracts
from services.subscription.tests.world import Document

WAIT_S = 60.0


@dataclass
class Delivery:
    """A request as it came."""

    body: Document
    headers: dict[str, str]
    secrets: list[str]
    """Those of the known secrets that signed it."""

    @property
    def sequences(self) -> list[int]:
        return [frame["event"]["sequence"] for frame in self.body["frames"] if "event" in frame]

    @property
    def closed(self) -> Document | None:
        found: Document | None = self.body["frames"][-1].get("closed")
        return found


Answering = Callable[[Delivery], Awaitable[web.StreamResponse]]


async def taken(_: Delivery) -> web.StreamResponse:
    return web.Response(status=204)


@dataclass
class Endpoint:
    """What the test sees of it."""

    base: str
    secrets: list[str] = field(default_factory=list)
    answer: Answering = taken
    seen: list[Delivery] = field(default_factory=list)
    """Every request, whatever it was answered."""
    kept: list[int] = field(default_factory=list)
    """Sequences that were answered 2xx, as often as that was."""
    closed: Document | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return self.base + "/hook"

    async def handle(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        delivery = Delivery(orjson.loads(raw), headers, [one for one in self.secrets if signed(one, headers, raw)])
        contracts.check("webhook-delivery", delivery.body)
        self.seen.append(delivery)
        response = await self.answer(delivery)
        if 200 <= response.status < 300:
            self.kept += delivery.sequences
            self.closed = self.closed or delivery.closed
        self.changed.set()
        return response

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until something holds, looking again after every request."""
        async with asyncio.timeout(WAIT_S):
            while not condition():
                self.changed.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.2):
                        await self.changed.wait()

    async def keeps(self, sequences: list[int]) -> None:
        """Wait until the last of them was taken; they came in order, and nothing else did."""
        await self.until(lambda: sequences[-1] in self.kept)
        assert first_times(self.kept) == sequences


def first_times(sequences: list[int]) -> list[int]:
    return list(dict.fromkeys(sequences))


def signed(secret: str, headers: dict[str, str], body: bytes) -> bool:
    """Standard Webhooks, written down again from its description."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    content = headers["webhook-id"].encode() + b"." + headers["webhook-timestamp"].encode() + b"." + body
    wanted = "v1," + base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
    assert abs(time.time() - int(headers["webhook-timestamp"])) < 300
    return wanted in headers["webhook-signature"].split(" ")


@contextlib.asynccontextmanager
async def endpoint(tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> AsyncIterator[Endpoint]:
    """A running one."""
    found = Endpoint("")
    app = web.Application(client_max_size=64 * 2**20)
    app.router.add_post("/hook", found.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.2, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, host, 0, ssl_context=tls)
    await site.start()
    port = runner.addresses[0][1]
    found.base = f"{'https' if tls else 'http'}://{host}:{port}"
    try:
        yield found
    finally:
        await runner.cleanup()


def certificate(folder: Path, *names: str) -> tuple[ssl.SSLContext, Path]:
    """A server's context, and the file by which its certificate is trusted."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "endpoint of a test")])
    now = datetime.datetime.now(datetime.UTC)
    hosts: list[x509.GeneralName] = [x509.DNSName(name) for name in names]
    hosts.append(x509.IPAddress(ipaddress.IPv4Address("127.0.0.1")))
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    trusted, private = folder / "endpoint.crt", folder / "endpoint.key"
    trusted.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(trusted, private)
    return context, trusted
