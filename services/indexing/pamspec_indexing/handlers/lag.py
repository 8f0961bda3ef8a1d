"""How far the indexes are behind all ledgers: measured once a second, for metrics and readiness."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pamspec_common.consuming.intake import PASSING
from pamspec_common.service import Background, Part
from pamspec_common.telemetry import metrics
from pamspec_indexing.queries.indexes import fetch_lag
from pamspec_indexing.store import Store

_EVERY_S = 1.0


class Lag:
    """The last measurement of one process."""

    def __init__(self, store: Store, bound_s: float) -> None:
        self._store, self._bound_s = store, bound_s
        self._events = 0
        self._seconds = 0.0
        self._since: dict[int, float] = {}
        """When each scope was first seen behind: in one for evaluations entries have the times of its run."""

    async def run(self, background: Background) -> None:
        """Measure until the service stops."""
        while not background.stopping.is_set():
            try:
                async with self._store.session() as conn:
                    self._note(await fetch_lag(conn), asyncio.get_running_loop().time())
                metrics.INDEX_LAG.set(self._seconds)
                metrics.INDEX_LAG_EVENTS.set(self._events)
                background.recovered("lag")
            except PASSING:
                pass  # the part "store" says so
            await background.pause(_EVERY_S)

    def _note(self, behind: Sequence[tuple[int, int, float]], now: float) -> None:
        self._since = {key: self._since.get(key, now) for key, _, _ in behind}
        self._events = sum(missing for _, missing, _ in behind)
        self._seconds = max((min(age, now - self._since[key]) for key, _, age in behind), default=0.0)

    def part(self) -> Part:
        """What readiness tells; what lags is found later, and writes go on."""
        detail = {"events": self._events, "seconds": round(self._seconds, 3)}
        return Part("index_lag", self._seconds <= self._bound_s, detail, essential=False)
