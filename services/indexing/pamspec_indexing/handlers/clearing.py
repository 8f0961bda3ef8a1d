"""Clearing away what is indexed of deleted scopes.

The deletion of a scope makes no entry for each object, so it is found in its own row. Each step holds the lock of the
scope's consumer: what an entry from before the deletion did is there by then, and one that comes later finds no head.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pamspec_common.consuming.intake import PASSING
from pamspec_common.service import Background
from pamspec_indexing.handlers.entries import Projection
from pamspec_indexing.queries import clearing, objects
from pamspec_indexing.store import Store

_log = logging.getLogger(__name__)

_AT_ONCE = 100


class Clearing:
    """The job of one process; several do no harm to one another."""

    def __init__(self, store: Store, projections: Sequence[Projection], every_s: float) -> None:
        self._store, self._projections, self._every_s = store, projections, every_s

    async def run(self, background: Background) -> None:
        """Look for deleted scopes until the service stops."""
        while not background.stopping.is_set():
            try:
                while await self.step():
                    continue
                background.recovered("clearing")
            except PASSING as error:
                _log.info("cleared later: %s", error, extra={"action": "clearing_waits"})
            await background.pause(self._every_s)

    async def step(self) -> bool:
        """Clear some scopes, or a part of one; whether there may be more."""
        async with self._store.session() as conn:
            due = await clearing.fetch_due(conn, _AT_ONCE)
        for key in due:
            while await self._clear(key):
                continue
        return len(due) == _AT_ONCE

    async def _clear(self, key: int) -> bool:
        async with self._store.scoped([key]) as conn:
            await clearing.lock(conn, key)
            for projection in self._projections:
                if await projection.clear(conn, key):
                    return True
            await objects.forget(conn, key)
            await clearing.note_cleared(conn, key)
        return False
