"""The embedding loop: takes what waits, has vectors made, and stores them if nothing has changed meanwhile.

Invariants: no connection is held while vectors are made. A vector is stored in a transaction that holds the row of its
object and finds the version in it that the text was of; otherwise nothing is stored, and what came later waits by
itself. Whoever dies in between leaves a taken row that is free again after its lease: the same end, later. What is made
is kept, also where the rest is not: however slow an embedder is, every turn that makes an object whole gets on.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from pamspec_common.analysis import texts_of
from pamspec_common.embedding_spaces import EmbeddingSpace
from pamspec_common.errors import PamspecError
from pamspec_common.service import Background
from pamspec_indexing.embedding.chunks import Chunks, chunks
from pamspec_indexing.embedding.embedder import Embedder, Vector
from pamspec_indexing.handlers.vectors import digest_of
from pamspec_indexing.queries import embedding, vectors
from pamspec_indexing.queries.embedding import Waiting
from pamspec_indexing.queries.vectors import Stored, literal
from pamspec_indexing.store import Store

_log = logging.getLogger(__name__)
_LEASE_S = 120.0
_WITHIN_S = 90.0
_TURN_S = 30.0
"""After so long a turn ends with the object that it is at, and the rest is free again."""
_LONGEST_PAUSE_S = 60.0

Register = Callable[[int, EmbeddingSpace], Awaitable[bool]]
"""Describe a space to the tenant of a scope; whether it is described now."""


class Embedding:
    """The loop of one embedder."""

    def __init__(
        self,
        store: Store,
        embedder: Embedder,
        register: Register,
        batch: int,
        poll_s: float,
        turn_s: float = _TURN_S,
    ) -> None:
        self._store, self._embedder, self._register = store, embedder, register
        self._batch, self._poll_s, self._turn_s = batch, poll_s, turn_s
        self._space_id = embedder.space.embedding_space_id
        self._after = 0
        self.work = asyncio.Event()

    async def run(self, background: Background) -> None:
        """Embed what waits until the service stops."""
        while not background.stopping.is_set():
            self.work.clear()
            if not await self.step():
                await self._rest(background)

    async def step(self) -> bool:
        """Embed some of what waits; whether there was any."""
        async with self._store.session() as conn:
            taken = await embedding.claim(conn, self._space_id, self._after, self._batch, _LEASE_S)
            if not taken and self._after:
                self._after = 0
                taken = await embedding.claim(conn, self._space_id, 0, self._batch, _LEASE_S)
        if not taken:
            return False
        self._after = max(one.scope_key for one in taken) if len(taken) == self._batch else 0
        try:
            await self._embed(taken)
        except PamspecError as error:
            pause = min(_LONGEST_PAUSE_S, 0.5 * 2 ** min(10, min(one.attempts for one in taken)))
            _log.info("not embedded: %s", error.message, extra={"action": "embedding_put_off", "objects": len(taken)})
            async with self._store.session() as conn:
                await embedding.put_off(conn, self._space_id, taken, max(pause, error.retry_after or 0))
        return True

    async def _embed(self, taken: Sequence[Waiting]) -> None:
        async with self._store.scoped({one.scope_key for one in taken}) as conn:
            contents = await embedding.contents(conn, taken)
            spaces = {one.scope_key: await vectors.fetch_space(conn, one.scope_key, self._space_id) for one in taken}
        taken = await self._described(taken, {key for key, space in spaces.items() if space is None})
        pieces = {
            (one.scope_key, one.doc): chunks(texts_of(content))
            for one in taken
            if (content := contents.get((one.scope_key, one.doc))) is not None
        }
        made: dict[tuple[int, int], list[Vector]] = {place: [] for place in pieces}
        failed: PamspecError | None = None
        try:
            await self._fill(made, pieces)
        except PamspecError as error:
            failed = error
        whole = [one for one in taken if _is_whole((one.scope_key, one.doc), made, pieces)]
        if whole:
            await self._keep(whole, contents, pieces, made)
        if failed is not None:
            raise failed
        rest = [one for one in taken if one not in whole]
        if rest:
            async with self._store.session() as conn:
                await embedding.put_off(conn, self._space_id, rest, 0.0)

    async def _described(self, taken: Sequence[Waiting], unknown: Collection[int]) -> list[Waiting]:
        """Those whose tenants know the space now; the others wait, and hold nobody up."""
        refused = set()
        for scope_key in unknown:
            try:
                await self._register(scope_key, self._embedder.space)
            except PamspecError as error:
                _log.info("a space is not described: %s", error.message, extra={"action": "space_undescribed"})
                refused.add(scope_key)
        late = [one for one in taken if one.scope_key in refused]
        if late:
            async with self._store.session() as conn:
                await embedding.put_off(conn, self._space_id, late, _LONGEST_PAUSE_S)
        return [one for one in taken if one.scope_key not in refused]

    async def _fill(self, made: dict[tuple[int, int], list[Vector]], pieces: Mapping[tuple[int, int], Chunks]) -> None:
        """The vectors of the chunks, in batches that queries can go between, until the turn ends."""
        flat = [(place, text) for place, found in pieces.items() for text in found.texts]
        ends = time.monotonic() + self._turn_s
        for start in range(0, len(flat), self._embedder.batch):
            some = flat[start : start + self._embedder.batch]
            if time.monotonic() >= ends and _is_whole(flat[0][0], made, pieces):
                return
            answered = await self._embedder.embed([text for _, text in some], "passage", _WITHIN_S)
            for (place, _), vector in zip(some, answered, strict=True):
                made[place].append(vector)

    async def _keep(
        self,
        taken: Sequence[Waiting],
        contents: Mapping[tuple[int, int], bytes],
        pieces: Mapping[tuple[int, int], Chunks],
        made: Mapping[tuple[int, int], list[Vector]],
    ) -> None:
        keys = {one.scope_key for one in taken}
        async with self._store.scoped(keys) as conn:
            locked = await vectors.lock_docs(conn, [(one.scope_key, one.doc) for one in taken])
            still = [one for one in taken if locked.get((one.scope_key, one.doc)) == (one.sequence, False)]
            for key in sorted(keys):
                of = [place for one in still if (place := (one.scope_key, one.doc)) in made and one.scope_key == key]
                space = await vectors.fetch_space(conn, key, self._space_id)
                if not of or space is None:
                    continue
                rows = [
                    Stored(*place, number, literal(vector), digest_of(contents[place]), pieces[place].truncated)
                    for place in of
                    for number, vector in enumerate(made[place])
                ]
                await vectors.put(conn, space, of, rows)
                await embedding.untold(conn, self._space_id, [place for place in of if made[place]])
            await embedding.done(conn, self._space_id, taken)
            await vectors.move_watermarks(conn, keys)

    async def _rest(self, background: Background) -> None:
        """Until there may be work, or a stop."""
        waiting = [asyncio.create_task(self.work.wait()), asyncio.create_task(background.stopping.wait())]
        _, late = await asyncio.wait(waiting, timeout=self._poll_s, return_when=asyncio.FIRST_COMPLETED)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)


def _is_whole(
    place: tuple[int, int], made: Mapping[tuple[int, int], Sequence[Vector]], pieces: Mapping[tuple[int, int], Chunks]
) -> bool:
    """Whether all vectors of an object are made, or it has no text any more."""
    return place not in pieces or len(made[place]) == len(pieces[place].texts)
