"""get_scope and list_scopes: the scopes that a principal can see."""

from __future__ import annotations

from pamspec_common.calls import Answer
from pamspec_common.errors import InvalidRequest, ScopeNotFound
from pamspec_common.strict_json import dumps
from pamspec_query.documents import GetScope, ListScopes
from pamspec_query.handlers.context import Context, refuse_grant
from pamspec_query.model.cursors import Cursor
from pamspec_query.model.plan import DEFAULT_LIMIT
from pamspec_query.model.positions import headers
from pamspec_query.queries import heads, scopes
from pamspec_query.queries.policies import current_policy

_AT_LEAST = 500
"""So many scopes are looked at together once the first ones did not fill a page."""


async def get_scope(context: Context, request: GetScope) -> Answer:
    """The document of a scope with its policy; the head of its ledger travels in the headers."""
    refuse_grant(request)
    async with context.moment(request) as (conn, scope_key, head, _):
        found = await heads.resolve_scope(conn, context.principal.tenant_id, request.scope_id)
        version, policy = await current_policy(conn, scope_key)
    if found is None:
        raise ScopeNotFound
    scope = found[1] if policy is None else found[1][:-1] + b',"policy":' + policy + b"}"
    return Answer(
        200, b'{"policy_version":%d,"scope":%b}' % (version, scope), headers(head.last_seq, head.ledger_epoch)
    )


async def list_scopes(context: Context, request: ListScopes) -> Answer:
    """A page of the tenant's scopes by scope_id, or the one that is named; ScopeNotFound when that cannot be seen."""
    refuse_grant(request)
    if request.scope_id is not None:
        async with context.store.plain(context.principal.tenant_id) as conn:
            one = await scopes.scope(conn, context.principal.tenant_id, request.scope_id, context.actors)
        if one is None or not await context.sees(one.scope_key, one.stored):
            raise ScopeNotFound
        return _answer([one.document], None)
    limit = DEFAULT_LIMIT if request.pagination is None else request.pagination.limit
    text = None if request.pagination is None else request.pagination.cursor
    after = "" if text is None else _after(context.read_cursor(text))
    found = await _seen(context, after, limit + 1)
    shown: list[tuple[str, bytes]] = []
    size = 0
    for scope_id, document in found[:limit]:
        size += len(document)
        if shown and size > context.page_bytes:
            break
        shown.append((scope_id, document))
    cursor = context.write_cursor(Cursor(0, 0, [shown[-1][0]])) if len(found) > len(shown) else None
    return _answer([document for _, document in shown], cursor)


async def _seen(context: Context, after: str, limit: int) -> list[tuple[str, bytes]]:
    """Ids and documents of the next scopes that the actor sees; what it does not see is passed over, however much."""
    seen: list[tuple[str, bytes]] = []
    while len(seen) < limit:
        wanted = max(limit, _AT_LEAST) if after else limit
        async with context.store.plain(context.principal.tenant_id) as conn:
            page = await scopes.scopes(conn, context.principal.tenant_id, after, wanted, context.actors)
        seen += [(one.scope_id, one.document) for one in page if await context.sees(one.scope_key, one.stored)]
        if len(page) < wanted:
            break
        after = page[-1].scope_id
    return seen[:limit]


def _after(cursor: Cursor) -> str:
    if len(cursor.after) != 1 or not isinstance(cursor.after[0], str):
        raise InvalidRequest("The cursor belongs to another operation; start again without a cursor.")
    return cursor.after[0]


def _answer(documents: list[bytes], cursor: str | None) -> Answer:
    body = b'{"next_cursor":' + dumps(cursor) + b',"scopes":[' + b",".join(documents) + b"]}"
    return Answer(200, body)
