"""Reads by id that wait at the same moment travel to PostgreSQL together, across scopes and tenants.

Invariant: nothing waits for company. A group leaves as soon as one of the few connections is free and takes along all
that waits then, at most 256; each read gets its own answer, and a failure reaches exactly the reads of that group.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from pamspec_common.errors import PamspecError, ServiceUnavailable
from pamspec_common.postgres import Pool
from pamspec_query.connections import lent
from pamspec_query.queries.heads import HeadRow, read_heads

MAX_GROUP = 256


class _Waiting(NamedTuple):
    scope_key: int
    object_id: str
    future: asyncio.Future[HeadRow]


class GroupReader:
    """Reads heads by id."""

    def __init__(self, pool: Pool, *, connections: int, wait_ms: int, max_bytes: int) -> None:
        self._pool, self._connections, self._wait_ms, self._max_bytes = pool, connections, wait_ms, max_bytes
        self._waiting: deque[_Waiting] = deque()
        self._workers: set[asyncio.Task[None]] = set()
        self._serving = 0

    async def read(self, scope_key: int, object_id: str) -> HeadRow:
        """The head of an object, relationship or delegation; ServiceUnavailable when the store is away or busy."""
        future: asyncio.Future[HeadRow] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(scope_key, object_id, future))
        if self._serving < self._connections:
            self._start()
        return await future

    async def close(self) -> None:
        """Let the groups that are under way end."""
        await asyncio.gather(*self._workers, return_exceptions=True)

    def _start(self) -> None:
        self._serving += 1
        worker = asyncio.create_task(self._work(), name="group-reader")
        self._workers.add(worker)
        worker.add_done_callback(self._workers.discard)

    async def _work(self) -> None:
        """One connection, as long as something waits."""
        group: list[_Waiting] = []
        serving = True
        try:
            async with lent(self._pool, self._wait_ms) as conn:
                while self._waiting:
                    group = [self._waiting.popleft() for _ in range(min(len(self._waiting), MAX_GROUP))]
                    keys = [one.scope_key for one in group]
                    rows = await read_heads(conn, keys, [one.object_id for one in group], self._max_bytes)
                    self._answer(group, rows)
                    group = []
                serving = False
                self._serving -= 1
        except PamspecError as error:
            self._failed(group, error, serving)
        except BaseException:
            self._failed(group, ServiceUnavailable(), serving)
            raise

    def _answer(self, group: list[_Waiting], rows: list[HeadRow]) -> None:
        """Give out the answers; what was held back is first in the next group."""
        later = []
        for one, row in zip(group, rows, strict=True):
            if row.held_back and row.kind is not None:
                later.append(one)
            elif not one.future.done():
                one.future.set_result(row)
        self._waiting.extendleft(reversed(later))

    def _failed(self, group: list[_Waiting], error: PamspecError, serving: bool) -> None:
        """A group fails alone; without any connection all that wait are refused now instead of later."""
        if serving:
            self._serving -= 1
        _refuse(group, error)
        if self._waiting and self._serving == 0:
            if group:
                self._start()
            else:
                _refuse(self._waiting, error)
                self._waiting.clear()


def _refuse(waiting: Iterable[_Waiting], error: PamspecError) -> None:
    for one in waiting:
        if not one.future.done():
            one.future.set_exception(error)
