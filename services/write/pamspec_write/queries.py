"""The SQL of the write service, each statement beside its one typed function."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import asyncpg

from pamspec_common.postgres import Connection
from pamspec_write.model.facts import Head, Record, ScopeRef, ScopeState, SourceRecord
from pamspec_write.model.rows import Rows

# One statement, one snapshot: everything that a batch may need, tagged by what it is. s: a scope's head, h: an object's
# head, k: a key's operation, e: a source event, r: an operation record with the version that its answer is made of.
PREFETCH_SQL = """
WITH known_key AS (
  SELECT r.scope_key, r.key_hash, r.operation_hash
  FROM unnest($6::bigint[], $7::bytea[]) AS k (scope_key, key_hash)
  JOIN core.operation_record r ON r.scope_key = k.scope_key AND r.key_hash = k.key_hash),
known_source AS (
  SELECT e.scope_key, e.source_hash, e.operation_hash, e.salt, e.fingerprint
  FROM unnest($8::bigint[], $9::bytea[]) AS k (scope_key, source_hash)
  JOIN core.source_event e ON e.scope_key = k.scope_key AND e.source_hash = k.source_hash),
operation AS (
  SELECT scope_key, operation_hash FROM unnest($4::bigint[], $5::bytea[]) AS k (scope_key, operation_hash)
  UNION SELECT scope_key, operation_hash FROM known_key
  UNION SELECT scope_key, operation_hash FROM known_source)
SELECT 's' AS tag, h.scope_key, NULL::text AS id, h.revision AS n1, h.last_seq AS n2, h.ledger_epoch::bigint AS n3,
       h.epoch_authz AS n4, t.epoch_authz AS n5, h.last_at AS at, ARRAY[s.tenant_id] AS texts,
       h.last_hash AS b1, NULL::bytea AS b2, NULL::bytea AS b3, NULL::bytea AS b4, NULL::bytea AS b5, NULL::bytea AS b6,
       NULL::bytea AS b7
FROM core.scope_head h JOIN core.scope s USING (scope_key) JOIN core.tenant t USING (tenant_id)
WHERE h.scope_key = ANY ($1::bigint[])
UNION ALL
SELECT 'h', o.scope_key, o.object_id, o.version_seq, o.from_seq, NULL, NULL, NULL, NULL,
       ARRAY[o.kind::text, o.version_id, o.object_type, o.schema_id, o.lifecycle_state, o.availability_state,
             o.retention_state, o.validation_state, o.created_by],
       v.metadata, p.content, p.private, NULL, NULL, NULL, NULL
FROM unnest($2::bigint[], $3::text[]) AS k (scope_key, object_id)
JOIN core.version_span o ON o.scope_key = k.scope_key AND o.object_id = k.object_id AND o.to_seq = 9223372036854775807
JOIN core.version v ON v.scope_key = o.scope_key AND v.ledger_seq = o.from_seq
JOIN core.version_private p ON p.scope_key = o.scope_key AND p.ledger_seq = o.from_seq
UNION ALL
SELECT 'k', scope_key, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, key_hash, operation_hash, NULL, NULL,
       NULL, NULL, NULL
FROM known_key
UNION ALL
SELECT 'e', scope_key, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, source_hash, operation_hash, salt, fingerprint,
       NULL, NULL, NULL
FROM known_source
UNION ALL
SELECT 'r', r.scope_key, r.operation_id, r.status, r.ledger_seq, r.last_seq, NULL, NULL, NULL,
       ARRAY[r.operation, r.state::text, h.availability_state, l.event_id],
       v.metadata, p.content, p.private, r.answer, r.fingerprint, r.salt, r.operation_hash
FROM operation k
JOIN core.operation_record r ON r.scope_key = k.scope_key AND r.operation_hash = k.operation_hash
LEFT JOIN core.version v ON v.scope_key = r.scope_key AND v.ledger_seq = r.ledger_seq
LEFT JOIN core.version_private p ON p.scope_key = r.scope_key AND p.ledger_seq = r.ledger_seq
LEFT JOIN core.version_span h
  ON h.scope_key = r.scope_key AND h.object_id = v.object_id AND h.to_seq = 9223372036854775807
