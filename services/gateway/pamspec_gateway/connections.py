"""Connections of agents to the bus, and their end when a key is revoked.

When some credential opens less than before, one statement tells which keys of connected agents are no longer valid;
what stands on those is kicked by the server that holds it. Each gateway watches the logins that it answered, and takes
over what others answered from the servers' own lists, so that a gateway that died leaves nothing unwatched.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import asyncpg
import orjson
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from pamspec_common.errors import PamspecError, Unauthenticated
from pamspec_common.service import Background
from pamspec_gateway.authentication import Clock
from pamspec_gateway.logins import Login, LoginNames

_MOST = 200_000
_KICKED_TOGETHER = 64
_KICK_S = 2.0
_LISTED_S = 2.0
_PAGE = 1024
_PAGES = 200

_log = logging.getLogger(__name__)

Place = tuple[str, int]
"""The server's id and its number of the connection, which it never gives twice."""


class Connections:
    """Which connection stands on which key."""

    def __init__(
        self,
        valid: Callable[[list[str]], Awaitable[frozenset[str]]],
        names: LoginNames,
        *,
        account: str,
        every_s: float,
        adopt_every_s: float,
        wall: Clock = time.time,
    ) -> None:
        self._valid, self._names, self._account = valid, names, account
        self._every_s, self._adopt_every_s, self._wall = every_s, adopt_every_s, wall
        self._again = asyncio.Event()
        self._open: dict[Place, tuple[str, float]] = {}
        self._system: Client | None = None
        self._adopt_at = 0.0

    def __len__(self) -> int:
        return len(self._open)

    def add(self, server_id: str, connection_id: int, login: Login) -> None:
        """A connection was let in; those of signed tokens end by themselves."""
        if login.key_id is not None and len(self._open) < _MOST:
            self._open[server_id, connection_id] = (login.key_id, login.expires)

    async def attach(self, client: Client) -> None:
        """Use a connection in the system account."""
        self._system, self._adopt_at = client, 0.0
        self.look_soon()

    def look_soon(self) -> None:
        """Some credential opens less than before."""
        self._again.set()

    async def watch(self, background: Background) -> None:
        """Look when there is a reason, and now and then, until the service stops."""
        while not background.stopping.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._every_s):
                    await self._again.wait()
            self._again.clear()
            try:
                await self._adopt()
                await self.look()
                background.recovered("agents")
            except (PamspecError, NatsError, asyncpg.PostgresError, OSError, TimeoutError) as error:
                _log.info("connections are not compared: %s", error, extra={"action": "connections_wait"})

    async def look(self) -> None:
        """Kick what stands on a key that is no longer valid."""
        now = self._wall()
        for place in [place for place, (_, expires) in self._open.items() if expires <= now]:
            del self._open[place]
        keys = sorted({key for key, _ in self._open.values()})
        if not keys:
            return
        gone = set(keys) - await self._valid(keys)
        ending = [place for place, (key, _) in self._open.items() if key in gone]
        for start in range(0, len(ending), _KICKED_TOGETHER):
            await asyncio.gather(*(self._kick(place) for place in ending[start : start + _KICKED_TOGETHER]))

    async def _kick(self, place: Place) -> None:
        """End a connection; one that is not confirmed is tried again with the next look."""
        if self._system is None or not self._system.is_connected:
            return
        server_id, connection_id = place
        body = orjson.dumps({"cid": connection_id})
        with contextlib.suppress(NatsError, OSError, TimeoutError):
            await self._system.request(f"$SYS.REQ.SERVER.{server_id}.KICK", body, timeout=_KICK_S)
            key, _ = self._open.pop(place, ("", 0.0))
            _log.info("a connection of a revoked key was ended", extra={"action": "connection_kicked", "key_id": key})

    async def _adopt(self) -> None:
        """Take over the connections that servers list and we don't know."""
        system = self._system
        loop_now = asyncio.get_running_loop().time()
        if system is None or not system.is_connected or loop_now < self._adopt_at:
            return
        for server_id, total in (await self._listed(system, "PING", 0, many=True)).items():
            for offset in range(_PAGE, min(total, _PAGE * _PAGES), _PAGE):
                await self._listed(system, server_id, offset, many=False)
        self._adopt_at = loop_now + self._adopt_every_s

    async def _listed(self, system: Client, server: str, offset: int, *, many: bool) -> dict[str, int]:
        """Note a page of each server's connections; how many each has in all."""
        inbox = system.new_inbox()
        arrived: asyncio.Queue[Msg] = asyncio.Queue()
        subscription = await system.subscribe(inbox, cb=arrived.put)
        asked = {"auth": True, "acc": self._account, "limit": _PAGE, "offset": offset}
        totals: dict[str, int] = {}
        try:
            await system.publish(f"$SYS.REQ.SERVER.{server}.CONNZ", orjson.dumps(asked), reply=inbox)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LISTED_S):
                    while many or not totals:
                        totals |= self._note(orjson.loads((await arrived.get()).data))
        finally:
            await subscription.unsubscribe()
        return totals

    def _note(self, page: Mapping[str, Any]) -> dict[str, int]:
        data = page.get("data") or {}
        server_id = data.get("server_id")
        if not isinstance(server_id, str):
            return {}
        for connection in data.get("connections") or ():
            with contextlib.suppress(Unauthenticated):
                login = self._names.read(connection.get("authorized_user", ""))
                self.add(server_id, int(connection["cid"]), login)
        return {server_id: int(data.get("total", 0))}
