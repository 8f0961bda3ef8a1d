"""Revocations reach this gateway: one number in the database tells that credentials open less than they did.

Invariant: what was remembered before the number moved is forgotten within one interval; when the number can't be read
for longer than `blind_s`, nothing is remembered from then on until it can.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

import asyncpg

from pamspec_common.errors import PamspecError
from pamspec_common.postgres import Pool, connection
from pamspec_common.service import Background
from pamspec_gateway.queries import select_epoch

_log = logging.getLogger(__name__)


class CredentialWatch:
    """Calls `moved` when the credential epoch has moved, and `unknown` at every look that can't tell for too long."""

    def __init__(
        self,
        pool: Pool,
        moved: Callable[[], None],
        unknown: Callable[[], None],
        *,
        every_s: float,
        blind_s: float,
        wait_ms: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pool, self._moved, self._unknown, self._clock = pool, moved, unknown, clock
        self._every_s, self._blind_s, self._wait_ms = every_s, blind_s, wait_ms
        self._epoch: int | None = None
        self._seen_at = clock()

    async def run(self, background: Background) -> None:
        """Look until the service stops."""
        while not await background.pause(self._every_s):
            await self.look()

    async def look(self) -> None:
        """Compare once."""
        began = self._clock()
        try:
            async with asyncio.timeout(self._blind_s), connection(self._pool, self._wait_ms) as conn:
                epoch = await select_epoch(conn)
        except (PamspecError, asyncpg.PostgresError, TimeoutError) as error:
            self._cannot_tell(error)
            return
        if epoch != self._epoch:
            self._epoch = epoch
            self._moved()
        self._seen_at = began

    def _cannot_tell(self, error: Exception) -> None:
        if self._clock() - self._seen_at <= self._blind_s:
            return
        if self._epoch is not None:
            extra = {"action": "credential_epoch_unknown"}
            _log.warning("revocations can't be told, so no credential is remembered: %s", error, extra=extra)
        self._epoch = None
        self._unknown()
