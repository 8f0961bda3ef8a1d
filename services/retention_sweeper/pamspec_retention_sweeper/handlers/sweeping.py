"""Sweeping: which scopes are looked at, by whom, and how often; what waits, for metrics and readiness.

Invariant: a scope is worked on under a lease, which saves work and decides nothing: what two processes do to one object
is the same command under one id, on the version that both looked at.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from pamspec_common.errors import PamspecError
from pamspec_common.peers import Peer
from pamspec_common.principal import TokenSigner
from pamspec_common.service import Background, Part
from pamspec_common.telemetry import metrics
from pamspec_retention_sweeper.handlers.acting import Acting
from pamspec_retention_sweeper.handlers.following import follow
from pamspec_retention_sweeper.queries import scopes
from pamspec_retention_sweeper.queries.scopes import DueScope
from pamspec_retention_sweeper.settings import Settings
from pamspec_retention_sweeper.store import Store

_log = logging.getLogger(__name__)

_SCOPES_AT_ONCE = 16
_COUNTED = 10_000
"""Where the count of what waits ends."""


class Sweeping:
    """The background job of one process."""

    def __init__(self, store: Store, write: Peer, signer: TokenSigner, settings: Settings, ahead: timedelta) -> None:
        self._store, self._settings, self._ahead = store, settings, ahead
        self._acting = Acting(store, write, signer, settings, ahead)
        self._backlog: Mapping[str, Any] = {}

    async def run(self, background: Background) -> None:
        """Work until the service stops."""
        busy = False
        while not (
            background.stopping.is_set() if busy else await background.pause(self._settings.retention_poll_ms / 1000)
        ):
            try:
                busy = await self.round(background)
                await self._measure()
            except PamspecError as error:
                _log.info("a round ended early: %s", error.code, extra={"action": "sweep_refused", "code": error.code})
                busy = False
                continue
            background.recovered("sweeping")

    async def round(self, background: Background) -> bool:
        """A turn for each of the scopes that waited longest; whether one of them has more to do."""
        async with self._store.session() as conn:
            due = await scopes.scopes_due(conn, self._ahead, _SCOPES_AT_ONCE)
        busy = False
        for scope in due:
            busy |= await self._turn(scope, background)
            if background.stopping.is_set():
                break
        return busy

    async def _turn(self, scope: DueScope, background: Background) -> bool:
        """One scope's turn; whether more of it is left."""
        async with self._store.scoped([scope.scope_key]) as conn:
            held = await scopes.lease(conn, scope.scope_key, self._settings.retention_lease_s)
            rules = None if held is None else await scopes.rules(conn, scope.scope_key, self._ahead)
        if held is None or rules is None:
            return False
        try:
            more = await follow(self._store, scope, held, rules)
            return await self._acting.act(scope, rules, background) or more
        finally:
            async with self._store.scoped([scope.scope_key]) as conn:
                await scopes.renew(conn, scope.scope_key, 0)

    async def _measure(self) -> None:
        async with self._store.session() as conn:
            found = await scopes.backlog(conn, self._ahead, _COUNTED)
        metrics.RETENTION_DUE.set(found.objects)
        lag = 0.0 if found.oldest is None else _seconds_since(found.oldest, self._ahead)
        metrics.RETENTION_LAG.set(lag)
        self._backlog = {"due": found.objects, "lag_s": round(lag, 1), "scopes_behind": found.scopes_behind}

    def part(self) -> Part:
        """What waits, for readiness: a sweeper that is behind is where it should be."""
        return Part("sweeping", True, self._backlog, essential=False)


def _seconds_since(moment: datetime, ahead: timedelta) -> float:
    return max(0.0, (datetime.now(moment.tzinfo) + ahead - moment).total_seconds())