LEFT JOIN core.ledger l ON l.scope_key = r.scope_key AND l.sequence = r.ledger_seq
"""

LOCK_SKIP_SQL = """
SELECT x.*, clock_timestamp() AS now FROM (
  SELECT scope_key, revision FROM core.scope_head WHERE scope_key = ANY ($1::bigint[])
  ORDER BY scope_key FOR NO KEY UPDATE SKIP LOCKED) x
"""

LOCK_WAIT_SQL = """
SELECT x.*, clock_timestamp() AS now FROM (
  SELECT scope_key, revision FROM core.scope_head WHERE scope_key = ANY ($1::bigint[])
  ORDER BY scope_key FOR NO KEY UPDATE) x
"""

ERASE_SQL = """
WITH target AS (
  SELECT v.scope_key, v.ledger_seq, p.operation_hash
  FROM unnest($1::bigint[], $2::text[], $3::bigint[]) AS k (scope_key, object_id, before)
  JOIN core.version v ON v.scope_key = k.scope_key AND v.object_id = k.object_id AND v.ledger_seq < k.before
  JOIN core.version_private p ON p.scope_key = v.scope_key AND p.ledger_seq = v.ledger_seq),
spans AS (
  UPDATE core.version_span s SET content = NULL FROM target t
  WHERE s.scope_key = t.scope_key AND s.from_seq = t.ledger_seq),
records AS (
  UPDATE core.operation_record r SET salt = NULL, fingerprint = NULL FROM target t
  WHERE r.scope_key = t.scope_key AND r.operation_hash = t.operation_hash),
sources AS (
  UPDATE core.source_event e SET salt = NULL, fingerprint = NULL FROM target t
  WHERE e.scope_key = t.scope_key AND e.operation_hash = t.operation_hash)
UPDATE core.version_private p SET salt = NULL, content = NULL, private = NULL FROM target t
WHERE p.scope_key = t.scope_key AND p.ledger_seq = t.ledger_seq
"""

# $1-$2: the tenants and the authorization epochs that the decisions rest on; a moved one writes nothing.
# A head's old span ends before its new one begins, because only one head per object may exist.
WRITE_SQL = """
WITH guard AS (
  SELECT count(*) = 0 AS ok FROM unnest($1::text[], $2::bigint[]) AS k (tenant_id, epoch)
  JOIN core.tenant t ON t.tenant_id = k.tenant_id WHERE t.epoch_authz <> k.epoch),
head AS (
  UPDATE core.scope_head h
  SET revision = h.revision + 1, last_seq = k.last_seq, last_hash = k.last_hash, last_at = k.last_at
  FROM unnest($3::bigint[], $4::bigint[], $5::bytea[], $6::timestamptz[])
    AS k (scope_key, last_seq, last_hash, last_at), guard
  WHERE guard.ok AND h.scope_key = k.scope_key RETURNING h.scope_key),
closed AS (
  UPDATE core.version_span s SET to_seq = k.to_seq
  FROM unnest($42::bigint[], $43::bigint[], $44::bigint[]) AS k (scope_key, from_seq, to_seq), guard
  WHERE guard.ok AND s.scope_key = k.scope_key AND s.from_seq = k.from_seq RETURNING s.from_seq),
version AS (
  INSERT INTO core.version (scope_key, ledger_seq, object_id, kind, version_seq, version_id, metadata)
  SELECT k.* FROM unnest($7::bigint[], $8::bigint[], $9::text[], $10::"char"[], $11::integer[], $12::text[],
    $13::bytea[]) AS k, guard WHERE guard.ok),
private AS (
  INSERT INTO core.version_private (scope_key, ledger_seq, operation_hash, salt, content, private)
  SELECT k.* FROM unnest($14::bigint[], $15::bigint[], $16::bytea[], $17::bytea[], $18::bytea[], $19::bytea[]) AS k,
  guard WHERE guard.ok),
