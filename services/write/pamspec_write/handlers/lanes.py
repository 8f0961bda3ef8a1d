"""Lanes: commands that wait at the same moment travel in one group commit, without waiting for more.

Invariant: every command gets exactly one answer. A batch that fails as a whole is taken apart, so that one command's
failure never becomes its neighbour's; a batch whose COMMIT was lost is decided again, where the operation records show
what already happened.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

import asyncpg

from pamspec_common import telemetry
from pamspec_common.calls import Answer, refusal
from pamspec_common.errors import InternalError, PamspecError, ServiceUnavailable
from pamspec_common.postgres import Pool
from pamspec_write.handlers.commit import AuthorizationMoved, Committed, commit
from pamspec_write.model.commands import Work, scopes_of, size_of
from pamspec_write.settings import Settings

_log = logging.getLogger(__name__)

Wake = Callable[[int], Awaitable[None]]

_BUSY = (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError)
_LOST = (asyncpg.InterfaceError, asyncpg.PostgresConnectionError, asyncpg.OperatorInterventionError, OSError)
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.05, 1.0


class Waiting:
    """A piece of work and who waits for its answer."""

    __slots__ = ("future", "work")

    def __init__(self, work: Work) -> None:
        self.work = work
        self.future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def answer(self, answer: Answer) -> None:
        """Hand the answer over, once."""
        if not self.future.done():
            self.future.set_result(answer)


class Lanes:
    """The group committer of one process."""

    def __init__(self, pool: Pool, settings: Settings, wake: Wake) -> None:
        self._pool, self._settings, self._wake = pool, settings, wake
        self._queues: list[deque[Waiting]] = [deque() for _ in range(settings.lanes)]
        self._running: list[asyncio.Task[None] | None] = [None] * settings.lanes
        self._apart: set[asyncio.Task[None]] = set()
        self._pending: dict[bytes, int] = {}
        self._count = 0
        self._closed = False

    @property
    def waiting(self) -> int:
        """Commands without an answer yet."""
        return self._count

    def is_pending(self, operation_hash: bytes) -> bool:
        """Whether an operation waits or runs in this process."""
        return operation_hash in self._pending

    async def submit(self, work: Work) -> Answer:
        """The outcome of a command, once it is committed or refused."""
        if self._closed:
            raise ServiceUnavailable("The service is stopping; try again with the same key.")
        if self._count >= self._settings.queue_limit:
            raise ServiceUnavailable("Too many writes wait here; try again with the same key.")
        waiting = Waiting(work)
        self._count += 1
        self._pending[work.operation_hash] = self._pending.get(work.operation_hash, 0) + 1
        waiting.future.add_done_callback(lambda _: self._done(work))
        lane = work.scope.scope_key % len(self._queues)
        self._queues[lane].append(waiting)
        if self._running[lane] is None:
            self._running[lane] = asyncio.create_task(self._run(lane), name=f"lane-{lane}")
        return await asyncio.shield(waiting.future)

    def _done(self, work: Work) -> None:
        self._count -= 1
        left = self._pending[work.operation_hash] - 1
        if left:
            self._pending[work.operation_hash] = left
        else:
            del self._pending[work.operation_hash]

    async def _run(self, lane: int) -> None:
        queue = self._queues[lane]
        try:
            while queue:
                await self._group(self._take(queue), wait=False)
        finally:
            self._running[lane] = None

    def _take(self, queue: deque[Waiting]) -> list[Waiting]:
        """What waits, up to the limits of a group; one piece of work always fits."""
        group = [queue.popleft()]
        size = size_of(group[0].work)
        while queue and len(group) < self._settings.batch_limit:
            size += size_of(queue[0].work)
            if size > self._settings.batch_bytes:
                break
            group.append(queue.popleft())
        return group

    async def _group(self, group: Sequence[Waiting], *, wait: bool) -> None:
        """Commit a group; what cannot be committed together is taken apart."""
        started = time.monotonic()
        try:
            done = await self._attempts(group, wait=wait)
        except PamspecError as error:
            _answer_all(group, error)
            return
        except _BUSY:
            _answer_all(group, ServiceUnavailable("The scope is busy; try again with the same key."))
            return
        except Exception as error:
            await self._failed(group, error)
            return
        telemetry.BATCHES.add(1, {"result": "committed"})
        telemetry.BATCH_SECONDS.record(time.monotonic() - started)
        by_work = {id(waiting.work): waiting for waiting in group}
        for work, answer in done.answers:
            by_work[id(work)].answer(answer)
        for partition in done.partitions:
            await self._wake(partition)
        self._take_apart([by_work[id(work)] for work in done.left_out])

    async def _attempts(self, group: Sequence[Waiting], *, wait: bool) -> Committed:
        """Commit, deciding again after a lost connection or a moved authorization; then the last error."""
        works = [waiting.work for waiting in group]
        pause = _FIRST_PAUSE_S
        for attempt in range(1, self._settings.commit_attempts + 1):
            try:
                return await commit(self._pool, self._settings, works, wait=wait)
            except AuthorizationMoved:
                _log.info("authorization moved", extra={"action": "batch_decided_again"})
            except TimeoutError:
                raise ServiceUnavailable("The store is busy; try again with the same key.") from None
            except _LOST as error:
                _log.warning("store lost: %s", error, extra={"action": "commit_lost", "count": attempt})
                telemetry.BATCHES.add(1, {"result": "lost"})
                for work in works:
                    work.attempts += 1
                if attempt < self._settings.commit_attempts:
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, _LAST_PAUSE_S)
        raise ServiceUnavailable("The store does not answer; try again with the same key.")

    async def _failed(self, group: Sequence[Waiting], error: Exception) -> None:
        """An error that nobody expected: alone it is answered, in company each runs by itself."""
        telemetry.BATCHES.add(1, {"result": "failed"})
        if len(group) == 1:
            _log.error("command failed", exc_info=error, extra={"action": "command_failed"})
            _answer_all(group, InternalError())
            return
        _log.warning("batch taken apart: %s", type(error).__name__, extra={"action": "batch_apart"})
        for waiting in group:
            await self._group([waiting], wait=True)

    def _take_apart(self, left_out: Sequence[Waiting]) -> None:
        """Work whose scopes were not free goes on by itself, scope by scope, and waits for the locks."""
        by_scope: dict[tuple[int, ...], list[Waiting]] = {}
        for waiting in left_out:
            by_scope.setdefault(_scope_keys(waiting.work), []).append(waiting)
        for group in by_scope.values():
            task = asyncio.create_task(self._group(group, wait=True))
            self._apart.add(task)
            task.add_done_callback(self._apart.discard)

    async def close(self, timeout_s: float) -> None:
        """Take no more, finish what waits within the time, then refuse the rest."""
        self._closed = True
        tasks = [task for task in (*self._running, *self._apart) if task is not None]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=timeout_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        for queue in self._queues:
            _answer_all(list(queue), ServiceUnavailable("The service stopped; try again with the same key."))
            queue.clear()


def _scope_keys(work: Work) -> tuple[int, ...]:
    return tuple(sorted(ref.scope_key for ref in scopes_of(work)))


def _answer_all(group: Sequence[Waiting], error: PamspecError) -> None:
    for waiting in group:
        waiting.answer(refusal(error, waiting.work.operation_id))
