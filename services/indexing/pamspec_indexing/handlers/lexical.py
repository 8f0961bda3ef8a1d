"""The lexical projection: the texts of current objects, as terms.

Invariant: after `replace` the rows of an object are those of the analysis of its head's content, and none where it was
removed; the statistics of the scope are those of the rows. What has not changed is not written again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterator, Sequence
from hashlib import blake2b

from pamspec_common.analysis import Analyzed, analyze, texts_of
from pamspec_common.analysis.terms import VERSION
from pamspec_common.errors import InvalidRequest
from pamspec_common.postgres import Connection
from pamspec_common.telemetry import metrics
from pamspec_indexing.model import LEXICAL
from pamspec_indexing.queries import lexical
from pamspec_indexing.queries.objects import Indexed, fetch_contents

_log = logging.getLogger(__name__)

_GROUP_BYTES = 4 * 1024 * 1024
_THREAD_BYTES = 64 * 1024
_CLEARED_AT_ONCE = 20_000


class Lexical:
    """The projection (entries.Projection)."""

    index_id = LEXICAL

    async def replace(self, conn: Connection, indexed: Sequence[Indexed]) -> None:
        """Let the rows of these objects be those of their heads."""
        removed = [one for one in indexed if one.head.removed and one.head.known]
        if removed:
            await lexical.remove(conn, removed)
            metrics.INDEXED.add(len(removed), {"index": self.index_id})
        for group in _groups([one for one in indexed if not one.head.removed]):
            await self._index(conn, group)

    async def rewrite(self, conn: Connection, indexed: Sequence[Indexed]) -> None:
        """The same as `replace`, whatever the rows say now."""
        await lexical.remove(conn, indexed)
        await self.replace(conn, [Indexed(one.head._replace(known=0), one.doc) for one in indexed])

    async def advance(self, conn: Connection, scope_keys: Collection[int]) -> None:
        """Its watermark moves with the transaction."""

    def committed(self) -> None:
        """Nobody else waits for it."""

    async def clear(self, conn: Connection, scope_key: int) -> bool:
        """Remove a bounded number of rows of a scope; whether some may be left."""
        return await lexical.clear(conn, scope_key, _CLEARED_AT_ONCE)

    async def compare(self, conn: Connection, indexed: Sequence[Indexed]) -> int:
        """How many of these have other rows than `replace` would give them."""
        wrong = 0
        for group in _groups(indexed):
            contents = await fetch_contents(conn, [one.head for one in group])
            held = await lexical.fetch_documents(conn, group)
            places = [place for place, one in enumerate(group) if place in contents and not one.head.removed]
            expected = dict(zip(places, await _analyzed([contents[place] for place in places]), strict=True))
            for place, one in enumerate(group):
                found, right = held.get((one.head.scope_key, one.doc)), expected.get(place)
                wrong += found != (None if right is None else lexical.Held.of(right))
        return wrong

    async def drift(self, conn: Connection, scope_key: int) -> int:
        """How many rows of a scope its documents do not account for."""
        return await lexical.drift(conn, scope_key)

    async def repair(self, conn: Connection, scope_key: int) -> None:
        """Let documents account for all rows."""
        await lexical.repair(conn, scope_key)

    async def _index(self, conn: Connection, group: Sequence[Indexed]) -> None:
        contents = await fetch_contents(conn, [one.head for one in group])
        before = [one for one in group if one.head.known]
        known = await lexical.fetch_digests(conn, before) if before else {}
        digests = {place: _digest(content) for place, content in contents.items()}
        stale = [one for place, one in enumerate(group) if _changed(one, digests.get(place), known)]
        if stale:
            await lexical.remove(conn, stale)
        fresh = [
            place for place, one in enumerate(group)
            if place in contents and known.get((one.head.scope_key, one.doc)) != digests[place]
        ]  # fmt: skip
        analyzed: list[Analyzed] = []
        if fresh:
            analyzed += await _analyzed([contents[place] for place in fresh])
            rows = [(group[p], found, digests[p]) for p, found in zip(fresh, analyzed, strict=True)]
            await lexical.add(conn, rows)
        metrics.INDEXED.add(len(group), {"index": self.index_id})
        cut = sum(one.truncated for one in analyzed)
        if cut:
            metrics.INDEX_TRUNCATED.add(cut, {"index": self.index_id})


def _changed(one: Indexed, digest: bytes | None, known: dict[tuple[int, int], bytes]) -> bool:
    place = one.head.scope_key, one.doc
    return place in known and known[place] != digest


def _groups(indexed: Sequence[Indexed]) -> Iterator[list[Indexed]]:
    """Groups whose contents are bounded together; one object may be larger."""
    group: list[Indexed] = []
    size = 0
    for one in indexed:
        if group and size + one.head.size > _GROUP_BYTES:
            yield group
            group, size = [], 0
        group.append(one)
        size += one.head.size
    if group:
        yield group


async def _analyzed(contents: Sequence[bytes]) -> list[Analyzed]:
    """Long texts are analyzed beside the event loop."""
    if sum(map(len, contents)) > _THREAD_BYTES:
        return await asyncio.to_thread(_analyze, contents)
    return _analyze(contents)


def _analyze(contents: Sequence[bytes]) -> list[Analyzed]:
    return [analyze(_texts(content)) for content in contents]


def _texts(content: bytes) -> list[str]:
    """The texts of a content. One that no reader takes has none: it is not found, and nothing waits for it."""
    try:
        return texts_of(content)
    except InvalidRequest:
        _log.exception("a content cannot be read", extra={"action": "content_unreadable"})
        metrics.INDEX_UNREADABLE.add(1)
        return []


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=16, person=VERSION).digest()
