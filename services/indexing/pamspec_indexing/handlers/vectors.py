"""The vector projection: what the effect of the ledger does to vectors, and to what waits to be embedded.

Invariant: in the transaction that notes a version, the vectors of another content are gone, and where the scope is
embedded the version waits in the queue. Whether a text is the same is told by a digest of the content, which is kept
with its vectors and goes with them: a change of states alone embeds nothing anew.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from hashlib import blake2b

from pamspec_common.postgres import Connection
from pamspec_indexing.queries import embedding, vectors
from pamspec_indexing.queries.objects import Indexed, fetch_contents

_CLEARED_AT_ONCE = 5000
OBJECT = b"o"


def digest_of(content: bytes) -> bytes:
    """What is kept with the vectors of a content."""
    return blake2b(content, digest_size=16, person=b"pamspec-vectors").digest()


class Vectors:
    """The projection (entries.Projection)."""

    index_id = None

    def __init__(self, space_id: str | None, woken: Callable[[], None]) -> None:
        self._space_id, self._woken = space_id, woken
        """The space into which scopes are embedded that have none of their own; None where nothing embeds."""

    async def replace(self, conn: Connection, indexed: Sequence[Indexed]) -> None:
        """Take away the vectors of what was before, and put what is new into the queue."""
        objects = [one for one in indexed if one.head.kind == OBJECT]
        if not objects:
            return
        before = [one for one in objects if one.head.known]
        known = await vectors.fetch_digests(conn, [_place(one) for one in before]) if before else {}
        kept = await self._kept(conn, before, known)
        gone = [_place(one) for one in before if _place(one) in known and _place(one) not in kept]
        if gone:
            await vectors.remove(conn, gone)
        removed = [_place(one) for one in objects if one.head.removed and one.head.known]
        if removed:
            await embedding.dequeue(conn, removed)
        fresh = [one for one in objects if not one.head.removed and _place(one) not in kept]
        if fresh and self._space_id is not None:
            await embedding.own_space(conn, {one.head.scope_key for one in fresh}, self._space_id)
        if fresh:
            await embedding.enqueue(conn, [(*_place(one), one.head.sequence) for one in fresh])

    async def _kept(
        self, conn: Connection, before: Sequence[Indexed], known: dict[tuple[int, int], set[bytes]]
    ) -> set[tuple[int, int]]:
        """Those whose content is that of all their vectors; whoever made them."""
        same = [one for one in before if not one.head.removed and known.get(_place(one))]
        if not same:
            return set()
        contents = await fetch_contents(conn, [one.head for one in same])
        return {
            _place(one) for number, one in enumerate(same)
            if number in contents and known[_place(one)] == {digest_of(contents[number])}
        }  # fmt: skip

    async def advance(self, conn: Connection, scope_keys: Collection[int]) -> None:
        """Move the watermarks of the vector indexes of scopes whose entries have taken effect."""
        await vectors.move_watermarks(conn, scope_keys)

    async def clear(self, conn: Connection, scope_key: int) -> bool:
        """Remove what waits in a scope and a bounded number of its vectors; whether some may be left."""
        await embedding.forget(conn, scope_key)
        return await vectors.clear(conn, scope_key, None, _CLEARED_AT_ONCE)

    def committed(self) -> None:
        """What was put into the queue is there now."""
        self._woken()


def _place(one: Indexed) -> tuple[int, int]:
    return one.head.scope_key, one.doc