span AS (
  INSERT INTO core.version_span (scope_key, from_seq, to_seq, object_id, kind, version_seq, version_id, object_type,
    schema_id, lifecycle_state, availability_state, retention_state, validation_state, actor_id, provenance_id,
    observed_at, asserted_at, valid_from, valid_until, committed_at, created_by, content)
  SELECT k.scope_key, k.from_seq, k.to_seq, k.object_id, k.kind, k.version_seq, k.version_id, k.object_type,
    k.schema_id, k.lifecycle_state, k.availability_state, k.retention_state, k.validation_state, k.actor_id,
    k.provenance_id, k.observed_at, k.asserted_at, k.valid_from, k.valid_until, k.committed_at, k.created_by,
    k.content::jsonb
  FROM unnest($20::bigint[], $21::bigint[], $22::bigint[], $23::text[], $24::"char"[], $25::integer[], $26::text[],
    $27::text[], $28::text[], $29::text[], $30::text[], $31::text[], $32::text[], $33::text[], $34::text[],
    $35::timestamptz[], $36::timestamptz[], $37::timestamptz[], $38::timestamptz[], $39::timestamptz[], $40::text[],
    $41::text[]) AS k (scope_key, from_seq, to_seq, object_id, kind, version_seq, version_id, object_type, schema_id,
    lifecycle_state, availability_state, retention_state, validation_state, actor_id, provenance_id, observed_at,
    asserted_at, valid_from, valid_until, committed_at, created_by, content), guard
  WHERE guard.ok AND (SELECT count(*) FROM closed) >= 0),
ledger AS (
  INSERT INTO core.ledger (scope_key, sequence, event_id, event_type, subject_id, recorded_at, event, entry_hash)
  SELECT k.* FROM unnest($45::bigint[], $46::bigint[], $47::text[], $48::text[], $49::text[], $50::timestamptz[],
    $51::bytea[], $52::bytea[]) AS k, guard WHERE guard.ok),
outbox AS (
  INSERT INTO relay.outbox (partition, scope_key, sequence, event_id, ledger_epoch, subject, message)
  SELECT k.* FROM unnest($53::smallint[], $54::bigint[], $55::bigint[], $56::text[], $57::integer[], $58::text[],
    $59::bytea[]) AS k, guard WHERE guard.ok),
record AS (
  INSERT INTO core.operation_record (scope_key, operation_hash, key_hash, operation, operation_id, actor_id, state,
    salt, fingerprint, status, ledger_seq, last_seq, answer, created_at)
  SELECT k.* FROM unnest($60::bigint[], $61::bytea[], $62::bytea[], $63::text[], $64::text[], $65::text[],
    $66::"char"[], $67::bytea[], $68::bytea[], $69::smallint[], $70::bigint[], $71::bigint[], $72::bytea[],
    $73::timestamptz[]) AS k, guard WHERE guard.ok),
source AS (
  INSERT INTO core.source_event (scope_key, source_hash, operation_hash, salt, fingerprint)
  SELECT k.* FROM unnest($74::bigint[], $75::bytea[], $76::bytea[], $77::bytea[], $78::bytea[]) AS k,
  guard WHERE guard.ok)
