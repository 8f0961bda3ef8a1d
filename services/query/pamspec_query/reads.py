"""Reads of objects by their id, gathered here and noted together for rules that ask when something was last read.

Invariant: a read costs no write and never waits; what is gathered is bounded, the newest read of an object is its
time, every one counts, and a process that is killed loses what it gathered since the last note.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from pamspec_common.errors import PamspecError
from pamspec_common.postgres import Pool
from pamspec_common.service import Background
from pamspec_query.connections import lent

_log = logging.getLogger(__name__)

NOTE_READS_SQL = "SELECT retention.note_reads($1::bigint[], $2::text[], $3::timestamptz[], $4::boolean[], $5::bigint[])"
COUNTING_SQL = "SELECT retention.counting($1::bigint[])"

_HELD = 50_000
"""So many objects are gathered at most; beyond it reads are not counted until the next note."""


class Reads:
    """The reads of one process."""

    def __init__(self, pool: Pool, every_s: float, wait_ms: int) -> None:
        self._pool, self._every_s, self._wait_ms = pool, every_s, wait_ms
        self._gathered: dict[tuple[int, str], tuple[datetime, bool, int]] = {}

    def note(self, scope_key: int, object_id: str, *, lapsed: bool) -> None:
        """An object was read now; `lapsed` when its retention is expired, so that it is looked at again soon."""
        before = self._gathered.get((scope_key, object_id))
        if before is not None or len(self._gathered) < _HELD:
            self._gathered[scope_key, object_id] = (datetime.now(UTC), lapsed, 1 if before is None else before[2] + 1)

    async def run(self, background: Background) -> None:
        """Note what was gathered until the service stops, and once more then."""
        while not await background.pause(self._every_s):
            await self._flush()
            background.recovered("reads")
        await self._flush()

    async def _flush(self) -> None:
        gathered, self._gathered = self._gathered, {}
        if not gathered:
            return
        try:
            async with lent(self._pool, self._wait_ms) as conn:
                asking = set(await conn.fetchval(COUNTING_SQL, sorted({key for key, _ in gathered})) or ())
                rows = [(*name, *told) for name, told in gathered.items() if name[0] in asking]
                if rows:
                    await conn.execute(NOTE_READS_SQL, *map(list, zip(*rows, strict=True)))
        except PamspecError as error:
            _log.info("reads wait to be noted: %s", error.code, extra={"action": "reads_wait", "code": error.code})
            self._take_back(gathered)

    def _take_back(self, gathered: dict[tuple[int, str], tuple[datetime, bool, int]]) -> None:
        """Gather once more what could not be noted, beside what was read since."""
        for name, (at, lapsed, count) in gathered.items():
            since = self._gathered.get(name)
            self._gathered[name] = (at, lapsed, count) if since is None else (*since[:2], since[2] + count)
