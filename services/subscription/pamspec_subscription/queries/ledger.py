"""Statements on the ledger of a scope: its head, its pages, and the versions that its entries name."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from pamspec_common.authorization.rows import shown_entry
from pamspec_common.envelope import envelope_bytes
from pamspec_common.events import EVENT_TYPES
from pamspec_common.postgres import Connection
from pamspec_subscription.entries import Entry
from pamspec_subscription.matching import OTHER_SUBJECT_TYPES, Matcher
from pamspec_subscription.model import Head
from pamspec_subscription.rights import Permitted

RESOLVE_SQL = "SELECT scope_key FROM core.resolve_scope($1, $2)"
HEAD_SQL = """
SELECT h.last_seq, h.ledger_epoch, h.epoch_authz, t.epoch_authz AS tenant_authz
FROM core.scope_head h, core.tenant t WHERE h.scope_key = $1 AND t.tenant_id = $2
"""
HEADS_SQL = """
SELECT k.scope_key, h.last_seq, h.ledger_epoch, h.epoch_authz, t.epoch_authz AS tenant_authz
FROM unnest($1::bigint[], $2::text[]) AS k(scope_key, tenant_id)
JOIN core.scope_head h ON h.scope_key = k.scope_key JOIN core.tenant t ON t.tenant_id = k.tenant_id
"""


async def resolve_scope(conn: Connection, tenant_id: str, scope_id: str) -> int | None:
    """The key of a tenant's scope."""
    key: int | None = await conn.fetchval(RESOLVE_SQL, tenant_id, scope_id)
    return key


async def head(conn: Connection, scope_key: int, tenant_id: str) -> Head:
    """The end of a scope's ledger with the current authorization epochs."""
    row = await conn.fetchrow(HEAD_SQL, scope_key, tenant_id)
    if row is None:
        raise LookupError("a followed scope has no head")
    return Head(row["last_seq"], row["ledger_epoch"], (row["epoch_authz"], row["tenant_authz"]))


async def heads(conn: Connection, scopes: Sequence[tuple[int, str]]) -> dict[int, Head]:
    """The heads of many scopes, given as (scope_key, tenant_id), in one query."""
    rows = await conn.fetch(HEADS_SQL, [key for key, _ in scopes], [tenant for _, tenant in scopes])
    return {
        row["scope_key"]: Head(row["last_seq"], row["ledger_epoch"], (row["epoch_authz"], row["tenant_authz"]))
        for row in rows
    }


PAGE_SQL = """
SELECT sequence, event_type, event FROM core.ledger
WHERE scope_key = $1 AND sequence > $2 AND sequence <= $3 ORDER BY sequence LIMIT $4
"""
TYPED_PAGE_SQL = """
SELECT sequence, event_type, event FROM core.ledger
WHERE scope_key = $1 AND sequence > $2 AND sequence <= $3
  AND (event_type = ANY($5::text[]) OR event_type = 'subscription_closed') ORDER BY sequence LIMIT $4
"""
SUBJECT_PAGE_SQL = """
SELECT sequence, event_type, event FROM core.ledger
WHERE scope_key = $1 AND sequence > $2 AND sequence <= $3 AND (
    event_type = ANY($5::text[]) AND (subject_id = $6 OR event_type = ANY($7::text[]))
    OR event_type = 'subscription_closed') ORDER BY sequence LIMIT $4
"""


async def page(
    conn: Connection, scope_key: int, after: int, to: int, limit: int, matcher: Matcher | None
) -> list[Entry]:
    """Ledger entries in (after, to] that the columns do not rule out, and every subscription_closed, in order."""
    if matcher is None or (matcher.types is None and matcher.object_id is None):
        rows = await conn.fetch(PAGE_SQL, scope_key, after, to, limit)
    elif matcher.object_id is None:
        rows = await conn.fetch(TYPED_PAGE_SQL, scope_key, after, to, limit, matcher.types)
    else:
        types = matcher.types or list(EVENT_TYPES)
        rows = await conn.fetch(
            SUBJECT_PAGE_SQL, scope_key, after, to, limit, types, matcher.object_id, list(OTHER_SUBJECT_TYPES)
        )
    return [Entry(row[0], row[1], row[2]) for row in rows]


IN_SIGHT_SQL = """
SELECT l.sequence FROM core.ledger l WHERE l.scope_key = $1 AND l.sequence = ANY ($2::bigint[])
"""


async def in_sight(conn: Connection, scope_key: int, entries: Sequence[Entry], permitted: Permitted) -> list[Entry]:
    """Those of some entries that may be received; nothing is read where everything is seen.

    Otherwise the ledger is asked even for none, so that what is hidden takes no longer than what is missing.
    """
    received = [entry for entry in entries if permitted.viewer.sees(entry)]
    if permitted.sight.everything:
        return received
    values: list[Any] = [scope_key, [entry.sequence for entry in received]]
    rows = await conn.fetch(IN_SIGHT_SQL + " AND " + shown_entry(permitted.sight, values), *values)
    seen = {row["sequence"] for row in rows}
    return [entry for entry in received if entry.sequence in seen]


ENVELOPES_SQL = """
SELECT v.version_id, v.metadata, p.content, p.private FROM core.version v
LEFT JOIN core.version_value p ON p.scope_key = v.scope_key AND p.ledger_seq = v.ledger_seq
WHERE v.scope_key = $1 AND v.version_id = ANY($2::text[])
"""


async def envelopes(conn: Connection, scope_key: int, version_ids: Sequence[str]) -> dict[str, bytes]:
    """The envelopes of versions by id; an erased one as its tombstone."""
    rows = await conn.fetch(ENVELOPES_SQL, scope_key, version_ids)
    return {row["version_id"]: envelope_bytes(row["metadata"], row["content"], row["private"]) for row in rows}


AGE_SQL = """
SELECT recorded_at, recorded_at <= clock_timestamp() - $3::interval AS old_enough
FROM core.ledger WHERE scope_key = $1 AND sequence = $2
"""


async def age_of(conn: Connection, scope_key: int, sequence: int, age: timedelta) -> tuple[datetime, bool]:
    """When an entry was recorded, and whether that is at least `age` ago."""
    row = await conn.fetchrow(AGE_SQL, scope_key, sequence, age)
    if row is None:
        raise LookupError("a ledger entry that was read is gone")
    return row["recorded_at"], row["old_enough"]
