"""What an import looks up and writes beside the rows that every commit writes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from pamspec_common.instants import parse
from pamspec_common.postgres import Connection
from pamspec_common.transfer import HeldLine, HoldLine, SchemaLine
from pamspec_write.model.imports import Erased, Erasure, Known

TARGET_SQL = """
SELECT s.ledger_id, s.document, h.last_seq, h.last_hash, h.ledger_epoch, h.rules_version, i.digest, i.remapped,
       i.answer, i.last_seq AS imported_seq
FROM core.scope s JOIN core.scope_head h USING (scope_key) LEFT JOIN core.scope_import i USING (scope_key)
WHERE s.scope_key = $1
"""


LOCK_HEAD_SQL = "SELECT FROM core.scope_head WHERE scope_key = $1 FOR NO KEY UPDATE"

ENTRY_HASH_SQL = "SELECT entry_hash FROM core.ledger WHERE scope_key = $1 AND sequence = $2"

TENANT_SQL = "SELECT epoch_authz, clock_timestamp() AS now FROM core.tenant WHERE tenant_id = $1"

ADOPT_SCOPE_SQL = "UPDATE core.scope SET ledger_id = $2, document = $3 WHERE scope_key = $1"

ADOPT_HEAD_SQL = """
UPDATE core.scope_head SET last_hash = $2, ledger_epoch = $3 WHERE scope_key = $1
"""

# The newest version of each subject, and whether a version of that id exists.
KNOWN_SQL = """
SELECT k.id, v.kind, v.version_seq, v.ledger_seq, s.created_by
FROM unnest($2::text[]) AS k (id)
CROSS JOIN LATERAL (
  SELECT * FROM core.version v WHERE v.object_id = k.id AND v.scope_key = $1
  ORDER BY v.version_seq DESC LIMIT 1) v
CROSS JOIN LATERAL (
  SELECT s.created_by FROM core.version_span s WHERE s.scope_key = $1 AND s.from_seq = v.ledger_seq LIMIT 1) s
"""

TAKEN_IDS_SQL = """
SELECT k.version_id FROM unnest($2::text[]) AS k (version_id)
CROSS JOIN LATERAL (
  SELECT FROM core.version v WHERE v.version_id = k.version_id AND v.scope_key = $1 LIMIT 1) v
"""

# Versions that an entry erased and that came with their content all the same: erased while they were exported.
UNERASED_SQL = """
SELECT v.ledger_seq FROM unnest($2::text[], $3::integer[], $4::integer[], $5::bigint[]) AS k (id, low, high, before)
CROSS JOIN LATERAL (
  SELECT v.ledger_seq FROM core.version v
  WHERE v.object_id = k.id AND v.scope_key = $1 AND v.version_seq BETWEEN k.low AND k.high AND v.ledger_seq < k.before
  OFFSET 0) v
CROSS JOIN LATERAL (
  SELECT FROM core.version_private p
  WHERE p.scope_key = $1 AND p.ledger_seq = v.ledger_seq AND p.salt IS NOT NULL LIMIT 1) p
"""

ERASED_SQL = """
SELECT v.ledger_seq, v.object_id, v.version_seq
FROM (SELECT * FROM core.version_private WHERE scope_key = $1 AND ledger_seq > $2 AND private IS NULL
      ORDER BY ledger_seq LIMIT $3) p
CROSS JOIN LATERAL (
  SELECT * FROM core.version v WHERE v.scope_key = $1 AND v.ledger_seq = p.ledger_seq LIMIT 1) v
ORDER BY v.ledger_seq
"""

ERASING_SQL = """
SELECT l.subject_id, l.sequence, l.event FROM unnest($2::text[]) AS k (id)
CROSS JOIN LATERAL (
  SELECT * FROM core.ledger l WHERE l.subject_id = k.id AND l.scope_key = $1
    AND l.event_type IN ('object_redacted', 'object_deleted') OFFSET 0) l
