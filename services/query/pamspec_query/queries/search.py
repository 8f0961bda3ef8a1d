"""The search for a page: candidates from the index, then the rows themselves, newest first.

Invariant: candidates only say where to look. The statement that reads the rows weighs the whole query under the
caller's row-level security, so an answer is the same whichever way it was found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import asyncpg

from pamspec_common.postgres import Connection
from pamspec_query.model.lookups import Lookup
from pamspec_query.model.ordering import DEFAULT
from pamspec_query.model.plan import Plan
from pamspec_query.queries.heads import Stored
from pamspec_query.queries.statements import At, Within, count_statement, hint_statement, page_statement, reads_in_two

FIND_SQL = """
SELECT query.find($1, $2, $3, $4, $5::text[], $6::text[], $7::text[], $8::text[], $9::text[]::jsonb[])
"""

FEW = 10_000
"""So many candidates may be sorted in another order than that of the ledger, or counted one by one."""
COUNTED = 10_000
"""Where a bounded count ends."""
_FIRST_FACTOR, _GROWTH = 4, 4
_AT_ONCE = 10_000
_TRIED = 50_000
_TRIED_BESIDE_RANGE = 4_000
"""After so many candidates that did not match, the planner decides instead."""


@dataclass(frozen=True, slots=True)
class Item:
    """One item: its keys in the ordering, and the version."""

    keys: list[Any]
    stored: Stored

    @property
    def bytes(self) -> int:
        """What it adds to a page, as the statements weigh it."""
        halves = (self.stored.metadata, self.stored.content, self.stored.private)
        return sum(len(half) for half in halves if half is not None) + 16


@dataclass(slots=True)
class Page:
    """The items of a page, and whether more follow."""

    items: list[Item] = field(default_factory=list)
    more: bool = False


@dataclass(frozen=True, slots=True)
class Count:
    """How many match; `exact` when all were counted."""

    value: int
    exact: bool


async def fetch_page(conn: Connection, scope_key: int, plan: Plan, at: At, max_bytes: int) -> Page:
    """A page of a query."""
    lookup = plan.lookup
    if lookup is None or plan.pinned is not None:
        return await _read(conn, scope_key, plan, at, max_bytes, Page(), None)
    if plan.order == DEFAULT:
        return await _newest(conn, scope_key, plan, lookup, at, max_bytes)
    within = await few(conn, scope_key, lookup, at) if lookup.selects else None
    return await _read(conn, scope_key, plan, at, max_bytes, Page(), within)


async def count(conn: Connection, scope_key: int, plan: Plan, at: At, exact: bool) -> Count:
    """How many match at the position of a first page; without `exact` counted no further than COUNTED."""
    at_most = None if exact else COUNTED + 1
    within = None
    if plan.lookup is not None and plan.pinned is None:
        within = await few(conn, scope_key, plan.lookup, at)
    statement = count_statement(scope_key, plan, at, at_most, within)
    found: int = await conn.fetchval(statement.sql, *statement.arguments)
    return Count(found, True) if exact or found <= COUNTED else Count(COUNTED, False)


async def matches_without_default(
    conn: Connection, scope_key: int, plan: Plan, at: At, window: int, timeout_ms: int
) -> bool:
    """Whether one of the newest `window` versions would match if the default states were lifted; False when that takes
    too long. The last statement of its transaction: a timeout ends it.
    """
    statement = hint_statement(scope_key, plan, at, window)
    await conn.execute(f"SET LOCAL statement_timeout = {timeout_ms:d}")
    try:
        return bool(await conn.fetchval(statement.sql, *statement.arguments))
    except asyncpg.QueryCanceledError:
        return False


async def _newest(conn: Connection, scope_key: int, plan: Plan, lookup: Lookup, at: At, max_bytes: int) -> Page:
    """A page in the default order: candidates in steps, each with the rows that the page still needs."""
    page = Page()
    before = _top(at) + 1 if at.after is None else min(_top(at) + 1, at.after[0])
    wanted, tried = (plan.limit + 1) * (1 if lookup.whole else _FIRST_FACTOR), 0
    most = _TRIED_BESIDE_RANGE if lookup.ranged else _TRIED
    while tried <= most:
        found = await _candidates(conn, scope_key, lookup, at.low, before, min(wanted, _AT_ONCE))
        last = len(found) < min(wanted, _AT_ONCE)
        within = Within(found, at.low if last else found[-1] - 1, before)
        page = await _read(conn, scope_key, plan, at, max_bytes, page, within)
        if last or page.more:
            return page
        before, tried, wanted = found[-1], tried + len(found), wanted * _GROWTH
    rest = At(at.position, at.is_head, [before], at.low, at.high)
    return await _read(conn, scope_key, plan, rest, max_bytes, page, None)


def _top(at: At) -> int:
    return at.position if at.high is None else min(at.position, at.high)


async def few(conn: Connection, scope_key: int, lookup: Lookup, at: At) -> Within | None:
    """All candidates of a lookup, when they are few."""
    before = _top(at) + 1
    found = await _candidates(conn, scope_key, lookup, at.low, before, FEW + 1)
    return Within(found, at.low, before) if len(found) <= FEW else None


async def _candidates(
    conn: Connection, scope_key: int, lookup: Lookup, after: int, before: int, wanted: int
) -> Sequence[int]:
    arguments = (lookup.types, lookup.states, lookup.actors, lookup.schemas, lookup.docs)
    found: list[int] = await conn.fetchval(FIND_SQL, scope_key, after, before, wanted, *arguments)
    return found


async def _read(
    conn: Connection, scope_key: int, plan: Plan, at: At, max_bytes: int, page: Page, within: Within | None
) -> Page:
    """The page with the rows that it still needs."""
    halves: list[bool | None] = [None]
    if reads_in_two(plan, within):
        halves = [True] if at.after is not None and at.after[0] is None else [False, True]
    for missing in halves:
        needed = plan.limit - len(page.items)
        left = max_bytes - sum(item.bytes for item in page.items)
        statement = page_statement(scope_key, plan, at, left, rows=needed + 1, within=within, missing=missing)
        rows = await conn.fetch(statement.sql, *statement.arguments)
        items = [_item(row, len(plan.order)) for row in rows[:needed]]
        if page.items and items and items[0].bytes > left:
            items = []
        page = Page([*page.items, *items], bool(rows) and rows[0]["found"] > len(items))
        if page.more:
            break
    return page


def _item(row: asyncpg.Record, keys: int) -> Item:
    stored = Stored(row["metadata"], row["content"], row["private"])
    return Item([row[f"k{index}"] for index in range(keys)], stored)
