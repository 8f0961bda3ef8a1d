"""list_policy_versions: what a scope's policy was, who changed it, when and why."""

from __future__ import annotations

from typing import Any

from pamspec_common.calls import Answer
from pamspec_common.documents import MAX_SEQUENCE
from pamspec_common.errors import InvalidRequest
from pamspec_common.instants import wire
from pamspec_common.strict_json import Fragment, dumps
from pamspec_query.documents import ListPolicyVersions
from pamspec_query.handlers.context import Context, refuse_grant
from pamspec_query.model.cursors import Cursor
from pamspec_query.model.plan import DEFAULT_LIMIT
from pamspec_query.model.positions import headers
from pamspec_query.queries.policies import PolicyVersion, policy_versions


async def list_policy_versions(context: Context, request: ListPolicyVersions) -> Answer:
    """A page of the scope's policies, the newest first."""
    refuse_grant(request)
    limit = DEFAULT_LIMIT if request.pagination is None else request.pagination.limit
    text = None if request.pagination is None else request.pagination.cursor
    before = MAX_SEQUENCE if text is None else _before(context.read_cursor(text))
    async with context.moment(request) as (conn, scope_key, head, _):
        found = await policy_versions(conn, scope_key, before, limit + 1)
    shown: list[PolicyVersion] = []
    size = 0
    for one in found[:limit]:
        size += len(one.policy)
        if shown and size > context.page_bytes:
            break
        shown.append(one)
    cursor = None
    if len(found) > len(shown):
        cursor = context.write_cursor(Cursor(head.ledger_epoch, 0, [shown[-1].policy_version]))
    body = dumps({"versions": [_document(one) for one in shown], "next_cursor": cursor})
    return Answer(200, body, headers(head.last_seq, head.ledger_epoch))


def _before(cursor: Cursor) -> int:
    if len(cursor.after) != 1 or not isinstance(cursor.after[0], int):
        raise InvalidRequest("The cursor belongs to another operation; start again without a cursor.")
    return cursor.after[0]


def _document(one: PolicyVersion) -> dict[str, Any]:
    document: dict[str, Any] = {
        "policy_version": one.policy_version,
        "policy": Fragment(one.policy),
        "actor_id": one.actor_id,
        "operation_id": one.operation_id,
        "changed_at": wire(one.changed_at),
    }
    if one.policy_basis is not None:
        document["policy_basis"] = one.policy_basis
    if one.authenticated_as is not None:
        document["authenticated_as"] = one.authenticated_as
    return document