"""

REPEATED_EVENT_SQL = """
SELECT max(sequence) FROM core.ledger WHERE scope_key = $1 GROUP BY event_id HAVING count(*) > 1 LIMIT 1
"""

INSERT_SCHEMA_SQL = """
INSERT INTO core.content_schema
  (scope_key, schema_id, document, digest, actor_id, authenticated_as, operation_id, registered_at)
VALUES ($1, $2, $3, sha256($3), $4, $5, $6, $7) ON CONFLICT DO NOTHING
"""

INSERT_HOLD_SQL = """
INSERT INTO core.legal_hold (scope_key, hold_id, object_type, policy_basis, actor_id, authenticated_as, operation_id,
  placed_at, placed_seq, released_at, release_basis, released_by, release_operation_id, undone)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
"""

# An object that is not on hold at the position of the file is left to the job, which looks at every head again.
INSERT_HELD_SQL = """
INSERT INTO core.held_object (scope_key, object_id, hold_id, retention_state)
SELECT $1, k.object_id, k.hold_id, k.retention_state
FROM unnest($2::text[], $3::text[], $4::text[]) AS k (object_id, hold_id, retention_state)
CROSS JOIN LATERAL (
  SELECT * FROM core.version_span s
  WHERE s.object_id = k.object_id AND s.scope_key = $1 AND s.to_seq = 9223372036854775807 LIMIT 1) s
WHERE s.retention_state = 'legal_hold'
  AND EXISTS (SELECT FROM core.legal_hold h WHERE h.scope_key = $1 AND h.hold_id = k.hold_id)
"""

INSERT_IMPORT_SQL = """
INSERT INTO core.scope_import (scope_key, digest, ledger_id, remapped, last_seq, answer) VALUES ($1, $2, $3, $4, $5, $6)
"""

INSERT_RECORD_SQL = """
INSERT INTO core.operation_record
  (scope_key, operation_hash, key_hash, operation, operation_id, actor_id, state, salt, fingerprint, status, last_seq,
   answer, created_at)
VALUES ($1, $2, $3, 'import', $4, $5, 'c', $6, $7, 200, $8, $9, clock_timestamp()) ON CONFLICT DO NOTHING
"""


class Target(NamedTuple):
    """The scope that an import finds under the name."""

    ledger_id: bytes
    document: bytes
    last_seq: int
    last_hash: bytes
    ledger_epoch: int
    rules_version: int
    digest: bytes | None
    remapped: bool | None
    answer: bytes | None
    imported_seq: int | None


async def target(conn: Connection, scope_key: int) -> Target | None:
    """A scope as it is now."""
    row = await conn.fetchrow(TARGET_SQL, scope_key)
    return None if row is None else Target._make(row)


async def insert_schema(conn: Connection, scope_key: int, line: SchemaLine) -> None:
    """Give a scope a schema, unless it has one of that id."""
    await conn.execute(
        INSERT_SCHEMA_SQL,
        scope_key,
        line.schema_id,
        bytes(line.document),
        line.actor_id,
        line.authenticated_as,
        line.operation_id,
        parse(line.registered_at),
    )


async def insert_hold(conn: Connection, scope_key: int, line: HoldLine) -> None:
    """Place a hold as it was placed; the job looks at its objects again."""
    await conn.execute(
        INSERT_HOLD_SQL,
        scope_key,
        line.hold_id,
        line.object_type,
        line.policy_basis,
        line.actor_id,
        line.authenticated_as,
        line.operation_id,
        parse(line.placed_at),
        line.placed_sequence,
        None if line.released_at is None else parse(line.released_at),
        line.release_basis,
        line.released_by,
        line.release_operation_id,
        line.undone,
    )


async def insert_held(conn: Connection, scope_key: int, lines: Sequence[HeldLine]) -> None:
    """Remember what objects on hold go back to."""
    await conn.execute(
        INSERT_HELD_SQL,
        scope_key,
        [line.object_id for line in lines],
        [line.hold_id for line in lines],
        [line.retention_state for line in lines],
    )


async def lock_head(conn: Connection, scope_key: int) -> None:
    """Lock a scope; LockNotAvailableError after the lock timeout."""
    await conn.execute(LOCK_HEAD_SQL, scope_key)


async def entry_hash_at(conn: Connection, scope_key: int, sequence: int) -> str | None:
    """The chain hash of an entry, in hexadecimal."""
    found: bytes | None = await conn.fetchval(ENTRY_HASH_SQL, scope_key, sequence)
    return None if found is None else found.hex()


async def adopt(conn: Connection, scope_key: int, ledger_id: bytes, document: bytes) -> None:
    """Give an empty scope the ledger and the document that an import brings."""
    await conn.execute(ADOPT_SCOPE_SQL, scope_key, ledger_id, document)


async def adopt_head(conn: Connection, scope_key: int, root: bytes, ledger_epoch: int) -> None:
    """Let an empty scope's chain begin at a root."""
    await conn.execute(ADOPT_HEAD_SQL, scope_key, root, ledger_epoch)


