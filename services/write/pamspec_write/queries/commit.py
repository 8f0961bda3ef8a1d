"""What a batch locks and writes: the locks of its scopes, erasures, and one statement for everything that is new."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pamspec_common.postgres import Connection, ring_of
from pamspec_write.model.facts import ScopeState
from pamspec_write.model.rows import SEPARATOR, Rows
from pamspec_write.queries.sealing import sealed

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

# $1-$3: objects, each with the ledger sequence before which its versions go; $4-$5: versions one by one.
# The rows are found one by one and changed where they lie; the scopes are locked, so they lie still. A version without
# a salt was erased before, with all that belongs to it.
ERASE_SQL = """
WITH named AS (
  SELECT v.scope_key, v.ledger_seq
  FROM unnest($1::bigint[], $2::text[], $3::bigint[]) AS k (scope_key, object_id, before)
  CROSS JOIN LATERAL (
    SELECT * FROM core.version v
    WHERE v.object_id = k.object_id AND v.scope_key = k.scope_key AND v.ledger_seq < k.before OFFSET 0) v
  UNION
  SELECT * FROM unnest($4::bigint[], $5::bigint[]) AS k (scope_key, ledger_seq)),
target AS MATERIALIZED (
  SELECT v.scope_key, v.ledger_seq, p.operation_hash, p.ctid AS private_at, p.bytes
  FROM named v
  CROSS JOIN LATERAL (
    SELECT p.operation_hash, p.ctid, p.salt, core.value_bytes(p.content) AS bytes FROM core.version_private p
    WHERE p.scope_key = v.scope_key AND p.ledger_seq = v.ledger_seq LIMIT 1) p
  WHERE p.salt IS NOT NULL),
spans AS (
  UPDATE core.version_span s SET content = NULL
  WHERE s.ctid = ANY (ARRAY (
    SELECT o.ctid FROM target t CROSS JOIN LATERAL (
      SELECT o.ctid FROM core.version_span o
      WHERE o.scope_key = t.scope_key AND o.from_seq = t.ledger_seq LIMIT 1) o))),
records AS (
  UPDATE core.operation_record r SET salt = NULL, fingerprint = NULL
  WHERE r.ctid = ANY (ARRAY (
    SELECT o.ctid FROM target t CROSS JOIN LATERAL (
      SELECT o.ctid FROM core.operation_record o
      WHERE o.scope_key = t.scope_key AND o.operation_hash = t.operation_hash LIMIT 1) o))),
sources AS (
  UPDATE core.source_event e SET salt = NULL, fingerprint = NULL
  WHERE e.ctid = ANY (ARRAY (
    SELECT o.ctid FROM target t CROSS JOIN LATERAL (
      SELECT o.ctid FROM core.source_event o
      WHERE o.operation_hash = t.operation_hash AND o.scope_key = t.scope_key OFFSET 0) o))),
private AS (
  UPDATE core.version_private p SET salt = NULL, content = NULL, private = NULL
  WHERE p.ctid = ANY (ARRAY (SELECT private_at FROM target)))
SELECT scope_key, sum(bytes)::bigint AS bytes FROM target WHERE bytes > 0 GROUP BY scope_key
"""

# $1-$2: the tenants and the authorization epochs that the decisions rest on; a moved one writes nothing.
# $3-$6, $68-$70: the scopes' heads. Then the columns of rows.Rows.arguments, each one text (see model/rows.py).
# $71-$75: what tenants have stored more; under other quotas than the decisions rest on it answers false, and what it
# wrote has to be rolled back.
# $76-$80: the keys of the versions where they are sealed (see queries/sealing.py).
# $81: trace contexts of the ledger's rows, fewer than these or none at all: the others are null.
# The ends of relationships ($64-$67) come as empty columns where no version is a relationship's: then all are null.
# A head's old span ends before its new one begins, because only one head per object may exist.
WRITE_SQL = """
WITH guard AS MATERIALIZED (
  SELECT count(*) = 0 AS ok FROM unnest($1::text[], $2::bigint[]) AS k (tenant_id, epoch)
  JOIN core.tenant t ON t.tenant_id = k.tenant_id WHERE t.epoch_authz <> k.epoch),
