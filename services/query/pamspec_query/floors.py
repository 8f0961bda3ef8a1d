"""Version floors: readers that wait until a scope, and the indexes that they look into, are that far (K1 to K4).

Invariant: all waiting readers share one connection and one statement per look, and a floor that is not reached in time
is never answered from an older state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from pamspec_common.errors import PamspecError, ScopeNotFound
from pamspec_common.postgres import Pool, scoped
from pamspec_query.connections import lent
from pamspec_query.model.positions import Head, check_epoch, lagging, stale
from pamspec_query.queries.candidates import watermarks
from pamspec_query.queries.heads import scope_heads

Permit = Callable[[Head], Awaitable[object]]
"""Raises when the caller may not know where a scope stands."""


class Floors:
    """Waits for positions."""

    def __init__(self, pool: Pool, *, poll_ms: int, wait_ms: int) -> None:
        self._pool, self._poll_s, self._wait_ms = pool, poll_ms / 1000, wait_ms
        self._waiting: dict[asyncio.Future[Head], tuple[int, int, tuple[str, ...]]] = {}
        self._watch: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()

    async def reach(
        self,
        scope_key: int,
        min_sequence: int,
        wait_ms: int,
        epoch: int | None,
        permit: Permit,
        index_ids: tuple[str, ...] = (),
    ) -> Head:
        """The scope's head, at or beyond the floor as each of the indexes is; nothing is told of it to whom `permit`
        refuses.

        ServiceUnavailable (`stale_session`, or `index_lag` where only an index is) when it is below after `wait_ms`; at
        least one look is taken.
        """
        head = await self._look(scope_key)
        await permit(head)
        check_epoch(head, epoch)
        known = await self._known([scope_key], index_ids)
        if _reached(head, known.get(scope_key, {}), min_sequence, index_ids):
            return head
        if wait_ms > 0:
            future: asyncio.Future[Head] = asyncio.get_running_loop().create_future()
            self._waiting[future] = (scope_key, min_sequence, index_ids)
            self._changed.set()
            if self._watch is None or self._watch.done():
                self._watch = asyncio.create_task(self._run(), name="floors")
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    return await future
            except TimeoutError:
                pass
            finally:
                self._waiting.pop(future, None)
            head = await self._look(scope_key)
            known = await self._known([scope_key], index_ids)
            if _reached(head, known.get(scope_key, {}), min_sequence, index_ids):
                return head
        if head.last_seq < min_sequence:
            raise stale(head, min_sequence)
        raise lagging(head, min_sequence, known[scope_key])

    async def close(self) -> None:
        """Stop looking; whoever still waits gets the head's distance as its answer."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)

    async def _look(self, scope_key: int) -> Head:
        async with lent(self._pool, self._wait_ms) as conn, scoped(conn, [scope_key], read_only=True):
            found = (await scope_heads(conn, [scope_key])).get(scope_key)
        if found is None:
            raise ScopeNotFound
        return found

    async def _known(self, keys: Sequence[int], index_ids: Sequence[str]) -> dict[int, Mapping[str, int]]:
        """Up to where the indexes of scopes are complete."""
        if not index_ids:
            return {}
        async with lent(self._pool, self._wait_ms) as conn, scoped(conn, keys, read_only=True):
            return {key: marks for key, (_, marks) in (await watermarks(conn, keys, index_ids)).items()}

    async def _run(self) -> None:
        while self._waiting:
            self._changed.clear()
            try:
                await self._round()
            except PamspecError as error:
                for future in list(self._waiting):
                    if not future.done():
                        future.set_exception(error)
                return
            try:
                async with asyncio.timeout(self._poll_s):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _round(self) -> None:
        keys = sorted({key for key, _, _ in self._waiting.values()})
        async with lent(self._pool, self._wait_ms) as conn, scoped(conn, keys, read_only=True):
            found = await scope_heads(conn, keys)
        known = await self._known(keys, sorted({name for _, _, names in self._waiting.values() for name in names}))
        for future, (key, sequence, names) in list(self._waiting.items()):
            head = found.get(key)
            if head is not None and _reached(head, known.get(key, {}), sequence, names) and not future.done():
                future.set_result(head)


def _reached(head: Head, known: Mapping[str, int], sequence: int, index_ids: Sequence[str]) -> bool:
    return head.last_seq >= sequence and all(known.get(name, 0) >= sequence for name in index_ids)
