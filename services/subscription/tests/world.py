"""The subscription service in this process, beside a real write service, PostgreSQL and NATS.

The relay's part is in the test's hands: `hint` republishes stored ledger entries, in any order, twice or never.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import asyncpg
import nats as nats_client
import orjson
from nats.aio.client import Client

from pamspec_cli.servers.databases import Database
from pamspec_cli.servers.nats import NatsAddress
from pamspec_common import contracts, server
from pamspec_common.calls import Answer, Call
from pamspec_common.ids import subject_token
from pamspec_common.internal import answer as run
from pamspec_common.peers import LocalPeer, Peer
from pamspec_common.principal import RIGHT_ADMIN, RIGHT_ASSERT_ACTOR, Principal, TokenSigner
from pamspec_common.service import Service
from pamspec_subscription.app import build
from pamspec_subscription.settings import Settings
from pamspec_write.app import build as build_write
from pamspec_write.settings import Settings as WriteSettings

Document = dict[str, Any]

TENANT = "tenant:test"
KID, KEY = "k1", b"a key between services for tests"
ROLES = frozenset({"curator"})
AGENT = Principal(TENANT, "agent:follower", "agent", roles=ROLES)
OTHER = Principal(TENANT, "agent:other", "agent", roles=ROLES)
ADMIN = Principal(TENANT, "human:admin", "human", frozenset({RIGHT_ADMIN}), roles=frozenset({"admin"}))
BACKEND = Principal(TENANT, "service:backend", "service", frozenset({RIGHT_ASSERT_ACTOR}), roles=ROLES)
STRANGER = Principal("tenant:elsewhere", "agent:follower", "agent", roles=ROLES)
GUEST = Principal(TENANT, "agent:guest", "agent")
"""Has the roles that a test binds to it."""
NO_BUS = "nats://127.0.0.1:1"
_names = itertools.count(1)
_signer = TokenSigner(KID, KEY)


def token(principal: Principal = AGENT) -> str:
    """The signed principal as the gateway passes it on."""
    return _signer.sign(principal)


def scope_head_sql() -> str:
    return "SELECT last_seq FROM core.scope_head h JOIN core.scope s USING (scope_key) WHERE scope_id = $1"


@dataclass
class World:
    """One database, one write service, and as many subscription services as a test starts."""

    database: Database
    bus: NatsAddress | None
    write: Service
    admin: asyncpg.Connection[asyncpg.Record]
    publisher: Client | None
    services: list[Service] = field(default_factory=list)

    def settings(self, **changes: Any) -> Settings:
        given: Document = {
            "database_url": self.database.role("subscription"),
            "nats_url": self.bus.url if self.bus else NO_BUS,
            "nats_nkey_seed": self.bus.service_seed if self.bus else None,
            "token_keys": {KID: KEY},
            "drain_s": 3.0,
            "denial_window_s": 3600.0,
            "heads_interval_s": 0.2,
            "keepalive_ms": 5000,
        }
        return Settings(**(given | changes))

    async def service(self, *, write: Peer | None = None, **changes: Any) -> Service:
        """A started subscription service."""
        built = build(self.settings(**changes), write or LocalPeer(self.write))
        await built.start()
        self.services.append(built)
        return built

    @contextlib.asynccontextmanager
    async def served(self, service: Service) -> AsyncIterator[str]:
        """The same behind a real HTTP server."""
        async with server.serving(service, drain_s=3.0) as url:
            yield url

    async def scope(self, tenant: str = TENANT) -> str:
        scope_id = f"workspace:{next(_names)}"
        await self.written("create_scope", {"scope_id": scope_id, "scope_kind": "workspace"}, ADMIN)
        return scope_id

    async def written(self, operation: str, document: Document, by: Principal = AGENT) -> Document:
        answer = await run(self.write.operations, Call(operation, token(by), orjson.dumps(document)))
        assert answer.status < 300, answer.body
        body: Document = orjson.loads(answer.body)
        return body

    async def create(self, scope: str, count: int = 1, **more: Any) -> list[Document]:
        """Objects, one event each, written in one batch."""
        item = {"object_type": "claim", "canonical_content": "x", "provenance": {"activity": "test"}, **more}
        made: list[Document] = []
        while len(made) < count:
            items = [{"operation": "create", "scope_id": scope, **item} for _ in range(min(1000, count - len(made)))]
            batch = await self.written("batch", {"scope_id": scope, "items": items})
            made += batch["results"]
        return made

    async def head(self, scope: str) -> int:
        found: int = await self.admin.fetchval(scope_head_sql(), scope)
        return found

    async def scope_key(self, scope: str) -> int:
        found: int = await self.admin.fetchval("SELECT scope_key FROM core.scope WHERE scope_id = $1", scope)
        return found

    async def events(self, scope: str, after: int = 0) -> list[Document]:
        """What the ledger holds."""
        rows = await self.admin.fetch(
            "SELECT event FROM core.ledger WHERE scope_key = $1 AND sequence > $2 ORDER BY sequence",
            await self.scope_key(scope),
            after,
        )
        return [orjson.loads(row["event"]) for row in rows]

    async def hint(self, scope: str, sequences: Iterable[int], *, epoch: int = 1) -> None:
        """Republish ledger entries as the bus does once they are stored."""
        publisher = self.publisher
        assert publisher is not None

        async def connected() -> object:
            return publisher.is_connected

        await until(connected)
        key = await self.scope_key(scope)
        for sequence in sequences:
            row = await self.admin.fetchrow(
                "SELECT event, event_type FROM core.ledger WHERE scope_key = $1 AND sequence = $2", key, sequence
            )
            assert row is not None
            subject = f"pamspec.events.{subject_token(TENANT)}.{subject_token(TENANT, scope)}.{row['event_type']}"
            headers = {"Pamspec-Ledger-Epoch": str(epoch), "Pamspec-Ledger-Sequence": str(sequence)}
            await publisher.publish(subject, row["event"], headers=headers)
        await publisher.flush()

    async def row(self, subscription_id: str) -> asyncpg.Record:
        row = await self.admin.fetchrow(
            "SELECT * FROM subscription.subscription WHERE subscription_id = $1", subscription_id
        )
        assert row is not None
        return row

    async def bind(self, role: str, scope: str | None = None, by: Principal = GUEST) -> None:
        """Bind a role in a scope or in the tenant, as an administrator's command does: with the epoch raised."""
        key = 0 if scope is None else await self.scope_key(scope)
        await self.admin.execute(
            "INSERT INTO core.role_binding (tenant_id, scope_key, actor_id, role, bound_by)"
            " VALUES ($1, $2, $3, $4, 'a:b')",
            TENANT, key, by.actor_id, role,
        )  # fmt: skip
        await self.moved(scope)

    async def unbind(self, scope: str | None = None, by: Principal = GUEST) -> None:
        """Take the roles that were bound there."""
        key = 0 if scope is None else await self.scope_key(scope)
        await self.admin.execute(
            "DELETE FROM core.role_binding WHERE actor_id = $1 AND scope_key = $2", by.actor_id, key
        )
        await self.moved(scope)

    async def rules(self, text: str, scope: str) -> None:
        """Put rules in force in a scope."""
        await self.admin.execute(
            "INSERT INTO core.access_rules (tenant_id, scope_key, rules_version, text, policy_basis, actor_id) "
            "SELECT $1, $2, coalesce(max(rules_version), 0) + 1, $3, 'test', 'a:b' FROM core.access_rules "
            "WHERE tenant_id = $1 AND scope_key = $2",
            TENANT, await self.scope_key(scope), text,
        )  # fmt: skip
        await self.moved(scope)

    async def moved(self, scope: str | None) -> None:
        """Raise the authorization epoch."""
        if scope is None:
            await self.admin.execute(
                "UPDATE core.tenant SET epoch_authz = epoch_authz + 1 WHERE tenant_id = $1", TENANT
            )
            return
        await self.admin.execute(
            "UPDATE core.scope_head SET epoch_authz = epoch_authz + 1 WHERE scope_key = $1", await self.scope_key(scope)
        )

    async def stop(self) -> None:
        for service in self.services:
            await service.stop()
        await self.write.stop()
        if self.publisher is not None:
            await self.publisher.close()
        await self.admin.close()


