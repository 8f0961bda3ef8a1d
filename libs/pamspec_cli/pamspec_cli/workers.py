"""Verification in several processes: segments of a long ledger at the same time, over connections of their own."""

import asyncio
import multiprocessing
import os
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager

import asyncpg
import uvloop

from pamspec_cli.connection import Misused
from pamspec_cli.sealed import ring_of_environment
from pamspec_common.postgres import scoped
from pamspec_common.sealing import opening
from pamspec_common.verification.segments import Segment
from pamspec_common.verification.walk import Part, Runner, check

MOST = 8
_AHEAD = 2
"""Segments that wait for each worker, so that none idles."""


def default_jobs() -> int:
    """A process for each core, up to a bound."""
    return min(MOST, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


@contextmanager
def runner(dsn: str, jobs: int) -> Iterator[Runner | None]:
    """Checks segments in this many processes, started at the first use; None for one job."""
    if jobs < 2:
        yield None
        return
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _connect, (dsn,))

    async def run(parts: Sequence[Part]) -> AsyncIterator[Segment]:
        waiting: deque[Future[Segment]] = deque()
        left = iter(parts)
        try:
            for part in left:
                waiting.append(pool.submit(_check, part))
                if len(waiting) >= jobs * _AHEAD:
                    yield await asyncio.wrap_future(waiting.popleft())
            while waiting:
                yield await asyncio.wrap_future(waiting.popleft())
        except BrokenProcessPool:
            raise Misused("a process of the verification has ended: try again, or with  --jobs 1") from None
        finally:
            for future in waiting:
                future.cancel()

    try:
        yield run
    finally:
        pool.shutdown(cancel_futures=True)


class _Worker:
    """What a process keeps between segments."""

    def __init__(self, dsn: str) -> None:
        self.loop = uvloop.new_event_loop()
        self.connection: asyncpg.Connection[asyncpg.Record] = self.loop.run_until_complete(
            asyncpg.connect(dsn, record_class=opening(ring_of_environment()))
        )

    async def check(self, part: Part) -> Segment:
        """Check a segment."""
        async with scoped(self.connection, [part.scope_key]):
            return await check(self.connection, part)


_workers: list[_Worker] = []


def _connect(dsn: str) -> None:
    _workers.append(_Worker(dsn))


def _check(part: Part) -> Segment:
    worker = _workers[0]
    return worker.loop.run_until_complete(worker.check(part))
