"""Gateways on a real bus, and agents as any NATS client could be one."""

import asyncio
import os
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import asyncpg
import nats as nats_py
import orjson
from nats.aio.client import Client
from nats.aio.msg import Msg

from pamspec_cli.servers.databases import Database
from pamspec_cli.servers.nats import EmbeddedNats, NatsAddress
from pamspec_common.ids import subject_token
from pamspec_common.keys import new_key
from pamspec_common.peers import LocalPeer
from pamspec_common.service import Service
from pamspec_gateway.app import build
from services.gateway.tests.behind import Behind, echo_service, gateway_settings, insert_key

PATIENCE_S = 30.0


class Agent:
    """A connection of an agent, with what the server told it."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.told: asyncio.Queue[str] = asyncio.Queue()
        self.closed = asyncio.Event()
        self.lost = asyncio.Event()
        self.client: Client

    async def connect(self, url: str, credential: str, *, inbox: str | None = None, name: str = "a test") -> "Agent":
        """Log in once; raises what the server says, or TimeoutError."""

        async def told(error: Exception) -> None:
            self.told.put_nowait(str(error).lower())

        async def closed() -> None:
            self.closed.set()

        async def lost() -> None:
            self.lost.set()

        self.client = await nats_py.connect(
            url,
            token=credential,
            name=name,
            inbox_prefix=inbox or f"_INBOX_{self.token}",
            allow_reconnect=False,
            max_reconnect_attempts=0,
            connect_timeout=20,
            skip_subject_validation=True,
            error_cb=told,
            closed_cb=closed,
            disconnected_cb=lost,
        )
        if not self.client.is_connected:
            raise ConnectionError("the server closed the connection")
        return self

    async def request(self, operation: str, body: bytes = b"{}", **headers: str) -> Msg:
        """The answer to an operation on the agent's own subject."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        subject = f"pamspec.op.{self.token}.{operation}"
        return await self.client.request(subject, body, timeout=PATIENCE_S, headers=sent or None)

    async def refused(self, what: str) -> None:
        """The server says that this is not allowed."""
        async with asyncio.timeout(PATIENCE_S):
            told = await self.told.get()
        assert "permissions violation" in told, told
        assert what.lower() in told, told


@dataclass
class BusWorld:
    """A bus, a database and gateways of a test or a module."""

    server: EmbeddedNats
    database: Database
    behind: Behind = field(default_factory=Behind)
    gateways: list[Service] = field(default_factory=list)
    agents: list[Agent] = field(default_factory=list)
    changed: dict[str, object] = field(default_factory=dict)

    @property
    def address(self) -> NatsAddress:
        assert self.server.address is not None
        return self.server.address

    async def gateway(self, **changed: object) -> Service:
        """One more gateway, listening on the bus."""
        address = self.address
        callout = {name.removeprefix("PAMSPEC_").lower(): value for name, value in address.callout_variables().items()}
        given = {"nats_url": address.url, "nats_nkey_seed": address.service_seed, "key_cache_s": 0.5, **callout}
        echo = LocalPeer(echo_service("echo", self.behind))
        settings = gateway_settings(self.database, **(given | self.changed | changed))
        service = build(settings, dict.fromkeys(("write", "query", "subscription", "delegation", "indexing"), echo))
        await service.start()
        self.gateways.append(service)

        async def listening() -> bool:
            _, parts = await service.ready()
            standing = {part.name: part.ok for part in parts}
            return all(standing[name] for name in ("callout", "bus_door", "kicks") if name in standing)

        await until(listening)
        return service

    async def key(self, actor: str = "agent:a", tenant: str = "tenant:t") -> str:
        """A new key of an actor."""
        key = new_key()
        key_id = f"key:{secrets.token_hex(8)}"
        await insert_key(self.database.dsn, key, tenant=tenant, actor=actor, key_id=key_id)
        self.key_ids[key] = key_id
        return key

    key_ids: dict[str, str] = field(default_factory=dict)

    async def agent(
        self, key: str, actor: str = "agent:a", tenant: str = "tenant:t", *, inbox: str | None = None, name: str = "a"
    ) -> Agent:
        """A connected agent."""
        agent = Agent(subject_token(tenant, actor))
        await agent.connect(self.address.url, key, inbox=inbox, name=name)
        self.agents.append(agent)
        return agent

    async def sql(self, statement: str, *arguments: object) -> None:
        """As the administrator."""
        conn = await asyncpg.connect(self.database.dsn)
        try:
            await conn.execute(statement, *arguments)
        finally:
            await conn.close()

    async def revoke(self, key: str) -> None:
        """A key is no longer valid."""
        await self.sql(
            "UPDATE core.api_key SET revoked_at = clock_timestamp(), epoch = epoch + 1 WHERE key_id = $1",
            self.key_ids[key],
        )

    async def service_client(self) -> Client:
        """A connection as a service."""
        return await nats_py.connect(self.address.url, nkeys_seed_str=self.address.service_seed)

    def log(self) -> str:
        """What the bus server has logged."""
        return (self.server.directory / "nats.log").read_text(encoding="utf-8", errors="replace")

    async def close(self) -> None:
        """Everything ends."""
        for agent in self.agents:
            await agent.client.close()
        for gateway in self.gateways:
            await gateway.stop()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """A condition holds, in bounded time."""
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():
            await asyncio.sleep(0.02)


def document_of(message: Msg) -> dict[str, object]:
    """The JSON of a message."""
    document: dict[str, object] = orjson.loads(message.data)
    return document


def letters() -> str:
    """26 letters of an inbox of one's own."""
    return subject_token(os.urandom(8).hex())