async def started(database: Database, bus: NatsAddress | None) -> World:
    admin = await asyncpg.connect(database.dsn)
    await admin.execute("INSERT INTO core.tenant (tenant_id) VALUES ($1), ($2)", TENANT, STRANGER.tenant_id)
    write = build_write(
        WriteSettings(
            database_url=database.role("write"),
            nats_url=bus.url if bus else NO_BUS,
            nats_nkey_seed=bus.service_seed if bus else None,
            token_keys={KID: KEY},
            denial_window_s=3600.0,
        )
    )
    await write.start()
    publisher = None
    if bus is not None:
        publisher = await nats_client.connect(
            bus.url, nkeys_seed_str=bus.service_seed, reconnect_time_wait=0.05, max_reconnect_attempts=-1
        )
    return World(database, bus, write, admin, publisher)


async def call(
    service: Service, operation: str, document: Document | bytes, by: Principal = AGENT, *, check: bool = True
) -> Answer:
    """An answer, valid by its contract."""
    body = document if isinstance(document, bytes) else orjson.dumps(document)
    answer = await run(service.operations, Call(operation, token(by), body))
    if not check:
        return answer
    found = orjson.loads(answer.body)
    if answer.status >= 400:
        contracts.check("error", found)
    else:
        error = next(contracts.answer_validator(operation).iter_errors(found), None)
        assert error is None, f"{operation}: {error}"
    return answer


