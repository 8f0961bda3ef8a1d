"""The bound on the outbox: how much waits for the bus, sampled, so that writes stop before the disk is full."""

from __future__ import annotations

import logging

from pamspec_common.errors import ServiceUnavailable
from pamspec_common.postgres import Pool, connection
from pamspec_common.service import Background, Part
from pamspec_common.telemetry import metrics
from pamspec_write.queries.outbox import OUTBOX_DEPTH_SQL
from pamspec_write.settings import Settings

SAMPLE_S = 1.0
_log = logging.getLogger(__name__)


class OutboxBound:
    """The last sample of the outbox."""

    def __init__(self, pool: Pool, settings: Settings) -> None:
        self._pool, self._settings = pool, settings
        self.depth, self.age_s, self.reachable = 0, 0.0, True

    @property
    def full(self) -> bool:
        """Whether writes must wait until the outbox has drained."""
        return self.depth >= self._settings.outbox_limit

    async def sample(self) -> None:
        """Count what waits, no further than the bound."""
        async with connection(self._pool, self._settings.pool_wait_ms) as conn:
            row = await conn.fetchrow(OUTBOX_DEPTH_SQL, self._settings.outbox_limit)
        assert row is not None
        self.depth, self.age_s = row["depth"], row["age"]
        metrics.WRITE_OUTBOX_DEPTH.set(self.depth)
        metrics.WRITE_OUTBOX_AGE.set(self.age_s)

    async def watch(self, background: Background) -> None:
        """Sample until the service stops."""
        while not await background.pause(SAMPLE_S):
            try:
                await self.sample()
                self.reachable = True
            except ServiceUnavailable as error:
                self.reachable = False
                _log.warning("outbox not sampled: %s", error, extra={"action": "outbox_unknown"})

    def parts(self) -> list[Part]:
        """The readiness of the store and of the outbox: writes go on while the bus is away, up to the bound."""
        lagging = self.depth >= self._settings.outbox_alert
        waits = {"depth": self.depth, "age_s": round(self.age_s, 3), "lagging": lagging}
        return [Part("store", self.reachable), Part("outbox", not self.full, waits)]