head AS (
  UPDATE core.scope_head h
  SET revision = h.revision + 1, last_seq = k.last_seq, last_hash = k.last_hash, last_at = k.last_at,
    objects = k.objects, versions = k.versions, content_bytes = k.content_bytes
  FROM unnest($3::bigint[], $4::bigint[], $5::bytea[], $6::timestamptz[], $68::bigint[], $69::bigint[], $70::bigint[])
    AS k (scope_key, last_seq, last_hash, last_at, objects, versions, content_bytes), guard
  WHERE guard.ok AND h.scope_key = k.scope_key
  RETURNING h.scope_key, h.ledger_epoch),
room AS MATERIALIZED (
  SELECT u.tenant_id, u.shard, k.objects, k.versions, k.content_bytes
  FROM unnest($71::text[], $72::bigint[], $73::bigint[], $74::bigint[], $75::bigint[])
    AS k (tenant_id, quotas_version, objects, versions, content_bytes)
  JOIN core.tenant_usage u ON u.tenant_id = k.tenant_id AND u.shard = pg_backend_pid() % 8, guard
  WHERE guard.ok AND u.quotas_version = k.quotas_version
  ORDER BY u.tenant_id FOR NO KEY UPDATE OF u),
usage AS (
  UPDATE core.tenant_usage u SET objects = u.objects + k.objects, versions = u.versions + k.versions,
    content_bytes = u.content_bytes + k.content_bytes
  FROM room k WHERE u.tenant_id = k.tenant_id AND u.shard = k.shard RETURNING u.shard),
closed AS (
  UPDATE core.version_span s SET to_seq = k.to_seq FROM (
    SELECT k.to_seq, o.ctid FROM unnest(
      string_to_array($61, chr(31), chr(30))::bigint[], string_to_array($62, chr(31), chr(30))::bigint[],
      string_to_array($63, chr(31), chr(30))::bigint[])
    AS k (
      scope_key, from_seq, to_seq)
    CROSS JOIN LATERAL (
      SELECT o.ctid FROM core.version_span o
      WHERE o.scope_key = k.scope_key AND o.from_seq = k.from_seq LIMIT 1) o) k, guard
  WHERE guard.ok AND s.ctid = k.ctid RETURNING s.from_seq),
made AS MATERIALIZED (
  SELECT k.* FROM unnest(
      string_to_array($7, chr(31), chr(30))::bigint[], string_to_array($8, chr(31), chr(30))::bigint[],
      string_to_array($9, chr(31), chr(30))::bigint[], string_to_array($10, chr(31), chr(30)),
      string_to_array($11, chr(31), chr(30))::"char"[], string_to_array($12, chr(31), chr(30))::integer[],
      string_to_array($13, chr(31), chr(30)), string_to_array($14, chr(31), chr(30)),
      string_to_array($15, chr(31), chr(30)), string_to_array($16, chr(31), chr(30)),
      string_to_array($17, chr(31), chr(30)), string_to_array($18, chr(31), chr(30)),
      string_to_array($19, chr(31), chr(30)), string_to_array($20, chr(31), chr(30)),
      string_to_array($21, chr(31), chr(30)), string_to_array($22, chr(31), chr(30)),
      string_to_array($23, chr(31), chr(30)), string_to_array($24, chr(31), chr(30)),
      string_to_array($25, chr(31), chr(30)), string_to_array($26, chr(31), chr(30)),
      string_to_array($27, chr(31), chr(30))::timestamptz[], string_to_array($28, chr(31), chr(30))::timestamptz[],
      string_to_array($29, chr(31), chr(30))::timestamptz[], string_to_array($30, chr(31), chr(30))::timestamptz[],
      string_to_array($31, chr(31), chr(30))::timestamptz[], string_to_array($32, chr(31), chr(30)),
      string_to_array($33, chr(31), chr(30)), string_to_array($64, chr(31), chr(30)),
      string_to_array($65, chr(31), chr(30)), string_to_array($66, chr(31), chr(30)),
      string_to_array($67, chr(31), chr(30)))
    AS k (
      scope_key, ledger_seq, to_seq, object_id, kind, version_seq, version_id, metadata, operation_hash, salt,
      content, private, object_type, schema_id, lifecycle_state, availability_state, retention_state,
      validation_state, actor_id, provenance_id, observed_at, asserted_at, valid_from, valid_until,
      committed_at, created_by, projection, source_object_id, target_object_id, target_scope_id, directionality), guard
  WHERE guard.ok),
