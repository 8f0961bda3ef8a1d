"""How far the indexes are behind all ledgers: measured once a second, for metrics and readiness."""

from __future__ import annotations

from pamspec_common import telemetry
from pamspec_common.consuming.intake import PASSING
from pamspec_common.service import Background, Part
from pamspec_indexing.queries.indexes import fetch_lag
from pamspec_indexing.store import Store

_EVERY_S = 1.0


class Lag:
    """The last measurement of one process."""

    def __init__(self, store: Store, bound_s: float) -> None:
        self._store, self._bound_s = store, bound_s
        self._events = 0
        self._seconds = 0.0

    async def run(self, background: Background) -> None:
        """Measure until the service stops."""
        while not background.stopping.is_set():
            try:
                async with self._store.session() as conn:
                    self._events, self._seconds = await fetch_lag(conn)
                telemetry.INDEX_LAG.set(self._seconds)
                telemetry.INDEX_LAG_EVENTS.set(self._events)
                background.recovered("lag")
            except PASSING:
                pass  # the part "store" says so
            await background.pause(_EVERY_S)

    def part(self) -> Part:
        """What readiness tells; what lags is found later, and writes go on."""
        detail = {"events": self._events, "seconds": round(self._seconds, 3)}
        return Part("index_lag", self._seconds <= self._bound_s, detail, essential=False)
