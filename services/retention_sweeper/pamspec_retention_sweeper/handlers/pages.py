"""Pages of what was erased: written anew before their deadline.

Several processes never do the same work twice, because the store looks again, under its lock, at what is owed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from pamspec_common.errors import PamspecError
from pamspec_common.service import Background, Part
from pamspec_retention_sweeper.queries import pages
from pamspec_retention_sweeper.queries.pages import Owed
from pamspec_retention_sweeper.settings import Settings
from pamspec_retention_sweeper.store import Store

_log = logging.getLogger(__name__)


class Pages:
    """Rewrites what is owed, one relation after another, and says what it can't rewrite in time."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store, self._settings = store, settings
        self._owed: list[Owed] = []
        self._problem: str | None = None

    async def run(self, background: Background) -> None:
        """Until the service stops."""
        while not background.stopping.is_set():
            try:
                await self.sweep()
                self._problem = None
            except PamspecError as error:
                self._problem = error.message
                _log.warning("pages not looked at: %s", error.message, extra={"action": "pages_failed"})
            await background.pause(self._settings.page_poll_s)

    async def sweep(self) -> list[str]:
        """Rewrite every relation whose time has come, and answer their names."""
        await self._note_derived()
        self._owed = await self._due()
        done = [one.relation for one in _ripe(self._owed, self._settings) if await self._rewritten(one)]
        if done:
            self._owed = await self._due()
        return done

    def readiness(self) -> Part:
        """What is owed; what is overdue is said, and keeps nobody from work."""
        late = [one.relation for one in self._owed if one.owed_s > self._settings.page_deadline_s]
        large = [one.relation for one in self._owed if one.bytes > self._settings.page_rewrite_bytes]
        said: dict[str, Any] = {"owed": len(self._owed)}
        said |= {"owed_s": round(max(one.owed_s for one in self._owed))} if self._owed else {}
        said |= {"overdue": late} if late else {}
        said |= {"too_large": large} if large else {}
        said |= {"error": self._problem} if self._problem else {}
        return Part("page_bytes", not late, said, essential=False)

    async def _note_derived(self) -> None:
        async with self._store.session() as conn:
            scopes = await pages.underived(conn)
        if scopes:
            async with self._store.scoped(scopes) as conn:
                await pages.note_derived(conn, scopes)

    async def _due(self) -> list[Owed]:
        async with self._store.session() as conn:
            return await pages.due(conn)

    async def _rewritten(self, owed: Owed) -> bool:
        try:
            async with self._store.scoped(()) as conn:
                held_ms = await pages.rewrite(conn, owed.relation)
        except TimeoutError:
            return False
        if held_ms is None:
            return False
        _log.info(
            "%s written anew in %.0f ms for %d erasures",
            owed.relation,
            held_ms,
            owed.erasures,
            extra={"action": "pages_rewritten"},
        )
        return True


def _ripe(owed: Sequence[Owed], settings: Settings) -> list[Owed]:
    """What has waited for others long enough, and holds nobody up for longer than the operator allows."""
    return [
        one for one in owed if one.owed_s >= settings.page_rewrite_after_s and one.bytes <= settings.page_rewrite_bytes
    ]
