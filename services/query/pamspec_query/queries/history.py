"""Pages of a scope's ledger with the versions that its entries made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import LiteralString

import asyncpg

from pamspec_common.authorization.rows import shown_entry
from pamspec_common.authorization.sight import Sight
from pamspec_common.postgres import Connection
from pamspec_query.queries.heads import Stored
from pamspec_query.queries.predicates import Arguments

EVENTS_START: LiteralString = """
WITH page AS MATERIALIZED (
  SELECT l.sequence, l.event, v.metadata, p.content, p.private
  FROM core.ledger l
  LEFT JOIN core.version v ON v.scope_key = l.scope_key AND v.ledger_seq = l.sequence
    AND v.ledger_seq > $2 AND v.ledger_seq <= $3
  LEFT JOIN core.version_value p ON p.scope_key = l.scope_key AND p.ledger_seq = l.sequence
    AND p.ledger_seq > $2 AND p.ledger_seq <= $3
  WHERE l.scope_key = $1 AND l.sequence > $2 AND l.sequence <= $3
    AND ($4::text[] IS NULL OR l.event_type = ANY ($4))
    AND ($11::text[] IS NULL OR l.subject_id = ANY ($11))
    AND ($5::bigint IS NULL OR v.version_seq >= $5) AND ($6::bigint IS NULL OR v.version_seq <= $6)
    AND ($7::text[] IS NULL OR NOT l.event_type = ANY ($8) OR CASE WHEN l.event_type = ANY ($8) THEN
      (SELECT e #>> '{actor,actor_id}' = ANY ($7) OR e #>> '{payload,granting_actor_id}' = ANY ($7)
           OR e #>> '{payload,delegated_actor_id}' = ANY ($7)
       FROM query.as_jsonb(l.event) e) END)
"""
EVENTS_END: LiteralString = """
  ORDER BY l.sequence LIMIT $9
), weighed AS (
  SELECT page.*, count(*) OVER () AS found, row_number() OVER (ORDER BY sequence) AS n,
         sum(octet_length(event) + coalesce(octet_length(metadata), 0) + coalesce(octet_length(content), 0)
             + coalesce(octet_length(private), 0)) OVER (ORDER BY sequence) AS bytes
  FROM page)
SELECT sequence, event, metadata, content, private, found FROM weighed WHERE n = 1 OR bytes <= $10 ORDER BY n
"""
EVENTS_OF_SCOPE_SQL: LiteralString = EVENTS_START + EVENTS_END
EVENTS_OF_SUBJECT_SQL: LiteralString = EVENTS_START + "AND l.subject_id = $12" + EVENTS_END


@dataclass(frozen=True, slots=True)
class Entry:
    """A ledger entry, and the version that it made, if it made one."""

    sequence: int
    event: bytes
    stored: Stored | None


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which entries: those between two positions, narrowed."""

    after: int
    until: int
    subject_id: str | None
    subjects: Sequence[str] | None
    """Whose entries alone are shown; None shows those of the whole scope."""
    event_classes: Sequence[str] | None
    first_version: int | None
    last_version: int | None
    parties: Sequence[str] | None
    """Whose entries of the restricted types are shown; None shows everybody's."""
    restricted: Sequence[str]


async def entries(
    conn: Connection, scope_key: int, wanted: Wanted, sight: Sight, limit: int, max_bytes: int
) -> tuple[list[Entry], bool]:
    """Entries in ledger order that are seen, at most `limit` and about `max_bytes`, and whether more follow."""
    given = [
        scope_key,
        wanted.after,
        wanted.until,
        wanted.event_classes,
        wanted.first_version,
        wanted.last_version,
        wanted.parties,
        wanted.restricted,
        limit + 1,
        max_bytes,
        wanted.subjects,
    ]
    sql = EVENTS_OF_SCOPE_SQL
    if wanted.subject_id is not None:
        sql = EVENTS_OF_SUBJECT_SQL
        given.append(wanted.subject_id)
    arguments = Arguments(given)
    if not sight.everything:
        sql = sql.removesuffix(EVENTS_END) + " AND " + shown_entry(sight, arguments.values) + EVENTS_END
    rows = await conn.fetch(sql, *arguments.values)
    found = [_entry(row) for row in rows[:limit]]
    return found, bool(rows) and rows[0]["found"] > len(found)


def _entry(row: asyncpg.Record) -> Entry:
    stored = None if row["metadata"] is None else Stored(row["metadata"], row["content"], row["private"])
    return Entry(row["sequence"], row["event"], stored)
