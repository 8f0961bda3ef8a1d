"""The gateway, composed: doors from the outside in, each passing on what is not its own.

AMP -> MCP -> operations -> channels -> transfers -> the framework with conveniences and documentation.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress

from pamspec_common import contracts
from pamspec_common.asgi import ASGIApp
from pamspec_common.contracts.catalogues import OperationCatalogue
from pamspec_common.errors import PamspecError, ServiceUnavailable
from pamspec_common.peers import Peer, RemotePeer, closing, peer_session
from pamspec_common.postgres import Pool, close_pool, connection, create_pool
from pamspec_common.principal import TokenSigner
from pamspec_common.quotas import Quotas, quotas_of
from pamspec_common.service import Background, Part, Service
from pamspec_common.turns import Turns
from pamspec_gateway.absences import Absences
from pamspec_gateway.agents import Agents
from pamspec_gateway.amp_door import AmpDoor
from pamspec_gateway.api_keys import ApiKeys, Guesses
from pamspec_gateway.authentication import Guard
from pamspec_gateway.credential_watch import CredentialWatch
from pamspec_gateway.door import Capacity, Load, OperationDoor, Route
from pamspec_gateway.identity_tokens import IdentityTokens
from pamspec_gateway.limits.limiter import Limiter
from pamspec_gateway.limits.sharing import Sharing
from pamspec_gateway.mcp_door import McpDoor
from pamspec_gateway.moments import Moments
from pamspec_gateway.pages import framework
from pamspec_gateway.queries import select_quotas, select_reachable
from pamspec_gateway.settings import Settings
from pamspec_gateway.signing_keys import SigningKeys
from pamspec_gateway.streams import StreamDoor
from pamspec_gateway.transfers import Transfer, TransferDoor

_READY_WITHIN_S = 3.0
_FLUSH_EVERY_S = 1.0
_ESSENTIAL = frozenset(("write", "query"))
_WAITING = frozenset(("poll",))

_log = logging.getLogger(__name__)


def build(settings: Settings, peers: Mapping[str, Peer]) -> Service:
    """The gateway in front of these peers: write, query, subscription, delegation and indexing, and relay for its
    readiness."""
    return _Gateway(settings, peers).service()


def build_remote(settings: Settings) -> Service:
    """The gateway in front of services in other processes; call it in a running event loop."""
    session = peer_session(settings.tls())
    urls = {
        "write": settings.write_url,
        "query": settings.query_url,
        "subscription": settings.subscription_url,
        "delegation": settings.delegation_url,
        "indexing": settings.indexing_url,
    }
    if settings.relay_url is not None:
        urls["relay"] = settings.relay_url
    if settings.retention_sweeper_url is not None:
        urls["retention_sweeper"] = settings.retention_sweeper_url
    return closing(build(settings, {name: RemotePeer(session, url, name) for name, url in urls.items()}), session)


class _Gateway:
    def __init__(self, settings: Settings, peers: Mapping[str, Peer]) -> None:
        self._settings, self._peers = settings, dict(peers)
        self._background = Background()
        self._pool: Pool | None = None
        self._keys: ApiKeys | None = None
        self._signing_keys = SigningKeys()
        self._moments = Moments()
        self._absences = Absences(settings.absence_step_ms / 1000, self._moments.until)
        self._limiter, self._sharing = self._limits(settings)
        capacity = Capacity(
            settings.max_body_bytes, settings.max_buffered_bytes, settings.max_requests, settings.max_waiting
        )
        self._load = Load(capacity, self._limiter)
        self._guard: Guard | None = None
        self._streams: StreamDoor | None = None
        self._agents: Agents | None = None
        self._mcp: McpDoor | None = None

    def service(self) -> Service:
        """The service; its doors exist once it has started."""
        self._service = Service("gateway", {}, self._ready, self._start, self._stop, app=None, on_drain=self._drain)
        return self._service

    async def _start(self) -> None:
        settings = self._settings
        self._moments.open()
        self._pool = await create_pool(settings, "gateway")
        guesses = Guesses(settings.key_guesses_per_s, settings.key_guess_burst)
        self._keys = ApiKeys(
            self._pool,
            settings.key_pepper.get_secret_value().encode(),
            guesses,
            lifetime_s=settings.key_cache_s,
            wait_ms=settings.pool_wait_ms,
        )
        kid, key = next(iter(settings.token_key_bytes().items()))
        tokens = IdentityTokens(settings.token_issuers, self._signing_keys, guesses, skew_s=settings.token_skew_s)
        guard = self._guard = Guard([self._keys, tokens], TokenSigner(kid, key, ""), limiter=self._limiter)
        catalogue = contracts.operation_catalogue()
        routes = {
            name: Route(name, self._peers[operation.service], name in _WAITING, operation.service)
            for name, operation in catalogue.operations.items()
            if operation.public and operation.streams is None
        }
        self._service.app = self._doors(guard, catalogue, routes)
        if self._mcp is not None:
            await self._mcp.sessions.start()
        if settings.serves_agents:
            streamed = frozenset(name for name, one in catalogue.operations.items() if one.streams is not None)
            self._agents = Agents(settings, self._pool, guard, self._load, routes, streamed)
            self._agents.start(self._background)
        self._watch(guard, self._pool, self._keys)
        self._background.spawn("metrics", self._flush)
        self._background.spawn("limits", lambda: self._sharing.run(self._background))
        self._background.spawn("quotas", lambda: self._limiter.watch(self._background, settings.quota_cache_s))

    def _limits(self, settings: Settings) -> tuple[Limiter, Sharing]:
        url = None if settings.valkey_url is None else settings.valkey_url.get_secret_value()
        sharing = Sharing(url, interval_s=settings.limit_share_ms / 1000, timeout_s=settings.limit_timeout_ms / 1000)
        turns = Turns(settings.max_turns, max(1, settings.max_turns * 3 // 4), max(1, settings.max_turns // 16))
        defaults = quotas_of(settings.quota_defaults)
        return Limiter(turns, sharing, self._quotas, defaults, absences=self._absences), sharing

    async def _quotas(self, tenants: Sequence[str]) -> dict[str, Quotas]:
        if self._pool is None:
            raise ServiceUnavailable
        async with connection(self._pool, self._settings.pool_wait_ms) as conn:
            return await select_quotas(conn, tenants)

    def _watch(self, guard: Guard, pool: Pool, keys: ApiKeys) -> None:
        """Begin to follow revocations, and to note which keys are used."""
        settings, background = self._settings, self._background

        def forget(*, moved: bool) -> None:
            if self._agents is not None:
                self._agents.forget(moved=moved)
            guard.forget(moved=moved)

        def moved() -> None:
            keys.forget()
            forget(moved=True)

        watch = CredentialWatch(
            pool,
            moved,
            lambda: forget(moved=False),
            every_s=settings.key_watch_s,
            blind_s=settings.key_blind_s,
            wait_ms=settings.pool_wait_ms,
        )
        background.spawn("credentials", lambda: watch.run(background))
        background.spawn("key_use", lambda: self._note_use(keys))

    def _doors(self, guard: Guard, catalogue: OperationCatalogue, routes: Mapping[str, Route]) -> ASGIApp:
        transfers = {
            f"/v1/{name}": Transfer(name, self._peers[operation.service], operation.streams, operation.service)
            for name, operation in catalogue.operations.items()
            if operation.public and operation.streams is not None
        }
        rest = framework(catalogue, routes, guard, self._load)
        channels = {
            kind: (channel.path, channel.service, self._peers[channel.service])
            for kind, channel in catalogue.channels.items()
        }
        rest = TransferDoor(transfers, guard, self._load, rest, self._settings.channel_recheck_s)
        self._streams = StreamDoor(channels, guard, self._load, rest, self._settings.channel_recheck_s)
        door = OperationDoor({f"/v1/{name}": route for name, route in routes.items()}, guard, self._load, self._streams)
        self._mcp = McpDoor(self._settings, guard, self._load, door)
        return AmpDoor(self._settings, guard, self._load, self._mcp)

    async def _drain(self) -> None:
        if self._guard is not None:
            self._guard.stop()
        both = [one.drain(self._settings.drain_s) for one in (self._mcp, self._streams) if one is not None]
        await asyncio.gather(*both)
        if self._agents is not None:
            await self._agents.drain(self._settings.drain_s)

    async def _stop(self) -> None:
        await self._background.stop(1.0)
        self._moments.close()
        if self._agents is not None:
            await self._agents.close()
        self._load.flush()
        if self._keys is not None:
            with suppress(PamspecError):
                await self._keys.note_use()
            await self._keys.close()
        await self._signing_keys.close()
        await self._sharing.close()
        await close_pool(self._pool)

    async def _flush(self) -> None:
        while not await self._background.pause(_FLUSH_EVERY_S):
            self._load.flush()

    async def _note_use(self, keys: ApiKeys) -> None:
        while not await self._background.pause(self._settings.key_use_s):
            try:
                await keys.note_use()
            except PamspecError as error:
                _log.info("the use of keys is noted later: %s", error, extra={"action": "key_use_waits"})

    async def _ready(self) -> list[Part]:
        """Our own parts, and those of every peer under its name; only write and query are essential for the door."""
        peers = (self._peer_parts(name, peer) for name, peer in self._peers.items())
        gathered = await asyncio.gather(self._keys_part(), *peers)
        own = self._agents.parts() if self._agents is not None else []
        return [*own, *(part for parts in gathered for part in parts)]

    async def _keys_part(self) -> list[Part]:
        if self._pool is None:
            return [Part("keys", False)]
        try:
            async with connection(self._pool, self._settings.pool_wait_ms) as conn, asyncio.timeout(_READY_WITHIN_S):
                return [Part("keys", await select_reachable(conn))]
        except PamspecError as error:
            return [Part("keys", False, {"error": error.message})]
        except TimeoutError:
            return [Part("keys", False, {"error": "the database does not answer"})]

    async def _peer_parts(self, name: str, peer: Peer) -> list[Part]:
        try:
            async with asyncio.timeout(_READY_WITHIN_S):
                _, parts = await peer.ready()
        except TimeoutError:
            parts = [Part("answering", False)]
        return [
            Part(f"{name}.{part.name}", part.ok, part.detail, part.essential and name in _ESSENTIAL) for part in parts
        ]
