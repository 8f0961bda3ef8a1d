"""list_snapshots and compare_snapshots: which snapshots a scope has, and what two of them show differently (P231)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from pamspec_common.calls import Answer
from pamspec_common.errors import InvalidRequest, ScopeNotFound, SnapshotNotFound
from pamspec_common.strict_json import dumps
from pamspec_query.documents import Common, CompareSnapshots, ListSnapshots, Scoped
from pamspec_query.handlers.context import Context, Moment, check_cursor, refuse_grant
from pamspec_query.model.comparison import Comparison, difference
from pamspec_query.model.cursors import Cursor
from pamspec_query.model.plan import DEFAULT_LIMIT
from pamspec_query.model.positions import headers
from pamspec_query.queries import snapshots
from pamspec_query.queries.comparison import pairs


async def list_snapshots(context: Context, request: ListSnapshots) -> Answer:
    """A page of a scope's snapshots by snapshot_id, or the one that is named."""
    refuse_grant(request)
    scope_id = request.scope_id
    if request.snapshot_id is not None and scope_id is None:
        scope_id = await _scope_of(context, request.snapshot_id)
    if scope_id is None:
        raise InvalidRequest("The request names no snapshots; send scope_id or snapshot_id.")
    limit = DEFAULT_LIMIT if request.pagination is None else request.pagination.limit
    text = None if request.pagination is None else request.pagination.cursor
    after = "" if text is None else _name(context.read_cursor(text))
    async with _moment(context, request, scope_id, request.scope_id) as (conn, scope_key, head, rights):
        page_bytes = context.page_bytes
        found, more = await snapshots.page(
            conn, scope_key, request.snapshot_id, after, limit, page_bytes, context.seen(rights)
        )
    if request.snapshot_id is not None and not found:
        raise SnapshotNotFound
    cursor = context.write_cursor(Cursor(0, 0, [found[-1].snapshot_id])) if more else None
    items = [b'{"ledger_epoch":%d,"snapshot":%b}' % (one.ledger_epoch, one.document) for one in found]
    body = b'{"next_cursor":' + dumps(cursor) + b',"snapshots":[' + b",".join(items) + b"]}"
    return Answer(200, body, headers(head.last_seq, head.ledger_epoch))


async def compare_snapshots(context: Context, request: CompareSnapshots) -> Answer:
    """A page of what two snapshots of one scope show differently, in ledger order; equal requests give equal bytes."""
    refuse_grant(request)
    scope_id = request.scope_id or await _scope_of(context, request.base_snapshot_id)
    limit = DEFAULT_LIMIT if request.pagination is None else request.pagination.limit
    text = None if request.pagination is None else request.pagination.cursor
    cursor = None if text is None else context.read_cursor(text)
    async with _moment(context, request, scope_id, request.scope_id) as (conn, scope_key, head, rights):
        sight = context.seen(rights)
        base = await snapshots.snapshot(conn, scope_key, request.base_snapshot_id, sight)
        other = await snapshots.snapshot(conn, scope_key, request.other_snapshot_id, sight)
        comparison = Comparison(base, other)
        after = comparison.start
        if cursor is not None:
            check_cursor(cursor, head)
            after = _sequence(cursor)
        found, more = await pairs(conn, scope_key, comparison, sight, after, limit)
    lists: dict[str, list[Any]] = {"added": [], "removed": [], "changed": []}
    for pair in found:
        told = difference(comparison, pair)
        if told is not None:
            lists[told[0]].append(told[1])
    next_cursor = None
    if more:
        next_cursor = context.write_cursor(Cursor(head.ledger_epoch, comparison.last, [found[-1].later.ledger_seq]))
    return Answer(200, dumps({**lists, "next_cursor": next_cursor}), headers(comparison.last, head.ledger_epoch))


async def _scope_of(context: Context, snapshot_id: str) -> str:
    """The scope of a snapshot of the principal's tenant; SnapshotNotFound without one."""
    async with context.store.plain(context.principal.tenant_id) as conn:
        found = await snapshots.scope_of(conn, context.principal.tenant_id, snapshot_id)
    if found is None:
        await context.nowhere()
        raise SnapshotNotFound
    return found


@asynccontextmanager
async def _moment(context: Context, request: Common, scope_id: str, named: str | None) -> AsyncIterator[Moment]:
    """A moment of the scope; a snapshot in a scope that can't be seen is one that does not exist."""
    try:
        async with context.moment(_within(request, scope_id)) as moment:
            yield moment
    except ScopeNotFound:
        if named is not None:
            raise
        raise SnapshotNotFound from None


def _within(request: Common, scope_id: str) -> Scoped:
    return Scoped(
        scope_id=scope_id,
        min_sequence=request.min_sequence,
        wait_ms=request.wait_ms,
        ledger_epoch=request.ledger_epoch,
    )


def _name(cursor: Cursor) -> str:
    if len(cursor.after) != 1 or not isinstance(cursor.after[0], str):
        raise InvalidRequest("The cursor belongs to another operation; start again without a cursor.")
    return cursor.after[0]


def _sequence(cursor: Cursor) -> int:
    if len(cursor.after) != 1 or not isinstance(cursor.after[0], int):
        raise InvalidRequest("The cursor belongs to another operation; start again without a cursor.")
    return cursor.after[0]
