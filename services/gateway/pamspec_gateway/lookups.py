"""What many callers ask the database at the same moment, in one statement.

Invariant: a question that waits is asked once, however many wait for its answer; what waits is bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Generic, TypeVar

from pamspec_common.errors import InternalError, PamspecError, ServiceUnavailable
from pamspec_common.postgres import Connection, Pool, connection

_TOGETHER = 1000
_WAITING = 5000

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Lookups(Generic[K, V]):
    """Finds values by keys with a statement that takes many keys."""

    def __init__(
        self, pool: Pool, wait_ms: int, select: Callable[[Connection, Sequence[K]], Awaitable[Mapping[K, V]]]
    ) -> None:
        self._pool, self._wait_ms, self._select = pool, wait_ms, select
        self._waiting: dict[K, asyncio.Future[V | PamspecError | None]] = {}
        self._task: asyncio.Task[None] | None = None
        self.statements = 0
        """How often the database was asked."""

    async def find(self, key: K) -> V | None:
        """The value of a key, or None; ServiceUnavailable when the database does not answer."""
        future = self._waiting.get(key)
        if future is None:
            if len(self._waiting) >= _WAITING:
                raise ServiceUnavailable("Too many new callers at once; try again shortly.")
            future = asyncio.get_running_loop().create_future()
            self._waiting[key] = future
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._look_up())
        outcome = await asyncio.shield(future)
        if isinstance(outcome, PamspecError):
            raise outcome
        return outcome

    async def _look_up(self) -> None:
        while self._waiting:
            keys = list(self._waiting)[:_TOGETHER]
            found: Mapping[K, V] = {}
            failed: PamspecError | None = InternalError()
            self.statements += 1
            try:
                async with connection(self._pool, self._wait_ms) as conn:
                    found = await self._select(conn, keys)
                failed = None
            except PamspecError as error:
                failed = error
            finally:
                for key in keys:
                    self._waiting.pop(key).set_result(failed or found.get(key))

    async def close(self) -> None:
        """End the lookup that is under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
