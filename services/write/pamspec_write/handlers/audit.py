"""The record of administration: who did what, when, why and under which rules, without content."""

from __future__ import annotations

import re

from pamspec_common.calls import Answer
from pamspec_common.instants import wire
from pamspec_common.postgres import Connection
from pamspec_write.documents.administration import ListAdministration
from pamspec_write.handlers.administering import Asked, no_cursor, page_of
from pamspec_write.queries import administration as queries

_LAST = 2**63 - 1
_TOLD = (
    "operation", "operation_id", "actor_id", "authenticated_as", "policy_basis", "subject", "detail", "outcome",
    "policy_version", "occurrences",
)  # fmt: skip


async def list_administration(conn: Connection, asked: Asked, request: ListAdministration) -> Answer:
    """A page of the record of a scope or a tenant, the newest first."""
    limit, cursor = page_of(request.pagination)
    if cursor is not None and not re.fullmatch("[0-9]{1,19}", cursor):
        raise no_cursor()
    before = _LAST if cursor is None else min(int(cursor), _LAST)
    rows = await conn.fetch(
        queries.ADMINISTRATION_SQL, *asked.place, before, limit + 1, request.actor_id, request.operation,
        request.outcome, request.since, request.until,
    )  # fmt: skip
    found = [
        {"done_at": wire(row["done_at"]), **{name: row[name] for name in _TOLD if row[name] is not None}}
        for row in rows[:limit]
    ]
    more = str(rows[limit - 1]["id"]) if len(rows) > limit else None
    return asked.answer(entries=found, next_cursor=more)
