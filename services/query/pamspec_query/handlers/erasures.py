"""list_erasures: the receipts of a scope's erasures; no content is in any of them (PAMSPEC P187, S21)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pamspec_common import surfaces
from pamspec_common.calls import Answer
from pamspec_common.documents import MAX_SEQUENCE
from pamspec_common.errors import InvalidRequest, ObjectNotFound, ScopeNotFound
from pamspec_common.instants import wire
from pamspec_common.strict_json import dumps
from pamspec_query.documents import ListErasures, Scoped
from pamspec_query.handlers.context import Context, refuse_grant
from pamspec_query.model.cursors import Cursor
from pamspec_query.model.plan import DEFAULT_LIMIT
from pamspec_query.model.positions import headers
from pamspec_query.queries import erasures
from pamspec_query.queries.erasures import Receipt

_KINDS = {"d": "delete", "r": "redact", "f": "forget"}
_NEWEST = (MAX_SEQUENCE, "")


async def list_erasures(context: Context, request: ListErasures) -> Answer:
    """A page of a scope's receipts, the newest first, or the one that is named."""
    refuse_grant(request)
    scope_id = request.scope_id
    if scope_id is None:
        scope_id = await _scope_of(context, request.erasure_id)
    limit = DEFAULT_LIMIT if request.pagination is None else request.pagination.limit
    text = None if request.pagination is None else request.pagination.cursor
    before = _NEWEST if text is None else _before(context.read_cursor(text))
    days = context.store.settings.backup_days
    is_open = None if request.state is None else request.state == "open"
    within = Scoped(
        scope_id=scope_id,
        min_sequence=request.min_sequence,
        wait_ms=request.wait_ms,
        ledger_epoch=request.ledger_epoch,
    )
    try:
        async with context.moment(within) as (conn, scope_key, head, _):
            found = await erasures.page(conn, scope_key, request.erasure_id, is_open, before, limit + 1, days)
    except ScopeNotFound:
        if request.scope_id is not None:
            raise
        raise ObjectNotFound from None
    if request.erasure_id is not None and not found and text is None:
        raise ObjectNotFound("No such erasure is visible here.", details={"field": "erasure_id"})
    shown = found[:limit]
    cursor = None
    if len(found) > limit:
        last = shown[-1]
        cursor = context.write_cursor(Cursor(head.ledger_epoch, 0, [last.position, last.erasure_id]))
    body = dumps({"erasures": [receipt(one, scope_id, days) for one in shown], "next_cursor": cursor})
    return Answer(200, body, headers(head.last_seq, head.ledger_epoch))


async def _scope_of(context: Context, erasure_id: str | None) -> str:
    """The scope of an erasure of the principal's tenant; ObjectNotFound without one."""
    if erasure_id is None:
        raise InvalidRequest("The request names no erasures; send scope_id or erasure_id.")
    async with context.store.plain() as conn:
        found = await erasures.scope_of(conn, context.principal.tenant_id, erasure_id)
    if found is None:
        await context.nowhere()
        raise ObjectNotFound("No such erasure is visible here.", details={"field": "erasure_id"})
    return found


def receipt(one: Receipt, scope_id: str, backup_days: int) -> dict[str, Any]:
    """The receipt as every door shows it."""
    lines = surfaces.shown(one.surfaces)
    found: dict[str, Any] = {
        "erasure_id": one.erasure_id,
        "scope_id": scope_id,
        "kind": _KINDS[one.kind],
        "state": "open" if one.closed_at is None else "closed",
        "operation_id": one.operation_id,
        "actor_id": one.actor_id,
        "ledger_sequence": one.position,
        "opened_at": wire(one.opened_at),
        "surfaces": lines,
        "backups": _backups(one, backup_days),
    }
    if one.subject_id is not None:
        found["relationship_id" if one.subject_kind == "r" else "object_id"] = one.subject_id
        found["erased"] = [{"from_sequence": first, "to_sequence": last} for first, last in one.erased]
    if one.progress is not None:
        found["progress"] = one.progress
    if one.part_of is not None:
        found["part_of"] = one.part_of
    if one.closed_at is not None:
        found["closed_at"] = wire(one.closed_at)
    answers = [each for each in lines if each["surface"] != surfaces.PAGE_BYTES]
    if all(each["state"] in surfaces.SETTLED for each in answers):
        found["absent_at"] = max(each.get("checked_at", found["opened_at"]) for each in answers)
    return found


def _backups(one: Receipt, days: int) -> dict[str, str]:
    """How long backups that were made before may hold the value."""
    if days == 0:
        return {"state": "not_present"}
    deadline = one.opened_at + timedelta(days=days)
    return {"state": "expired" if one.backups_expired else "expiring", "deadline": wire(deadline)}


def _before(cursor: Cursor) -> tuple[int, str]:
    match cursor.after:
        case [int(position), str(erasure_id)]:
            return position, erasure_id
    raise InvalidRequest("The cursor belongs to another operation; start again without a cursor.")
