"""What a batch reads before it decides: one statement, one snapshot."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import asyncpg
import orjson

from pamspec_common.postgres import Connection
from pamspec_write.model.facts import Ends, Head, PastVersion, Record, ScopeRef, ScopeState, SourceRecord, Stored
from pamspec_write.queries.relationships import ends
from pamspec_write.queries.restored import restored
from pamspec_write.queries.snapshots import evaluations

# Each row is looked up by itself (LATERAL with LIMIT), so that no plan can begin with a whole scope.
# One statement, one snapshot: everything that a batch may need, tagged by what it is. s: a scope's head, h: an object's
# head, k: a key's operation, e: a source event, r: an operation record with the version that its answer is made of.
PREFETCH_SQL = """
WITH known_key AS (
  SELECT r.scope_key, r.key_hash, r.operation_hash
  FROM unnest($6::bigint[], $7::bytea[]) AS k (scope_key, key_hash)
  CROSS JOIN LATERAL (
    SELECT * FROM core.operation_record r WHERE r.scope_key = k.scope_key AND r.key_hash = k.key_hash LIMIT 1) r),
known_source AS (
  SELECT e.scope_key, e.source_hash, e.operation_hash, e.salt, e.fingerprint
  FROM unnest($8::bigint[], $9::bytea[]) AS k (scope_key, source_hash)
  CROSS JOIN LATERAL (
    SELECT * FROM core.source_event e
    WHERE e.scope_key = k.scope_key AND e.source_hash = k.source_hash LIMIT 1) e),
operation AS (
  SELECT scope_key, operation_hash FROM unnest($4::bigint[], $5::bytea[]) AS k (scope_key, operation_hash)
  UNION SELECT scope_key, operation_hash FROM known_key
  UNION SELECT scope_key, operation_hash FROM known_source)
SELECT 's' AS tag, h.scope_key, NULL::text AS id, h.revision AS n1, h.last_seq AS n2, h.ledger_epoch::bigint AS n3,
       h.epoch_authz AS n4, t.epoch_authz AS n5, h.last_at AS at,
       ARRAY[h.rules_version::text, h.objects::text, h.versions::text, h.content_bytes::text, t.quotas_version::text,
             q.quotas] AS texts,
       h.last_hash AS b1, NULL::bytea AS b2, NULL::bytea AS b3, NULL::bytea AS b4, NULL::bytea AS b5, NULL::bytea AS b6,
       NULL::bytea AS b7
FROM core.scope_head h JOIN core.scope s USING (scope_key) JOIN core.tenant t USING (tenant_id)
LEFT JOIN core.quotas q ON q.tenant_id = t.tenant_id AND q.quotas_version = t.quotas_version
WHERE h.scope_key = ANY ($1::bigint[])
UNION ALL
SELECT 'h', o.scope_key, o.object_id, o.version_seq, o.from_seq, NULL, NULL, NULL, NULL,
       ARRAY[o.kind::text, o.version_id, o.object_type, o.schema_id, o.lifecycle_state, o.availability_state,
             o.retention_state, o.validation_state, o.created_by],
       v.metadata, p.content, p.private, NULL, NULL, NULL, NULL
FROM unnest($2::bigint[], $3::text[]) AS k (scope_key, object_id)
CROSS JOIN LATERAL (
  SELECT * FROM core.version v WHERE v.object_id = k.object_id AND v.scope_key = k.scope_key
  ORDER BY v.version_seq DESC LIMIT 1) v
CROSS JOIN LATERAL (
  SELECT * FROM core.version_span o WHERE o.scope_key = v.scope_key AND o.from_seq = v.ledger_seq LIMIT 1) o
CROSS JOIN LATERAL (
  SELECT * FROM core.version_value p WHERE p.scope_key = o.scope_key AND p.ledger_seq = o.from_seq LIMIT 1) p
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
CROSS JOIN LATERAL (
  SELECT * FROM core.operation_record r
  WHERE r.scope_key = k.scope_key AND r.operation_hash = k.operation_hash LIMIT 1) r
LEFT JOIN LATERAL (
  SELECT * FROM core.version v WHERE v.scope_key = r.scope_key AND v.ledger_seq = r.ledger_seq LIMIT 1) v ON true
LEFT JOIN LATERAL (
  SELECT * FROM core.version_value p
  WHERE p.scope_key = r.scope_key AND p.ledger_seq = r.ledger_seq LIMIT 1) p ON true
