"""list_holds: the legal holds over a scope and its types."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from pamspec_common.calls import Answer
from pamspec_common.errors import InvalidRequest
from pamspec_common.instants import wire
from pamspec_common.strict_json import dumps
from pamspec_query.documents import ListHolds
from pamspec_query.handlers.context import Context, refuse_grant
from pamspec_query.model.cursors import Cursor
from pamspec_query.model.plan import DEFAULT_LIMIT
from pamspec_query.model.positions import headers
from pamspec_query.queries.holds import Hold, holds


async def list_holds(context: Context, request: ListHolds) -> Answer:
    """A page of the scope's holds, the oldest first."""
    refuse_grant(request)
    limit = DEFAULT_LIMIT if request.pagination is None else request.pagination.limit
    text = None if request.pagination is None else request.pagination.cursor
    after = "" if text is None else _after(context.read_cursor(text))
    async with context.moment(request) as (conn, scope_key, head, _):
        found = await holds(conn, scope_key, after, limit + 1, released=request.include_released)
    shown = found[:limit]
    cursor = context.write_cursor(Cursor(head.ledger_epoch, 0, [shown[-1].hold_id])) if len(found) > limit else None
    body = dumps({"holds": [_document(one) for one in shown], "next_cursor": cursor})
    return Answer(200, body, headers(head.last_seq, head.ledger_epoch))


def _after(cursor: Cursor) -> str:
    if len(cursor.after) != 1 or not isinstance(cursor.after[0], str):
        raise InvalidRequest("The cursor belongs to another operation; start again without a cursor.")
    return cursor.after[0]


def _document(hold: Hold) -> dict[str, Any]:
    return {
        name: wire(value) if isinstance(value, datetime) else value
        for name, value in asdict(hold).items()
        if value is not None
    }
