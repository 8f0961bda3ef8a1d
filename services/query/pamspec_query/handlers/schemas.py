"""get_schema and list_schemas: what a scope's content is held against."""

from __future__ import annotations

from typing import Any

from pamspec_common.calls import Answer
from pamspec_common.errors import InvalidRequest, ObjectNotFound
from pamspec_common.instants import wire
from pamspec_common.strict_json import Fragment, dumps
from pamspec_query.documents import GetSchema, ListSchemas
from pamspec_query.handlers.context import Context, refuse_grant
from pamspec_query.model.cursors import Cursor
from pamspec_query.model.plan import DEFAULT_LIMIT
from pamspec_query.model.positions import headers
from pamspec_query.queries.schemas import Registered, schema, schemas


async def get_schema(context: Context, request: GetSchema) -> Answer:
    """A registered schema with its document; ObjectNotFound where there is none of that id."""
    refuse_grant(request)
    async with context.moment(request) as (conn, scope_key, head, _):
        found = await schema(conn, scope_key, request.schema_id)
    if found is None or found.document is None:
        raise ObjectNotFound(
            "No schema of that id is registered here; list the scope's schemas.", details={"field": "schema_id"}
        )
    document = {**_described(found), "schema": Fragment(found.document)}
    return Answer(200, dumps(document), headers(head.last_seq, head.ledger_epoch))


async def list_schemas(context: Context, request: ListSchemas) -> Answer:
    """A page of the scope's schemas by their ids, without their documents."""
    refuse_grant(request)
    limit = DEFAULT_LIMIT if request.pagination is None else request.pagination.limit
    text = None if request.pagination is None else request.pagination.cursor
    after = "" if text is None else _after(context.read_cursor(text))
    async with context.moment(request) as (conn, scope_key, head, _):
        found = await schemas(conn, scope_key, after, limit + 1)
    shown = found[:limit]
    cursor = context.write_cursor(Cursor(head.ledger_epoch, 0, [shown[-1].schema_id])) if len(found) > limit else None
    body = dumps({"schemas": [_described(one) for one in shown], "next_cursor": cursor})
    return Answer(200, body, headers(head.last_seq, head.ledger_epoch))


def _after(cursor: Cursor) -> str:
    if len(cursor.after) != 1 or not isinstance(cursor.after[0], str):
        raise InvalidRequest("The cursor belongs to another operation; start again without a cursor.")
    return cursor.after[0]


def _described(one: Registered) -> dict[str, Any]:
    described = {
        "schema_id": one.schema_id,
        "digest": f"sha256:{one.digest.hex()}",
        "actor_id": one.actor_id,
        "operation_id": one.operation_id,
        "registered_at": wire(one.registered_at),
    }
    return described if one.authenticated_as is None else {**described, "authenticated_as": one.authenticated_as}