LEFT JOIN LATERAL (
  SELECT n.ledger_seq FROM core.version n WHERE n.object_id = v.object_id AND n.scope_key = v.scope_key
  ORDER BY n.version_seq DESC LIMIT 1) n ON true
LEFT JOIN LATERAL (
  SELECT h.availability_state FROM core.version_span h
  WHERE h.scope_key = r.scope_key AND h.from_seq = n.ledger_seq LIMIT 1) h ON true
LEFT JOIN LATERAL (
  SELECT l.event_id FROM core.ledger l
  WHERE l.scope_key = r.scope_key AND l.sequence = r.ledger_seq LIMIT 1) l ON true
"""

# Where versions stand, by their ids: few commands ask, and the answer never changes.
# The range of one id and the order make the index that begins with it the only way (see KEYED_PLANS).
VERSIONS_SQL = """
SELECT v.scope_key, v.version_id, v.object_id, v.version_seq, v.ledger_seq
FROM unnest($1::bigint[], $2::text[]) AS k (scope_key, version_id)
CROSS JOIN LATERAL (
  SELECT * FROM core.version v
  WHERE v.version_id BETWEEN k.version_id AND k.version_id AND v.scope_key = k.scope_key
  ORDER BY v.version_id LIMIT 1) v
"""


class Wanted:
    """What a batch has to look up, gathered before the prefetch."""

    def __init__(self) -> None:
        self.scopes: set[int] = set()
        self.objects: set[tuple[int, str]] = set()
        self.operations: set[tuple[int, bytes]] = set()
        self.keys: set[tuple[int, bytes]] = set()
        self.sources: set[tuple[int, bytes]] = set()
        self.runs: set[tuple[str, str]] = set()
        """(tenant_id, evaluation_run_id)"""
        self.snapshots: set[tuple[str, str]] = set()
        """(tenant_id, snapshot_id)"""
        self.members: set[tuple[int, str]] = set()
        """(scope_key, id) of what snapshots are to hold"""
        self.restored: set[tuple[int, str]] = set()
        """(scope_key, version_id) of versions whose content comes back"""
        self.versions: set[tuple[int, str]] = set()
        self.others: set[tuple[int, str]] = set()
        """Objects that must be there."""
        self.edges: set[tuple[int, str, str, str, str]] = set()
        """What new relationships join, as `facts.EdgeKey`."""
        self.rivals: set[tuple[int, str]] = set()
        """Relationships that become active."""
        self.joined: set[tuple[int, str]] = set()
        """Relationships that are changed: whoever may not see an end does not see them."""


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
    if wanted.runs or wanted.snapshots or wanted.members:
        tenants = {state.ref.tenant_id for state in states.values()}
        known = await evaluations(conn, tenants, wanted.runs, wanted.snapshots, wanted.members)
        for state in states.values():
            state.evaluations = known[state.ref.tenant_id]
    if wanted.versions:
        for row in await conn.fetch(VERSIONS_SQL, *_pairs(wanted.versions)):
            found = PastVersion(row["version_id"], row["object_id"], row["version_seq"], row["ledger_seq"])
            states[row["scope_key"]].past[found.version_id] = found
    if wanted.restored:
        await restored(conn, states, wanted.restored)
    if wanted.others or wanted.edges or wanted.rivals or wanted.joined:
        await ends(conn, states, wanted.others, wanted.edges, wanted.rivals, wanted.joined)
    return states


def _scope(ref: ScopeRef, row: asyncpg.Record) -> ScopeState:
    rules_version, objects, versions, content_bytes, quotas_version, quotas = row["texts"]
    counts = int(objects), int(versions), int(content_bytes)
    return ScopeState(
        ref,
        row["n1"],
        row["n2"],
        row["b1"],
        row["at"],
        row["n3"],
        row["n4"],
        row["n5"],
        int(rules_version),
        Stored(*counts),
        Stored(*counts),
        int(quotas_version),
        quotas,
    )


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
        _ends(row["b1"]) if kind == "r" else None,
    )


def _ends(metadata: bytes) -> Ends:
    stored = orjson.loads(metadata)
    return Ends(
        stored["source_object_id"],
        stored["target_object_id"],
        stored.get("target_scope_id"),
        stored["directionality"],
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