async def record_operation(conn: Connection, *row: object) -> bool:
    """Remember the import as an operation; False when its id or key is taken."""
    done: str = await conn.execute(INSERT_RECORD_SQL, *row)
    return done.endswith(" 1")


async def record_import(
    conn: Connection, scope_key: int, digest: bytes, ledger_id: bytes, remapped: bool, last_seq: int, answer: bytes
) -> None:
    """Remember what the scope was imported from."""
    await conn.execute(INSERT_IMPORT_SQL, scope_key, digest, ledger_id, remapped, last_seq, answer)


async def known(conn: Connection, scope_key: int, ids: Sequence[str]) -> dict[str, Known]:
    """What the scope has of these objects, relationships and delegations."""
    rows = await conn.fetch(KNOWN_SQL, scope_key, ids)
    return {
        row["id"]: Known(row["kind"].decode(), row["version_seq"], row["ledger_seq"], row["created_by"]) for row in rows
    }


async def taken_ids(conn: Connection, scope_key: int, version_ids: Sequence[str]) -> set[str]:
    """Which of these versions exist already."""
    return {row["version_id"] for row in await conn.fetch(TAKEN_IDS_SQL, scope_key, version_ids)}


async def unerased(conn: Connection, scope_key: int, erasures: Sequence[Erasure]) -> list[int]:
    """The versions that these erasures name and that still have what should be gone, by their ledger sequence."""
    columns = [list(column) for column in zip(*erasures, strict=True)]
    return [row["ledger_seq"] for row in await conn.fetch(UNERASED_SQL, scope_key, *columns)]


async def erased_versions(conn: Connection, scope_key: int, after: int, limit: int) -> list[Erased]:
    """The next versions without their parts, in order."""
    return [Erased._make(row) for row in await conn.fetch(ERASED_SQL, scope_key, after, limit)]


async def erasing_events(conn: Connection, scope_key: int, ids: Iterable[str]) -> list[tuple[str, int, bytes]]:
    """The events that erased something of these subjects."""
    rows = await conn.fetch(ERASING_SQL, scope_key, sorted(set(ids)))
    return [(row["subject_id"], row["sequence"], row["event"]) for row in rows]


async def repeated_event(conn: Connection, scope_key: int, timeout_s: float) -> int | None:
    """The sequence of an entry whose id another entry has too."""
    found: int | None = await conn.fetchval(REPEATED_EVENT_SQL, scope_key, timeout=timeout_s)
    return found


async def tenant_now(conn: Connection, tenant_id: str) -> tuple[int, datetime]:
    """The tenant's authorization epoch, and the clock."""
    row = await conn.fetchrow(TENANT_SQL, tenant_id)
    assert row is not None
    return row["epoch_authz"], row["now"]
