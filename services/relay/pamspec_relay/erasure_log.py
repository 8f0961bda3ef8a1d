"""The background task of the erasure log: what was erased is told outside PostgreSQL, by ids alone.

Any number of relays share the work: rows are locked while they are told, and noted in the same transaction. Whoever is
killed between telling and noting leaves a repetition, which readers drop by its id.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

import asyncpg
import nats.errors
from nats.aio.client import Client

from pamspec_common.erasure_log import Erased, ErasureFiles, ErasureStream, LogEntry
from pamspec_common.instants import wire
from pamspec_common.postgres import Connection, Pool
from pamspec_common.service import Background, Part
from pamspec_common.streams import StreamIncomplete, StreamRefused
from pamspec_common.telemetry import metrics
from pamspec_relay.queries import erasures as queries
from pamspec_relay.queries.erasures import Unlogged, UnloggedScope
from pamspec_relay.settings import Settings

_log = logging.getLogger(__name__)

AT_ONCE = 500
_LONGEST_PAUSE_S = 60.0
_AWAY = (
    nats.errors.Error,
    StreamRefused,
    StreamIncomplete,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    TimeoutError,
    OSError,
)
_KINDS = {"d": "delete", "r": "redact"}


class ErasureLogging:
    """Logs erasures on the bus, and in files where a directory is named."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._files = None if settings.checkpoint_dir is None else ErasureFiles(settings.checkpoint_dir)
        self._stream: ErasureStream | None = None
        self._look_at = 0.0
        self._failed = ""

    async def run(self, pool: Pool, client: Callable[[], Client | None], background: Background) -> None:
        """Rounds until the stop; a round that fails is followed by another."""
        usual_s = self._settings.erasure_log_ms / 1000
        pause_s = usual_s
        while not background.stopping.is_set():
            more = False
            try:
                more = await self._round(pool, client())
                self._failed, pause_s = "", usual_s
            except _AWAY as error:
                self._stream = None
                self._is_failing(f"{type(error).__name__}: {error}")
                # What one place took before the other failed is told there again.
                pause_s = min(pause_s * 2, max(usual_s, _LONGEST_PAUSE_S))
            if not more:
                await background.pause(pause_s)

    def part(self) -> Part:
        """What readiness says; nothing here keeps the service from its work."""
        return Part("erasure_log", not self._failed, {"reason": self._failed} if self._failed else {}, essential=False)

    async def _round(self, pool: Pool, client: Client | None) -> bool:
        """Log what waits, up to a bound; whether there may be more."""
        if client is None or not client.is_connected:
            return False
        async with pool.acquire() as conn:
            stream = await self._opened(conn, client)
            async with conn.transaction():
                rows = await queries.unlogged(conn, AT_ONCE)
                scopes = await queries.unlogged_scopes(conn, AT_ONCE)
                if not rows and not scopes:
                    return False
                entries = entries_of(rows, scopes)
                await stream.put(entries)
                if self._files is not None and entries:
                    await asyncio.to_thread(self._files.append, entries)
                await queries.note(conn, rows, scopes)
        return max(len(rows), len(scopes)) == AT_ONCE

    async def _opened(self, conn: Connection, client: Client) -> ErasureStream:
        """The stream, looked at now and then; one that was made anew gets all that the store knows of once more."""
        if self._stream is None or time.monotonic() >= self._look_at:
            stream = ErasureStream(client, self._settings.relay_publish_timeout_ms / 1000)
            created = (await stream.ensure(self._settings.stream_replicas)).info.created
            known, now = await queries.known_stream(conn)
            if known != created:
                await queries.begin_stream(conn, created, now)
            self._stream = stream
            self._look_at = time.monotonic() + self._settings.relay_stream_check_ms / 1000
        return self._stream

    def _is_failing(self, reason: str) -> None:
        if reason != self._failed:
            _log.warning("erasures not logged: %s", reason, extra={"action": "erasures_not_logged"})
            metrics.RELAY_ALARMS.add(1, {"kind": "erasure_log"})
        self._failed = reason


def entries_of(rows: Sequence[Unlogged], scopes: Sequence[UnloggedScope]) -> list[LogEntry]:
    """One entry for each scope with erasures, and one for each deleted scope."""
    of: dict[int, LogEntry] = {}
    for row in rows:
        if row.kind not in _KINDS or row.subject_id is None:
            continue
        entry = of.setdefault(row.scope_key, LogEntry(row.tenant_id, row.scope_id, row.ledger_id.hex()))
        is_relationship = row.subject_kind == "r"
        entry.erasures.append(
            Erased(
                erasure_id=row.erasure_id,
                kind=_KINDS[row.kind],
                position=row.position,
                erased=list(zip(row.erased_from, row.erased_to, strict=True)),
                at=wire(row.opened_at),
                object_id=None if is_relationship else row.subject_id,
                relationship_id=row.subject_id if is_relationship else None,
            )
        )
    deleted = [LogEntry(row.tenant_id, row.scope_id, row.ledger_id.hex(), [], wire(row.requested_at)) for row in scopes]
    return [*of.values(), *deleted]