version AS (
  INSERT INTO core.version (scope_key, ledger_seq, object_id, kind, version_seq, version_id, metadata)
  SELECT scope_key, ledger_seq, object_id, kind, version_seq, version_id, convert_to(metadata, 'UTF8') FROM made),
private AS (
  INSERT INTO core.version_private (scope_key, ledger_seq, operation_hash, salt, content, private)
  SELECT scope_key, ledger_seq, decode(operation_hash, 'hex'), decode(salt, 'hex'),
    CASE WHEN starts_with(content, 'x') THEN decode(substr(content, 2), 'hex') ELSE convert_to(content, 'UTF8') END,
    CASE WHEN starts_with(private, 'x') THEN decode(substr(private, 2), 'hex') ELSE convert_to(private, 'UTF8') END
  FROM made),
sealed AS MATERIALIZED (
  SELECT k.* FROM unnest($76::bigint[], $77::bigint[], $78::text[], $79::bytea[], $80::text[])
    AS k (scope_key, ledger_seq, kid, wrapped, private), guard
  WHERE guard.ok),
data_key AS (
  INSERT INTO core.data_key (scope_key, ledger_seq, kid, wrapped)
  SELECT scope_key, ledger_seq, kid, wrapped FROM sealed),
span AS (
  INSERT INTO core.version_span (scope_key, from_seq, to_seq, object_id, kind, version_seq, version_id, object_type,
    schema_id, lifecycle_state, availability_state, retention_state, validation_state, actor_id, provenance_id,
    observed_at, asserted_at, valid_from, valid_until, committed_at, created_by, content, source_object_id,
    target_object_id, target_scope_id, directionality, private)
  SELECT scope_key, ledger_seq, to_seq, object_id, kind, version_seq, version_id, object_type, schema_id,
    lifecycle_state, availability_state, retention_state, validation_state, actor_id, provenance_id, observed_at,
    asserted_at, valid_from, valid_until, committed_at, created_by, coalesce(projection, content)::jsonb,
    source_object_id, target_object_id, target_scope_id, directionality, (
      SELECT k.private::jsonb FROM sealed k WHERE k.scope_key = made.scope_key AND k.ledger_seq = made.ledger_seq)
  FROM made WHERE (SELECT count(*) FROM closed) >= 0),
entry AS MATERIALIZED (
  SELECT k.scope_key, k.sequence, k.event_id, k.event_type, k.subject_id, k.recorded_at,
    convert_to(k.event, 'UTF8') AS event, decode(k.entry_hash, 'hex') AS entry_hash, k.traceparent
  FROM unnest(
      string_to_array($34, chr(31), chr(30))::bigint[], string_to_array($35, chr(31), chr(30))::bigint[],
      string_to_array($36, chr(31), chr(30)), string_to_array($37, chr(31), chr(30)),
      string_to_array($38, chr(31), chr(30)), string_to_array($39, chr(31), chr(30))::timestamptz[],
      string_to_array($40, chr(31), chr(30)), string_to_array($41, chr(31), chr(30)),
      string_to_array($81, chr(31), chr(30)))
    AS k (
      scope_key, sequence, event_id, event_type, subject_id, recorded_at, event, entry_hash, traceparent), guard
  WHERE guard.ok),
ledger AS (
  INSERT INTO core.ledger (scope_key, sequence, event_id, event_type, subject_id, recorded_at, event, entry_hash)
  SELECT scope_key, sequence, event_id, event_type, subject_id, recorded_at, event, entry_hash FROM entry),
outbox AS (
  INSERT INTO relay.outbox (partition, scope_key, sequence, event_id, ledger_epoch, subject, message, traceparent)
  SELECT s.partition, e.scope_key, e.sequence, e.event_id, h.ledger_epoch,
    'pamspec.ledger.' || s.partition || '.' || s.tenant_token || '.' || s.scope_token || '.' || e.event_type, e.event,
    e.traceparent
  FROM entry e JOIN head h USING (scope_key) JOIN core.scope s USING (scope_key)
  ORDER BY e.scope_key, e.sequence),
