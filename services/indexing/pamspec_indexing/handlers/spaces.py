"""The spaces of scopes: made online beside the old, cut over, and let go.

Invariants: a shadow takes part in all that is written from the moment it is noted; what was there before is put into
the queue doc by doc, and how far that is stands in its row, so whoever dies goes on there. It becomes current in one
statement, once all were put in and none waits, and the same statement lets the old space go.
"""

from __future__ import annotations

import logging

from pamspec_common.embedding_spaces import index_id
from pamspec_common.errors import PamspecError
from pamspec_common.service import Background
from pamspec_indexing.queries import embedding, putting, vectors
from pamspec_indexing.store import Store

_log = logging.getLogger(__name__)
_AT_ONCE = 64
_DOCS = 500
_FULL = 2000
_CLEARED = 2000


class Spaces:
    """The job that brings scopes from one space to another."""

    def __init__(self, store: Store, own: str | None, period_s: float) -> None:
        self._store, self._own, self._period_s = store, own, period_s

    async def run(self, background: Background) -> None:
        """Work until the service stops."""
        if self._own is not None:
            await self.adopt()
        while not await background.pause(self._period_s):
            try:
                while await self.step() and not background.stopping.is_set():
                    continue
                background.recovered("spaces")
            except PamspecError as error:
                _log.info("spaces later: %s", error.message, extra={"action": "spaces_wait"})

    async def adopt(self) -> None:
        """Scopes that are not embedded into the service's own space are, from now on and what they hold already."""
        assert self._own is not None
        async with self._store.session() as conn:
            await conn.execute(embedding.ADOPT_SQL, self._own)

    async def step(self) -> bool:
        """One bounded piece for each scope that is on its way; whether to go on at once."""
        async with self._store.session() as conn:
            due = await conn.fetch(embedding.BACKFILLS_SQL, _AT_ONCE)
            retired = await conn.fetch(putting.RETIRED_SQL, _AT_ONCE)
        more = False
        for scope_key, space_id, after, state in due:
            async with self._store.scoped([scope_key]) as conn:
                waiting = await conn.fetchval(embedding.WAITING_SQL, scope_key, space_id, _FULL)
                if after is not None and waiting < _FULL:
                    await conn.execute(embedding.BACKFILL_SQL, scope_key, space_id, after, _DOCS)
                    more = True
                elif after is None and waiting == 0 and state == "shadow":
                    await conn.execute(embedding.CUT_OVER_SQL, scope_key, space_id)
                    more = True
                await vectors.move_watermarks(conn, [scope_key])
        for scope_key, space_id in retired:
            more = await self._clear(scope_key, space_id) or more
        return more

    async def _clear(self, scope_key: int, space_id: str) -> bool:
        async with self._store.scoped([scope_key]) as conn:
            space = await vectors.fetch_space(conn, scope_key, space_id)
            if space is not None and await vectors.clear(conn, scope_key, space.key, _CLEARED):
                return True
            await conn.execute(putting.LET_GO_SQL, scope_key, space_id, index_id(space_id))
        return False
