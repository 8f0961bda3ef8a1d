"""The way of a verification: a scope's ledger read once from end to end, a page at a time.

Invariant: memory holds two pages at most, however long the ledger is. While one page is checked the store reads the
next. The head that counts is the one of the start; what is committed meanwhile is left for the next verification.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pamspec_common.errors import ScopeNotFound
from pamspec_common.postgres import Connection
from pamspec_common.verification import pages
from pamspec_common.verification.anchors import Anchor
from pamspec_common.verification.erasures import unexplained
from pamspec_common.verification.rows import Tally
from pamspec_common.verification.rules import MAX_PROBLEMS, Chain

PAGE_ROWS = 500
PAGE_BYTES = 8 * 1024 * 1024
TALLY_ROWS = 100_000


async def verify(conn: Connection, scope_key: int, anchors: Sequence[Anchor] = ()) -> Chain:
    """The whole check of one scope, finished; `conn` sees the scope, and the anchors were read before.

    ScopeNotFound when it does not. A connection that shows each statement its own moment will do.
    """
    trust = await pages.trust(conn, scope_key)
    if trust is None:
        raise ScopeNotFound
    chain = Chain(trust, anchors)
    await _walk(conn, scope_key, chain)
    if not chain.full and not chain.finish(await _tally(conn, scope_key, trust.last_seq)):
        chain.strays(await pages.strays(conn, scope_key, trust.last_seq, MAX_PROBLEMS))
    if not chain.full and await pages.beyond(conn, scope_key):
        chain.found(trust.last_seq + 1, "entry_foreign", "Entries, versions or states stand beyond the head.")
    # What readers take for the state follows from the ledger, so what is wrong with the ledger comes first.
    chain.problems.sort(key=lambda problem: (problem.kind == "state_differs", problem.sequence))
    return chain


async def _tally(conn: Connection, scope_key: int, until: int) -> Tally:
    versions = states = 0
    for after in range(0, until, TALLY_ROWS):
        found = await pages.tally(conn, scope_key, after, min(until, after + TALLY_ROWS))
        versions, states = versions + found.versions, states + found.states
    return Tally(versions, states)


async def _walk(conn: Connection, scope_key: int, chain: Chain) -> None:
    until = chain.trust.last_seq
    after = 0
    rows = await pages.page(conn, scope_key, after, until, PAGE_ROWS, PAGE_BYTES)
    while after < until and not chain.full:
        # An empty page is a gap of its whole length; the next one shows where it ends.
        after = rows[-1].sequence if rows else after + PAGE_ROWS
        fetching = asyncio.create_task(pages.page(conn, scope_key, after, until, PAGE_ROWS, PAGE_BYTES))
        try:
            await asyncio.sleep(0)
            chain.feed(rows)
        finally:
            rows = await fetching
        erased = chain.take_erased()
        if erased:
            chain.problems += unexplained(erased, await pages.erasures(conn, scope_key, erased))