async def ok(service: Service, operation: str, document: Document, by: Principal = AGENT) -> Document:
    answer = await call(service, operation, document, by)
    assert answer.status < 300, answer.body
    body: Document = orjson.loads(answer.body)
    return body


async def refused(service: Service, operation: str, document: Document | bytes, by: Principal = AGENT) -> Document:
    answer = await call(service, operation, document, by)
    assert answer.status >= 400, answer.body
    error: Document = orjson.loads(answer.body)["error"]
    return error


async def subscribed(service: Service, scope: str, by: Principal = AGENT, **more: Any) -> str:
    answer = await ok(service, "subscribe", {"scope_id": scope, **more}, by)
    found: str = answer["subscription_id"]
    return found


def sequences(page: Mapping[str, Any]) -> list[int]:
    return [event["sequence"] for event in page["events"]]


async def until(condition: Callable[[], Awaitable[object]], timeout_s: float = 30.0) -> None:
    """Wait until a condition holds, asking again in between."""
    async with asyncio.timeout(timeout_s):
        while not await condition():
            await asyncio.sleep(0.01)


class SseClient:
    """An SSE client that takes frames one by one."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response
        self.comments = 0
        self.last_id: str | None = None
        self._buffer = b""

    async def frame(self, timeout_s: float = 10.0) -> Document:
        """The next frame, valid by its contract."""
        async with asyncio.timeout(timeout_s):
            while b"\n\n" not in self._buffer:
                chunk = await self.response.content.readany()
                if not chunk:
                    raise EOFError
                self._buffer += chunk
        block, _, self._buffer = self._buffer.partition(b"\n\n")
        fields: dict[str, str] = {}
        for line in block.decode().split("\n"):
            name, _, value = line.partition(": ")
            fields[name] = value
        if "data" not in fields:
            self.comments += 1
            return await self.frame(timeout_s)
        self.last_id = fields["id"]
        found: Document = orjson.loads(fields["data"])
        contracts.check("frame", found)
        kind = next(name for name in ("event", "progress", "ended", "closed") if name in found)
        assert fields.get("event", "event") == kind
        return found

    async def event(self, timeout_s: float = 10.0) -> Document:
        """The next event frame."""
        async with asyncio.timeout(timeout_s):
            while "event" not in (frame := await self.frame(timeout_s)):
                assert "progress" in frame, frame
            return frame


@contextlib.asynccontextmanager
async def sse(
    url: str, subscription_id: str, last_event_id: str | None = None, by: Principal = AGENT, query: str = ""
) -> AsyncIterator[SseClient]:
    """A stream that has opened."""
    headers = {"x-pamspec-principal": token(by)}
    if last_event_id is not None:
        headers["Last-Event-ID"] = last_event_id
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{url}/v1/subscriptions/{subscription_id}/stream{query}", headers=headers) as response,
    ):
        assert response.status == 200, await response.text()
        assert response.content_type == "text/event-stream"
        yield SseClient(response)