record AS (
  INSERT INTO core.operation_record (scope_key, operation_hash, key_hash, operation, operation_id, actor_id, state,
    salt, fingerprint, status, ledger_seq, last_seq, answer, created_at)
  SELECT k.scope_key, decode(k.operation_hash, 'hex'), decode(k.key_hash, 'hex'), k.operation, k.operation_id,
    k.actor_id, k.state, decode(k.salt, 'hex'), decode(k.fingerprint, 'hex'), k.status, k.ledger_seq, k.last_seq,
    convert_to(k.answer, 'UTF8'), k.created_at
  FROM unnest(
      string_to_array($42, chr(31), chr(30))::bigint[], string_to_array($43, chr(31), chr(30)),
      string_to_array($44, chr(31), chr(30)), string_to_array($45, chr(31), chr(30)),
      string_to_array($46, chr(31), chr(30)), string_to_array($47, chr(31), chr(30)),
      string_to_array($48, chr(31), chr(30))::"char"[], string_to_array($49, chr(31), chr(30)),
      string_to_array($50, chr(31), chr(30)), string_to_array($51, chr(31), chr(30))::smallint[],
      string_to_array($52, chr(31), chr(30))::bigint[], string_to_array($53, chr(31), chr(30))::bigint[],
      string_to_array($54, chr(31), chr(30)), string_to_array($55, chr(31), chr(30))::timestamptz[])
    AS k (
      scope_key, operation_hash, key_hash, operation, operation_id, actor_id, state, salt, fingerprint, status,
      ledger_seq, last_seq, answer, created_at), guard
  WHERE guard.ok),
source AS (
  INSERT INTO core.source_event (scope_key, source_hash, operation_hash, salt, fingerprint)
  SELECT k.scope_key, decode(k.source_hash, 'hex'), decode(k.operation_hash, 'hex'), decode(k.salt, 'hex'),
    decode(k.fingerprint, 'hex')
  FROM unnest(
      string_to_array($56, chr(31), chr(30))::bigint[], string_to_array($57, chr(31), chr(30)),
      string_to_array($58, chr(31), chr(30)), string_to_array($59, chr(31), chr(30)),
      string_to_array($60, chr(31), chr(30)))
    AS k (
      scope_key, source_hash, operation_hash, salt, fingerprint), guard
  WHERE guard.ok)
SELECT ok AND (SELECT count(*) FROM usage) = cardinality($71::text[]) FROM guard
"""


UsageRow = tuple[str, int, int, int, int]
"""A tenant, the version of its quotas, and the objects, versions and bytes of content that it has more."""


async def lock(conn: Connection, scope_keys: Sequence[int], *, wait: bool) -> tuple[dict[int, int], datetime | None]:
    """Lock scope heads in order; answers scope_key -> revision of those locked, and PostgreSQL's clock.

    Without `wait`, scopes that another transaction holds are left out; with it, LockNotAvailableError after the
    lock timeout.
    """
    rows = await conn.fetch(LOCK_WAIT_SQL if wait else LOCK_SKIP_SQL, scope_keys)
    return {row["scope_key"]: row["revision"] for row in rows}, rows[0]["now"] if rows else None


async def erase(conn: Connection, rows: Rows) -> dict[int, int]:
    """Erase what is erasable of the stored versions that the rows name; the bytes of content that went, by scope."""
    objects = [list(column) for column in zip(*rows.erasures, strict=True)] or [[], [], []]
    versions = [list(column) for column in zip(*rows.chosen, strict=True)] or [[], []]
    freed = await conn.fetch(ERASE_SQL, *objects, *versions)
    return {row["scope_key"]: row["bytes"] for row in freed}


async def write(
    conn: Connection, tenants: dict[str, int], heads: Sequence[ScopeState], rows: Rows, usage: Sequence[UsageRow] = ()
) -> bool:
    """Write everything that a batch decided; False when a tenant's epoch or quotas have moved: then roll back."""
    more = [list(column) for column in zip(*usage, strict=True)] or [[]] * 5
    stored, keys = sealed(ring_of(conn), rows)
    written: bool = await conn.fetchval(
        WRITE_SQL,
        list(tenants),
        list(tenants.values()),
        [state.ref.scope_key for state in heads],
        [state.last_seq for state in heads],
        [state.last_hash for state in heads],
        [state.last_at for state in heads],
        *stored.arguments(),
        [state.stored.objects for state in heads],
        [state.stored.versions for state in heads],
        [state.stored.content_bytes for state in heads],
        *more,
        *keys,
        SEPARATOR.join(rows.traces),
    )
    return written
