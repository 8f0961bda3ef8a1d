"""Agents on the bus, composed: logins, the operation door, and the end of connections whose key was revoked.

Three connections, each as a user of its own: AUTH for the callout, SVC for the door, SYS for the kicks. Each is made
again whenever it is lost for good, so that the gateway starts and works over HTTP while the bus is away.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from nats.aio.client import Client
from nats.errors import Error as NatsError
from pydantic import SecretStr

from pamspec_common import bus
from pamspec_common.postgres import Pool, connection
from pamspec_common.service import Background, Part
from pamspec_gateway.authentication import Guard
from pamspec_gateway.bus_door import BusDoor
from pamspec_gateway.bus_tokens import BusTokens
from pamspec_gateway.callout import Callout
from pamspec_gateway.connections import Connections
from pamspec_gateway.door import Load, Route
from pamspec_gateway.logins import LoginNames, Logins
from pamspec_gateway.lookups import Lookups
from pamspec_gateway.queries import select_principals_by_id
from pamspec_gateway.settings import Settings

_AGAIN_S = 1.0
_log = logging.getLogger(__name__)


class Agents:
    """What a gateway with the seeds of the callout does on the bus."""

    def __init__(
        self,
        settings: Settings,
        pool: Pool,
        guard: Guard,
        load: Load,
        routes: Mapping[str, Route],
        over_http_alone: frozenset[str],
    ) -> None:
        issuer, nkey = settings.callout_issuer_seed, settings.callout_nkey_seed
        assert issuer is not None
        assert nkey is not None
        xkey = settings.callout_xkey_seed
        names = LoginNames(settings.token_key_bytes())
        self._pool, self._wait_ms = pool, settings.pool_wait_ms
        self._keys = Lookups(pool, settings.pool_wait_ms, select_principals_by_id)
        self._logins = logins = Logins(names, self._keys, guard, lifetime_s=settings.key_cache_s)
        self._connections = Connections(
            self._valid,
            names,
            account=settings.agents_account,
            every_s=settings.agent_recheck_s,
            adopt_every_s=settings.agent_adopt_s,
        )
        tokens = BusTokens(
            issuer.get_secret_value(), xkey.get_secret_value() if xkey else None, settings.agents_account
        )
        self._callout = Callout(tokens, guard, names, self._connections, login_s=settings.agent_login_s)
        self._door = BusDoor(routes, over_http_alone, logins, names, guard, load)
        self._lines = [
            _Line(settings, "callout", nkey, self._callout.attach),
            _Line(settings, "bus_door", settings.nats_nkey_seed, self._door.attach),
        ]
        if settings.system_nkey_seed is not None:
            self._lines.append(_Line(settings, "kicks", settings.system_nkey_seed, self._connections.attach))

    def start(self, background: Background) -> None:
        """Connect in the background."""
        for line in self._lines:
            background.spawn(line.name, partial(line.run, background))
        background.spawn("agents", partial(self._connections.watch, background))

    async def _valid(self, key_ids: Sequence[str]) -> frozenset[str]:
        async with connection(self._pool, self._wait_ms) as conn:
            return frozenset(await select_principals_by_id(conn, key_ids))

    def forget(self, *, moved: bool) -> None:
        """Look callers up again; with `moved` some credential has ended, and connections that stand on it shall too."""
        self._logins.forget()
        if moved:
            self._connections.look_soon()

    def parts(self) -> list[Part]:
        """Whether each connection stands; without them HTTP goes on."""
        return [Part(line.name, line.stands, {}, essential=False) for line in self._lines]

    async def drain(self, timeout_s: float) -> None:
        """Take no more requests; answer those under way."""
        await self._door.drain(timeout_s)

    async def close(self) -> None:
        """End what is left, then the connections."""
        await self._callout.close()
        await self._door.close()
        await self._keys.close()
        for line in self._lines:
            await line.close()


class _Line:
    """One connection to the bus, as one user."""

    def __init__(
        self, settings: Settings, name: str, seed: SecretStr | None, attach: Callable[[Client], Awaitable[None]]
    ) -> None:
        self.name = name
        self._settings, self._seed, self._attach = settings, seed, attach
        self._client: Client | None = None

    @property
    def stands(self) -> bool:
        """Whether it is connected now."""
        return self._client is not None and self._client.is_connected

    async def run(self, background: Background) -> None:
        """Connect, listen, and connect again when the server has closed it; until the service stops."""
        while not background.stopping.is_set():
            closed = asyncio.Event()

            async def lost(closed: asyncio.Event = closed) -> None:
                closed.set()

            try:
                self._client = await bus.connect(
                    self._settings, f"gateway-{self.name}", seed=self._seed, on_closed=lost
                )
                await self._attach(self._client)
                background.recovered(self.name)
                await _first(closed, background.stopping)
            except (NatsError, OSError, TimeoutError) as error:
                _log.warning("the bus refuses %s: %s", self.name, error, extra={"action": "bus_refused"})
            if background.stopping.is_set() or await background.pause(_AGAIN_S):
                return
            await bus.close(self._client)

    async def close(self) -> None:
        """Close it, bounded."""
        await bus.close(self._client)


async def _first(*events: asyncio.Event) -> None:
    """Return when one of the events is set."""
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waiting:
            one.cancel()