SELECT ok FROM guard
"""

RESOLVE_SCOPE_SQL = """
SELECT scope_key, tenant_token, scope_token, partition, document FROM core.resolve_scope($1, $2)
"""

NEXT_SCOPE_KEY_SQL = "SELECT nextval('core.scope_key'), clock_timestamp()"

INSERT_SCOPE_SQL = """
INSERT INTO core.scope
  (scope_key, tenant_id, scope_id, tenant_token, scope_token, partition, document, ledger_id, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (tenant_id, scope_id) DO NOTHING
"""

INSERT_SCOPE_HEAD_SQL = "INSERT INTO core.scope_head (scope_key, last_hash, last_at) VALUES ($1, $2, $3)"

INSERT_ABANDONED_SQL = """
INSERT INTO core.operation_record
  (scope_key, operation_hash, key_hash, operation, operation_id, actor_id, state, status, created_at)
VALUES ($1, $2, $3, $4, $5, $6, 'a', 409, clock_timestamp())
"""

BUMP_REVISION_SQL = "UPDATE core.scope_head SET revision = revision + 1 WHERE scope_key = $1"

# Rows of the outbox, counted no further than the bound, with the age of the oldest.
OUTBOX_DEPTH_SQL = """
SELECT count(*) AS depth, coalesce(extract(epoch FROM clock_timestamp() - min(created_at)), 0)::float8 AS age
FROM (SELECT created_at FROM relay.outbox LIMIT $1) o
"""


class Wanted:
    """What a batch has to look up, gathered before the prefetch."""

    def __init__(self) -> None:
        self.scopes: set[int] = set()
        self.objects: set[tuple[int, str]] = set()
        self.operations: set[tuple[int, bytes]] = set()
        self.keys: set[tuple[int, bytes]] = set()
        self.sources: set[tuple[int, bytes]] = set()


async def prefetch(conn: Connection, wanted: Wanted, refs: Iterable[ScopeRef]) -> dict[int, ScopeState]:
    """The state of the wanted scopes, one snapshot for all that decisions rest on."""
    rows = await conn.fetch(
        PREFETCH_SQL,
        list(wanted.scopes),
        *_pairs(wanted.objects),
        *_pairs(wanted.operations),
        *_pairs(wanted.keys),
        *_pairs(wanted.sources),
    )
    by_key = {ref.scope_key: ref for ref in refs}
    states = {row["scope_key"]: _scope(by_key[row["scope_key"]], row) for row in rows if row["tag"] == "s"}
    for row in rows:
        tag, state = row["tag"], states[row["scope_key"]]
        if tag == "h":
            state.heads[row["id"]] = _head(row)
        elif tag == "r":
            state.records[row["b7"]] = _record(row)
        elif tag == "k":
            state.keys[row["b1"]] = row["b2"]
        elif tag == "e":
            state.sources[row["b1"]] = SourceRecord(row["b2"], row["b3"], row["b4"])
    return states


def _scope(ref: ScopeRef, row: asyncpg.Record) -> ScopeState:
    return ScopeState(ref, row["n1"], row["n2"], row["b1"], row["at"], row["n3"], row["n4"], row["n5"])


def _pairs(pairs: Iterable[tuple[int, Any]]) -> tuple[list[int], list[Any]]:
    ordered = list(pairs)
    return [pair[0] for pair in ordered], [pair[1] for pair in ordered]


def _head(row: asyncpg.Record) -> Head:
    kind, version_id, object_type, schema_id, lifecycle, availability, retention, validation, created_by = row["texts"]
    return Head(
        row["id"],
        kind,
        version_id,
        row["n1"],
        row["n2"],
        object_type,
        schema_id,
        lifecycle,
        availability,
        retention,
        validation,
        created_by,
        row["b1"],
        row["b2"],
        row["b3"],
    )


def _record(row: asyncpg.Record) -> Record:
    operation, state, head_availability, event_id = row["texts"]
    return Record(
        operation_hash=row["b7"],
        operation=operation,
        operation_id=row["id"],
        state=state,
        salt=row["b6"],
        fingerprint=row["b5"],
        status=row["n1"],
        ledger_seq=row["n2"],
        last_seq=row["n3"],
        stored=row["b4"],
        metadata=row["b1"],
        content=row["b2"],
        private=row["b3"],
        head_availability=head_availability,
        event_id=event_id,
    )


async def lock(conn: Connection, scope_keys: Sequence[int], *, wait: bool) -> tuple[dict[int, int], datetime | None]:
    """Lock scope heads in order; answers scope_key -> revision of those locked, and PostgreSQL's clock.

    Without `wait`, scopes that another transaction holds are left out; with it, LockNotAvailableError after the
    lock timeout.
    """
    rows = await conn.fetch(LOCK_WAIT_SQL if wait else LOCK_SKIP_SQL, scope_keys)
    return {row["scope_key"]: row["revision"] for row in rows}, rows[0]["now"] if rows else None


async def erase(conn: Connection, erasures: Sequence[tuple[int, str, int]]) -> None:
    """Erase what is erasable of the versions before a ledger sequence, per object."""
    columns = [list(column) for column in zip(*erasures, strict=True)]
    await conn.execute(ERASE_SQL, *columns)


async def write(conn: Connection, tenants: dict[str, int], heads: Sequence[ScopeState], rows: Rows) -> bool:
    """Write everything that a batch decided; False, and nothing written, when a tenant's epoch has moved."""
    written: bool = await conn.fetchval(
        WRITE_SQL,
        list(tenants),
        list(tenants.values()),
        [state.ref.scope_key for state in heads],
        [state.last_seq for state in heads],
        [state.last_hash for state in heads],
        [state.last_at for state in heads],
        *rows.arguments(),
    )
    return written
