"""verify_ledger: the chain of a scope and the digests of all that it covers, read once from end to end."""

from __future__ import annotations

import asyncio

from pamspec_common.calls import Answer
from pamspec_common.errors import ScopeNotFound
from pamspec_common.postgres import Connection
from pamspec_common.strict_json import dumps
from pamspec_query.documents import VerifyLedger
from pamspec_query.handlers.context import Context, refuse_grant
from pamspec_query.model.chain import Chain, Problem, Row, unexplained
from pamspec_query.model.positions import headers
from pamspec_query.queries import chain as pages
from pamspec_query.queries.heads import scope_head

PAGE_ROWS = 500
PAGE_BYTES = 8 * 1024 * 1024


async def verify_ledger(context: Context, request: VerifyLedger) -> Answer:
    """Whether the ledger up to its present head, its versions and their parts are what was written.

    Bounded memory: one page of entries at a time, however long the ledger is.
    """
    refuse_grant(request)
    async with context.moment(request) as (_, scope_key, _):
        pass
    async with context.store.stream(scope_key) as conn:
        head = await scope_head(conn, scope_key)
        trust = await pages.chain_head(conn, scope_key)
        if head is None or trust is None:
            raise ScopeNotFound
        chain = Chain(trust)
        problem = await _walk(conn, scope_key, chain) or chain.finish()
        if problem is None and await pages.beyond(conn, scope_key):
            problem = Problem(trust.last_seq + 1, "entry_foreign", "Entries or versions stand beyond the scope's head.")
    document = {
        "ok": problem is None,
        "entries": chain.entries,
        "versions": chain.versions,
        "first_problem": None if problem is None else problem.document(),
        "head_hash": "sha256:" + chain.last_hash.hex(),
    }
    return Answer(200, dumps(document), headers(trust.last_seq, head.ledger_epoch))


async def _walk(conn: Connection, scope_key: int, chain: Chain) -> Problem | None:
    """Check page after page; the next one is fetched while this one is checked."""
    until = chain.trust.last_seq
    rows = await pages.chain_page(conn, scope_key, 0, until, PAGE_ROWS, PAGE_BYTES) if until else []
    while rows:
        after = rows[-1].at
        fetching = asyncio.create_task(pages.chain_page(conn, scope_key, after, until, PAGE_ROWS, PAGE_BYTES))
        try:
            await asyncio.sleep(0)
            problem = _check(chain, rows)
        finally:
            rows = await fetching
        erased = chain.take_erased()
        if problem is None and erased:
            problem = unexplained(erased, await pages.erasures(conn, scope_key, erased))
        if problem is not None:
            return problem
    return None


def _check(chain: Chain, rows: list[Row]) -> Problem | None:
    for row in rows:
        problem = chain.feed(row)
        if problem is not None:
            return problem
    return None
