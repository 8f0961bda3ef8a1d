"""A small service to put behind a gateway: it tells what it was called with and streams what a test wants."""

import asyncio
from dataclasses import dataclass
from typing import Any

import aiohttp
import asyncpg
import msgspec
import orjson
from multidict import CIMultiDictProxy

from pamspec_cli.servers.databases import Database
from pamspec_common import contracts
from pamspec_common.asgi import ASGIApp, Receive, Scope, Send
from pamspec_common.calls import Answer, Call, Handler
from pamspec_common.keys import key_hash
from pamspec_common.principal import Principal, TokenVerifier
from pamspec_common.service import Part, Service
from pamspec_gateway.settings import Settings

Headers = CIMultiDictProxy[str]

PEPPER = "a pepper for tests"
TOKEN_KEYS = {"k1": b"a key between services for tests"}
OPERATIONS = tuple(contracts.operations())


class Told(msgspec.Struct):
    """What the service behind the door saw of a call."""

    operation: str
    principal: Principal
    body: bytes
    idempotency_key: str | None
    traceparent: str | None


class Behind:
    """The service behind the gateway: it remembers its calls, and answers what a test sets."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything that a test set or caused."""
        self.calls: list[Told] = []
        self.stream: ASGIApp | None = None
        self.answer = Answer(200, b'{"told":true}', {"Pamspec-Ledger-Sequence": "7"})
        self.started = asyncio.Event()
        self.gate: asyncio.Event | None = None
        self.ready = True

    def handler(self, operation: str) -> Handler:
        """The handler of one operation."""
        verifier = TokenVerifier(TOKEN_KEYS, contracts.operations()[operation].service)

        async def handle(call: Call) -> Answer:
            self.calls.append(
                Told(operation, verifier.verify(call.principal), call.body, call.idempotency_key, call.traceparent)
            )
            self.started.set()
            if self.gate is not None:
                await self.gate.wait()
            return self.answer

        return handle


async def nothing() -> None:
    """A hook that has nothing to do."""


@dataclass
class Door:
    """A running gateway, a key that opens it, and what lies behind."""

    url: str
    key: str
    behind: Behind
    session: aiohttp.ClientSession
    dsn: str
    service: Service

    async def post(self, path: str, body: bytes | object = b"{}", **headers: str) -> tuple[int, bytes, Headers]:
        """Status, body and headers of a POST with the key."""
        sent = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        sent.update({name.replace("_", "-"): value for name, value in headers.items()})
        data = body if isinstance(body, bytes) else orjson.dumps(body)
        async with self.session.post(self.url + path, data=data, headers=sent) as response:
            return response.status, await response.read(), response.headers

    async def get(self, path: str, **headers: str) -> tuple[int, bytes, Headers]:
        """Status, body and headers of a GET with the key."""
        sent = {"Authorization": f"Bearer {self.key}"}
        sent.update({name.replace("_", "-"): value for name, value in headers.items()})
        async with self.session.get(self.url + path, headers=sent) as response:
            return response.status, await response.read(), response.headers

    async def revoke(self) -> None:
        """Revoke the key."""
        conn = await asyncpg.connect(self.dsn)
        try:
            await conn.execute("UPDATE core.api_key SET revoked_at = clock_timestamp()")
        finally:
            await conn.close()

    @property
    def port(self) -> int:
        """The port of the gateway, for raw connections."""
        return int(self.url.rpartition(":")[2])


async def insert_key(
    dsn: str,
    key: str,
    *,
    tenant: str = "tenant:t",
    actor: str = "agent:a",
    key_id: str = "key:1",
    rights: tuple[str, ...] = ("assert_actor",),
    roles: tuple[str, ...] = ("admin",),
) -> None:
    """A key in the database, of one actor: an administrator who may assert others, where nothing else is said."""
    conn = await asyncpg.connect(dsn)
    try:
        await conn.execute("INSERT INTO core.tenant (tenant_id) VALUES ($1) ON CONFLICT DO NOTHING", tenant)
        await conn.execute(
            "INSERT INTO core.api_key (key_id, tenant_id, key_hash, actor_id, actor_kind, rights, roles) "
            "VALUES ($1, $2, $3, $4, 'agent', $5, $6)",
            key_id, tenant, key_hash(PEPPER.encode(), key), actor, list(rights), list(roles),
        )  # fmt: skip
    finally:
        await conn.close()


def gateway_settings(database: Database, **changed: object) -> Settings:
    """Settings for a gateway on this database."""
    given: dict[str, object] = {
        "database_url": database.role("gateway"),
        "key_pepper": PEPPER,
        "token_keys": TOKEN_KEYS,
        "drain_s": 2.0,
    }
    return Settings.model_validate(given | changed)


def echo_service(name: str, behind: Behind) -> Service:
    """A service that owns every operation."""

    async def parts() -> list[Part]:
        return [Part("storage", behind.ready)]

    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        assert behind.stream is not None
        await behind.stream(scope, receive, send)

    return Service(name, {one: behind.handler(one) for one in OPERATIONS}, parts, nothing, nothing, app=stream)


def refusal_of(body: bytes) -> dict[str, Any]:
    """The error of an answer, which must be in the closed envelope and its message say something."""
    document = orjson.loads(body)
    contracts.check("error", document)
    inner: dict[str, Any] = document["error"]
    assert len(inner["message"]) > 10
    assert inner["operation_id"].startswith("op:")
    return inner
