"""Lanes: commands that wait at the same moment travel in one group commit, without waiting for more.

Invariant: every command gets exactly one answer. A batch that fails as a whole is taken apart, so that one command's
failure never becomes its neighbour's; a batch whose COMMIT was lost is decided again, where the operation records show
what already happened. A scope that somebody holds leaves the lane: its commands wait together, and of all such scopes
only a few occupy a connection, so that the others go on.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence

import asyncpg
from opentelemetry.trace import SpanKind

from pamspec_common.authorization.rights import Authorizer
from pamspec_common.calls import Answer, refusal
from pamspec_common.errors import InternalError, PamspecError, ServiceUnavailable
from pamspec_common.postgres import Pool, distrust
from pamspec_common.quotas import quotas_of
from pamspec_common.telemetry import metrics, tracing
from pamspec_write.handlers.commit import AuthorizationMoved, Committed, SnapshotTaken, UsesMoved, commit
from pamspec_write.handlers.queues import Queue, Waiting
from pamspec_write.handlers.rules import Rules
from pamspec_write.handlers.storage import QuotasMoved, StorageQuotas
from pamspec_write.model.commands import Work, names_of, scopes_of, size_of, try_again
from pamspec_write.settings import Settings

_log = logging.getLogger(__name__)

Wake = Callable[[int], Awaitable[None]]

_BUSY = (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError)
_LOST = (
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.TooManyConnectionsError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.ReadOnlySQLTransactionError,
    OSError,
)
_FULL = (asyncpg.DiskFullError, asyncpg.OutOfMemoryError)
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.05, 1.0


class Lanes:
    """The group committer of one process."""

    def __init__(self, pool: Pool, settings: Settings, authorizer: Authorizer, wake: Wake) -> None:
        self._pool, self._settings, self._wake = pool, settings, wake
        self._authorizer = authorizer
        self._rules = Rules()
        self._storage = StorageQuotas(quotas_of(settings.quota_defaults))
        self._queues: list[Queue] = [Queue() for _ in range(settings.lanes)]
        self._running: list[asyncio.Task[None] | None] = [None] * settings.lanes
        self._apart: dict[tuple[int, ...], Queue] = {}
        self._apart_tasks: set[asyncio.Task[None]] = set()
        self._apart_slots = asyncio.Semaphore(max(1, (settings.pool_size - settings.lanes) // 2))
        self._pending: dict[bytes, int] = {}
        self._count = 0
        self._closed = False

    @property
    def waiting(self) -> int:
        """Commands without an answer yet."""
        return self._count

    def is_pending(self, name: bytes) -> bool:
        """Whether an operation of that id or key (their hash) waits or runs in this process."""
        return name in self._pending

    async def submit(self, work: Work) -> Answer:
        """The outcome of a command, once it is committed or refused."""
        if self._closed:
            raise ServiceUnavailable("The service is stopping; try again with the same key.")
        if self._count >= self._settings.queue_limit:
            raise ServiceUnavailable("Too many writes wait here; try again with the same key.")
        waiting = Waiting(work)
        self._count += 1
        names = names_of(work)
        for name in names:
            self._pending[name] = self._pending.get(name, 0) + 1
        waiting.future.add_done_callback(lambda _: self._done(names))
        self._enqueue(waiting)
        return await asyncio.shield(waiting.future)

    def _enqueue(self, waiting: Waiting) -> None:
        work = waiting.work
        apart = self._apart.get(_scope_keys(work)) if self._apart else None
        if apart is not None:
            apart.append(waiting)
            return
        lane = work.scope.scope_key % len(self._queues)
        self._queues[lane].append(waiting)
        if self._running[lane] is None:
            self._running[lane] = asyncio.create_task(self._run(lane), name=f"lane-{lane}")

    def _done(self, names: Sequence[bytes]) -> None:
        self._count -= 1
        for name in names:
            left = self._pending[name] - 1
            if left:
                self._pending[name] = left
            else:
                del self._pending[name]

    async def _run(self, lane: int) -> None:
        queue = self._queues[lane]
        try:
            while queue:
                await self._group(self._take(queue), wait=False)
        finally:
            self._running[lane] = None

    def _take(self, queue: Queue) -> list[Waiting]:
        """What waits, up to the limits of a group; one piece of work always fits."""
        group = [queue.popleft()]
        size = size_of(group[0].work)
        while queue and len(group) < self._settings.batch_limit:
            size += size_of(queue.first.work)
            if size > self._settings.batch_bytes:
                break
            group.append(queue.popleft())
        return group

    async def _group(self, group: Sequence[Waiting], *, wait: bool) -> None:
        """Commit a group; what cannot be committed together is taken apart."""
        started = time.monotonic()
        try:
            if tracing.enabled:
                with tracing.batched("write", "COMMIT", SpanKind.CLIENT, _traces(group), _committing(group)):
                    done = await self._attempts(group, wait=wait)
            else:
                done = await self._attempts(group, wait=wait)
        except asyncio.CancelledError:
            _answer_all(group, ServiceUnavailable("The service stopped; try again with the same key."))
            raise
        except PamspecError as error:
            _answer_all(group, error)
            return
        except _BUSY:
            _answer_all(group, ServiceUnavailable("The scope is busy; try again with the same key."))
            return
        except Exception as error:
            await self._failed(group, error)
            return
        metrics.BATCHES.add(1, {"result": "committed"})
        metrics.BATCH_SECONDS.observe(time.monotonic() - started)
        metrics.BATCH_COMMANDS.observe(len(done.answers))
        for partition, entries in done.entries.items():
            metrics.LEDGER_ENTRIES.add(str(partition), amount=entries)
        by_work = {id(waiting.work): waiting for waiting in group}
        for work, answer in done.answers:
            by_work[id(work)].answer(answer)
        for work in done.left_out:
            self._set_apart(by_work[id(work)])
        for partition in done.entries:
            await self._wake(partition)

    async def _attempts(self, group: Sequence[Waiting], *, wait: bool) -> Committed:
        """Commit, deciding again after a lost connection or a moved authorization; then the last error."""
        works = [waiting.work for waiting in group]
        pause = _FIRST_PAUSE_S
        for attempt in range(1, self._settings.commit_attempts + 1):
            try:
                return await commit(
                    self._pool, self._settings, self._rules, self._authorizer, self._storage, works, wait=wait
                )
            except (AuthorizationMoved, QuotasMoved, SnapshotTaken, UsesMoved) as moved:
                _log.info("decided too early: %s", type(moved).__name__, extra={"action": "batch_decided_again"})
            except TimeoutError:
                raise ServiceUnavailable("The store is busy; try again with the same key.") from None
            except asyncpg.QueryCanceledError:
                raise ServiceUnavailable("The store took too long; try again with the same key.") from None
            except _FULL:
                raise ServiceUnavailable("The store is out of space; the operator must act.", retry_after=30) from None
            except _LOST as error:
                _log.warning("store lost: %s", error, extra={"action": "commit_lost", "count": attempt})
                metrics.BATCHES.add(1, {"result": "lost"})
                await distrust(self._pool)
                for work in works:
                    try_again(work)
                if attempt < self._settings.commit_attempts:
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, _LAST_PAUSE_S)
        raise ServiceUnavailable("The store does not answer; try again with the same key.")

    async def _failed(self, group: Sequence[Waiting], error: Exception) -> None:
        """An error that nobody expected: alone it is answered, in company each runs by itself."""
        metrics.BATCHES.add(1, {"result": "failed"})
        if len(group) == 1:
            _log.error("command failed", exc_info=error, extra={"action": "command_failed"})
            _answer_all(group, InternalError())
            return
        _log.warning("batch taken apart: %s", type(error).__name__, extra={"action": "batch_apart"})
        for waiting in group:
            await self._group([waiting], wait=True)

    def _set_apart(self, waiting: Waiting) -> None:
        """Work whose scopes were not free waits for the locks, together with all that comes for the same scopes."""
        keys = _scope_keys(waiting.work)
        queue = self._apart.get(keys)
        if queue is None:
            queue = self._apart[keys] = Queue()
            task = asyncio.create_task(self._run_apart(keys, queue), name=f"apart-{keys[0]}")
            self._apart_tasks.add(task)
            task.add_done_callback(self._apart_tasks.discard)
        queue.append(waiting)

    async def _run_apart(self, keys: tuple[int, ...], queue: Queue) -> None:
        busy = ServiceUnavailable("The scope is busy; try again with the same key.")
        try:
            while queue:
                try:
                    async with asyncio.timeout(self._settings.lock_timeout_ms / 1000):
                        await self._apart_slots.acquire()
                except TimeoutError:
                    _answer_all(self._take(queue), busy)
                    continue
                try:
                    await self._group(self._take(queue), wait=True)
                finally:
                    self._apart_slots.release()
        finally:
            del self._apart[keys]
            _answer_all(queue, ServiceUnavailable("The service stopped; try again with the same key."))

    async def close(self, timeout_s: float) -> None:
        """Take no more, finish what waits within the time, then refuse the rest."""
        self._closed = True
        end = asyncio.get_running_loop().time() + timeout_s
        while tasks := [task for task in (*self._running, *self._apart_tasks) if task is not None]:
            _, late = await asyncio.wait(tasks, timeout=max(0.0, end - asyncio.get_running_loop().time()))
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        for queue in self._queues:
            _answer_all(queue, ServiceUnavailable("The service stopped; try again with the same key."))
            queue.clear()


def _scope_keys(work: Work) -> tuple[int, ...]:
    return tuple(sorted(ref.scope_key for ref in scopes_of(work)))


def _traces(group: Sequence[Waiting]) -> list[str | None]:
    return [waiting.work.traceparent for waiting in group]


def _committing(group: Sequence[Waiting]) -> tracing.Attributes:
    return {
        "db.system.name": "postgresql",
        "db.operation.name": "COMMIT",
        "db.operation.batch.size": len(group),
    }


def _answer_all(group: Iterable[Waiting], error: PamspecError) -> None:
    for waiting in group:
        waiting.answer(refusal(error, waiting.work.operation_id))
