"""The way of a verification: a scope's ledger read once from end to end, segment by segment and page by page.

Invariant: memory holds two pages at most of each segment that is being checked, however long the ledger is. While one
page is checked the store reads the next. The head that counts is the one of the start; what is committed meanwhile is
left for the next verification.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import NamedTuple

from pamspec_common.errors import ScopeNotFound
from pamspec_common.ledger import genesis
from pamspec_common.postgres import Connection
from pamspec_common.verification import pages
from pamspec_common.verification.anchors import Anchor
from pamspec_common.verification.erasures import unexplained
from pamspec_common.verification.rows import Tally, Trust
from pamspec_common.verification.rules import Chain
from pamspec_common.verification.segments import MAX_PROBLEMS, Segment

PAGE_ROWS = 500
PAGE_BYTES = 8 * 1024 * 1024
SEGMENT_ROWS = 8_192
"""A power of two, so that the trees of segments fit together; small, so that several processes end at the same time."""
TALLY_ROWS = 100_000


class Part(NamedTuple):
    """A segment to be checked; it can be sent to another process."""

    scope_key: int
    trust: Trust
    low: int
    high: int
    marks: list[int]


Runner = Callable[[Sequence[Part]], AsyncIterator[Segment]]
"""Checks parts, at the same time where it can, and yields their segments in order."""


async def verify(
    conn: Connection, scope_key: int, anchors: Sequence[Anchor] = (), runner: Runner | None = None
) -> Chain:
    """The whole check of one scope, finished; `conn` sees the scope, and the anchors were read before.

    ScopeNotFound when it does not. A connection that shows each statement its own moment will do. Without a runner the
    segments are checked one after the other on the same connection.
    """
    trust = await pages.trust(conn, scope_key)
    if trust is None:
        raise ScopeNotFound
    chain = Chain(trust, anchors)
    parts = [
        Part(scope_key, trust, low, high, chain.marks(low, high))
        for low in range(0, trust.last_seq, SEGMENT_ROWS)
        for high in [min(trust.last_seq, low + SEGMENT_ROWS)]
    ]
    segments = runner(parts) if runner is not None and len(parts) > 1 else _one_by_one(conn, parts)
    async for segment in segments:
        chain.join(segment)
        if chain.full:
            break
    if not chain.full and not chain.finish(await _tally(conn, scope_key, trust.last_seq)):
        chain.strays(await pages.strays(conn, scope_key, trust.last_seq, MAX_PROBLEMS))
    if not chain.full and await pages.beyond(conn, scope_key):
        chain.found(trust.last_seq + 1, "entry_foreign", "Entries, versions or states stand beyond the head.")
    # What readers take for the state follows from the ledger, so what is wrong with the ledger comes first.
    chain.problems.sort(key=lambda problem: (problem.kind == "state_differs", problem.sequence))
    return chain


async def check(conn: Connection, part: Part) -> Segment:
    """Check one segment; `conn` sees the scope."""
    before = await pages.before(conn, part.scope_key, part.low) if part.low else None
    start = genesis(part.trust.ledger_id) if not part.low else before[0] if before is not None else b""
    recorded_at = before[1] if before is not None else None
    segment = Segment(part.trust, part.low, part.high, start, recorded_at, dict.fromkeys(part.marks))
    after, until = part.low, part.high
    rows = await pages.page(conn, part.scope_key, after, until, PAGE_ROWS, PAGE_BYTES)
    while after < until and not segment.full:
        # An empty page is a gap of its whole length; the next one shows where it ends.
        after = rows[-1].sequence if rows else after + PAGE_ROWS
        fetching = asyncio.create_task(pages.page(conn, part.scope_key, after, until, PAGE_ROWS, PAGE_BYTES))
        good = segment.good
        try:
            await asyncio.sleep(0)
            segment.feed(rows)
        finally:
            rows = await fetching
        erased = segment.take_erased()
        if erased and not part.trust.deleted:
            missing = unexplained(erased, await pages.erasures(conn, part.scope_key, erased))
            segment.problems += missing
            segment.good = good if missing else segment.good
    return segment


async def _one_by_one(conn: Connection, parts: Sequence[Part]) -> AsyncIterator[Segment]:
    for part in parts:
        yield await check(conn, part)


async def _tally(conn: Connection, scope_key: int, until: int) -> Tally:
    versions = states = 0
    for after in range(0, until, TALLY_ROWS):
        found = await pages.tally(conn, scope_key, after, min(until, after + TALLY_ROWS))
        versions, states = versions + found.versions, states + found.states
    return Tally(versions, states)
