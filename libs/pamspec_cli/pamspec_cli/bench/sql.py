"""The floor of the create figures: the rows that the product wrote, written again by one SQL transaction each.

The rows are read back from the product's own tables and written to scopes of the floor, byte for byte but for the scope
key and the sequence. One prepared statement is one transaction and one round trip, under a role that row-level security
does not slow down: what nobody could do with less.
"""

import asyncio
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg

CONNECTIONS = 16

WRITTEN_SQL = """
SELECT v.object_id, v.kind, v.version_seq, v.version_id, v.metadata,
  p.operation_hash, p.salt, p.content, p.private,
  s.object_type, s.schema_id, s.lifecycle_state, s.availability_state, s.retention_state, s.validation_state,
  s.actor_id, s.provenance_id, s.observed_at, s.asserted_at, s.valid_from, s.valid_until, s.committed_at, s.created_by,
  s.content::text AS projection,
  l.event_id, l.event_type, l.subject_id, l.recorded_at, l.event, l.entry_hash,
  o.partition, o.ledger_epoch, o.subject,
  r.key_hash, r.operation, r.operation_id, r.actor_id AS record_actor_id, r.state, r.salt AS record_salt, r.fingerprint,
  r.status, r.answer, r.created_at
FROM core.version v
JOIN core.version_private p USING (scope_key, ledger_seq)
JOIN core.version_span s ON s.scope_key = v.scope_key AND s.from_seq = v.ledger_seq
JOIN core.ledger l ON l.scope_key = v.scope_key AND l.sequence = v.ledger_seq
JOIN relay.outbox o ON o.scope_key = v.scope_key AND o.sequence = v.ledger_seq
JOIN core.operation_record r ON r.scope_key = v.scope_key AND r.operation_hash = p.operation_hash
WHERE v.scope_key = ANY ($1::bigint[])
ORDER BY v.scope_key, v.ledger_seq LIMIT $2
"""

# $1 scope_key; the sequence is the scope's next one, taken under the row lock of its head.
WRITE_SQL = """
WITH head AS (
  UPDATE core.scope_head SET revision = revision + 1, last_seq = last_seq + 1, last_hash = $31, last_at = $23
  WHERE scope_key = $1 RETURNING last_seq),
version AS (
  INSERT INTO core.version (scope_key, ledger_seq, object_id, kind, version_seq, version_id, metadata)
  SELECT $1, last_seq, $2, $3, $4, $5, $6 FROM head),
private AS (
  INSERT INTO core.version_private (scope_key, ledger_seq, operation_hash, salt, content, private)
  SELECT $1, last_seq, $7, $8, $9, $10 FROM head),
span AS (
  INSERT INTO core.version_span (scope_key, from_seq, object_id, kind, version_seq, version_id, object_type, schema_id,
    lifecycle_state, availability_state, retention_state, validation_state, actor_id, provenance_id, observed_at,
    asserted_at, valid_from, valid_until, committed_at, created_by, content)
  SELECT $1, last_seq, $2, $3, $4, $5, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25::jsonb
  FROM head),
ledger AS (
  INSERT INTO core.ledger (scope_key, sequence, event_id, event_type, subject_id, recorded_at, event, entry_hash)
  SELECT $1, last_seq, $26, $27, $28, $29, $30, $31 FROM head),
outbox AS (
  INSERT INTO relay.outbox (partition, scope_key, sequence, event_id, ledger_epoch, subject, message)
  SELECT $32, $1, last_seq, $26, $33, $34, $30 FROM head)
INSERT INTO core.operation_record (scope_key, operation_hash, key_hash, operation, operation_id, actor_id, state, salt,
  fingerprint, status, ledger_seq, last_seq, answer, created_at)
SELECT $1, $7, $35, $36, $37, $38, $39, $40, $41, $42, last_seq, last_seq, $43, $44 FROM head
"""

COPY_SCOPES_SQL = """
WITH made AS (
  INSERT INTO core.scope (scope_key, tenant_id, scope_id, tenant_token, scope_token, partition, document, ledger_id,
    created_at)
  SELECT nextval('core.scope_key'), tenant_id, 'floor:' || gen_random_uuid(), tenant_token, scope_token, partition,
    document, ledger_id, created_at
  FROM core.scope WHERE scope_key = ANY ($1::bigint[]) RETURNING scope_key)
INSERT INTO core.scope_head (scope_key, last_hash, last_at)
SELECT scope_key, '\\x00'::bytea, clock_timestamp() FROM made RETURNING scope_key
"""


@dataclass(frozen=True)
class Rows:
    """Rows of creates, ready as arguments of WRITE_SQL behind the scope key."""

    creates: list[tuple[Any, ...]]


async def written(database_url: str, scope_keys: Sequence[int], limit: int) -> Rows:
    """The rows that the product wrote in these scopes."""
    connection = await asyncpg.connect(database_url)
    try:
        found = await connection.fetch(WRITTEN_SQL, list(scope_keys), limit)
    finally:
        await connection.close()
    return Rows([tuple(row.values()) for row in found])


async def new_scopes(database_url: str, like: Sequence[int]) -> list[int]:
    """Scopes of the floor's own, as many as those of the product."""
    connection = await asyncpg.connect(database_url)
    try:
        return [row["scope_key"] for row in await connection.fetch(COPY_SCOPES_SQL, list(like))]
    finally:
        await connection.close()


async def creates_per_second(database_url: str, like: Sequence[int], rows: Rows, seconds: float) -> float:
    """Creates per second by one prepared transaction each, over 16 connections, in new scopes of the floor's own.

    When the rows are used up before the time is, it ends early.
    """
    scope_keys = await new_scopes(database_url, like)
    pending = iter(zip(itertools.cycle(scope_keys), rows.creates, strict=False))
    connections = await asyncio.gather(*(asyncpg.connect(database_url) for _ in range(CONNECTIONS)))
    done = 0

    async def work(connection: "asyncpg.Connection[asyncpg.Record]", until: float) -> None:
        nonlocal done
        statement = await connection.prepare(WRITE_SQL)
        for scope_key, row in pending:
            await statement.fetch(scope_key, *row)
            done += 1
            if time.perf_counter() >= until:
                return

    try:
        started = time.perf_counter()
        await asyncio.gather(*(work(connection, started + seconds) for connection in connections))
        return done / (time.perf_counter() - started)
    finally:
        await asyncio.gather(*(connection.close() for connection in connections))
