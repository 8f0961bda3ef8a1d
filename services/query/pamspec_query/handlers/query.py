"""query: structured and temporal retrieval within one scope (PAMSPEC P120-P123, P147-P157)."""

from __future__ import annotations

import orjson

from pamspec_common.calls import Answer
from pamspec_common.postgres import Connection
from pamspec_common.strict_json import dumps
from pamspec_query.documents import Query
from pamspec_query.handlers.answering import page_body, shown
from pamspec_query.handlers.context import Context
from pamspec_query.handlers.placing import reached, seen, where
from pamspec_query.handlers.ranked import ranked_query
from pamspec_query.model import ordering
from pamspec_query.model.cursors import Cursor
from pamspec_query.model.paths import Paths
from pamspec_query.model.plan import Plan, plan
from pamspec_query.model.positions import headers
from pamspec_query.queries.search import Count, Item, count, fetch_page, matches_without_default
from pamspec_query.queries.statements import At


async def query(context: Context, request: Query) -> Answer:
    """A page of what matches, in the order asked for; equal state and request give equal bytes (P156, S17).

    The first page fixes the position; later pages read the same one, whatever is written meanwhile.
    """
    wanted = plan(request)
    if wanted.ranked is not None:
        return await ranked_query(context, request, wanted)
    text = None if request.pagination is None else request.pagination.cursor
    cursor = None if text is None else context.read_cursor(text)
    async with context.moment(request, wanted.narrowing()) as (conn, scope_key, head, rights):
        wanted = await seen(context, conn, scope_key, rights, request, wanted)
        elsewhere: list[tuple[str, int]] = []
        paths = None
        if request.traverse is not None:
            wanted, elsewhere, paths = await reached(context, conn, scope_key, head, request, wanted, cursor)
        at = await where(conn, scope_key, head, wanted, cursor)
        page = await fetch_page(conn, scope_key, wanted, at, context.page_bytes)
        counted = await _count(conn, scope_key, wanted, at, cursor)
        hidden = not page.items and cursor is None and wanted.states.defaulted
        hint = hidden and await _hint(context, conn, scope_key, wanted, at)
    next_cursor = None
    if page.more:
        after = ordering.written(wanted.order, page.items[-1].keys)
        carried = None if counted is None else (counted.value, counted.exact)
        next_cursor = context.write_cursor(Cursor(head.ledger_epoch, at.position, after, carried, tuple(elsewhere)))
    items = [shown(wanted.fields, item.stored, _path(item, paths)) for item in page.items]
    return Answer(200, page_body(items, next_cursor, hint, counted), headers(at.position, head.ledger_epoch))


def _path(item: Item, paths: Paths | None) -> dict[str, bytes]:
    """By which way a traversal reached an item, where that was asked for."""
    if paths is None:
        return {}
    known = orjson.loads(item.stored.metadata)
    return {"path": dumps(paths.to((known["scope_id"], known.get("object_id") or known["relationship_id"])))}


async def _count(conn: Connection, scope_key: int, wanted: Plan, at: At, cursor: Cursor | None) -> Count | None:
    """The count of the first page, which its cursors carry on."""
    if wanted.count is None:
        return None
    if cursor is not None and cursor.count is not None:
        return Count(*cursor.count)
    return await count(conn, scope_key, wanted, at, wanted.count == "exact")


async def _hint(context: Context, conn: Connection, scope_key: int, wanted: Plan, at: At) -> bool:
    settings = context.store.settings
    return await matches_without_default(conn, scope_key, wanted, at, settings.hint_window, settings.hint_timeout_ms)
