"""The statements of checkpoints. What is written is guarded by the lease of the scope's partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from pamspec_common.merkle import Node
from pamspec_common.postgres import Connection
from pamspec_relay.queries import Claim

SCAN_TIMEOUT_S = 600.0

SELECT_BEHIND_SQL = """
SELECT h.scope_key
FROM core.scope s JOIN core.scope_head h USING (scope_key) LEFT JOIN relay.checkpoint c USING (scope_key)
WHERE s.partition = $1 AND h.last_seq > 0
  AND (c.size IS NULL OR c.size <> h.last_seq OR c.ledger_epoch <> h.ledger_epoch OR c.anchored_at <= 0)
LIMIT $2
"""

SELECT_STATES_SQL = """
SELECT s.scope_key, s.partition, s.scope_id, s.tenant_token, s.scope_token, s.ledger_id, h.ledger_epoch, h.last_seq,
  coalesce(c.size, 0), coalesce(c.frontier, ''), coalesce(c.ledger_epoch, 0), coalesce(c.anchored_at, 0),
  c.document, clock_timestamp()
FROM unnest($1::bigint[]) AS k(scope_key)
JOIN core.scope s USING (scope_key) JOIN core.scope_head h USING (scope_key)
LEFT JOIN relay.checkpoint c USING (scope_key)
ORDER BY s.scope_key
"""

SELECT_HASHES_SQL = """
SELECT r.scope_key, l.sequence, l.entry_hash
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS r(scope_key, after, upto)
CROSS JOIN LATERAL (
  SELECT sequence, entry_hash FROM core.ledger
  WHERE scope_key = r.scope_key AND sequence > r.after AND sequence <= r.upto ORDER BY sequence) l
ORDER BY r.scope_key, l.sequence
"""

FORGET_ANCHORS_SQL = "UPDATE relay.checkpoint SET anchored_at = 0 WHERE anchored_at <> 0"

STORE_SQL = """
WITH held AS (
  SELECT FROM relay.lease WHERE partition = $1 AND epoch = $2 AND owner = $3 AND expires_at > clock_timestamp()),
nodes AS (
  INSERT INTO relay.tree_node (scope_key, height, position, hash)
  SELECT n.* FROM unnest($10::bigint[], $11::smallint[], $12::bigint[], $13::bytea[]) AS n, held
  ON CONFLICT (scope_key, height, position) DO UPDATE SET hash = excluded.hash
  WHERE relay.tree_node.hash <> excluded.hash)
INSERT INTO relay.checkpoint (scope_key, partition, size, frontier, ledger_epoch, document, anchored_at, made_at)
SELECT c.scope_key, $1, c.size, c.frontier, c.ledger_epoch, c.document, c.anchored_at, clock_timestamp()
FROM unnest($4::bigint[], $5::bigint[], $6::bytea[], $7::integer[], $8::bytea[], $9::bigint[])
  AS c(scope_key, size, frontier, ledger_epoch, document, anchored_at), held
ON CONFLICT (scope_key) DO UPDATE
  SET partition = excluded.partition, size = excluded.size, frontier = excluded.frontier,
    ledger_epoch = excluded.ledger_epoch, document = excluded.document, anchored_at = excluded.anchored_at,
    made_at = excluded.made_at
"""


class ScopeState(NamedTuple):
    """A scope's head, and how far its tree has grown."""

    scope_key: int
    partition: int
    scope_id: str
    tenant_token: str
    scope_token: str
    ledger_id: bytes
    ledger_epoch: int
    last_seq: int
    size: int
    frontier: bytes
    signed_epoch: int
    """The epoch of the newest checkpoint, 0 where there is none."""
    anchored_at: int
    document: bytes | None
    now: datetime


class Stored(NamedTuple):
    """A scope's checkpoint to be stored."""

    scope_key: int
    size: int
    frontier: bytes
    ledger_epoch: int
    document: bytes
    anchored_at: int


async def fetch_behind(conn: Connection, partition: int, limit: int) -> list[int]:
    """Scopes of a partition whose head has no checkpoint, or none that is anchored."""
    rows = await conn.fetch(SELECT_BEHIND_SQL, partition, limit, timeout=SCAN_TIMEOUT_S)
    return [row[0] for row in rows]


async def forget_anchors(conn: Connection) -> bool:
    """The bucket is empty: every checkpoint has to be put there again; whether there was any."""
    return await conn.execute(FORGET_ANCHORS_SQL, timeout=SCAN_TIMEOUT_S) != "UPDATE 0"


async def fetch_states(conn: Connection, scope_keys: Sequence[int]) -> list[ScopeState]:
    """The state of these scopes, of one moment."""
    return [ScopeState(*row) for row in await conn.fetch(SELECT_STATES_SQL, list(scope_keys))]


async def fetch_hashes(conn: Connection, ranges: Sequence[tuple[int, int, int]]) -> dict[int, list[tuple[int, bytes]]]:
    """(sequence, chain hash) of the entries after one position up to another, by scope."""
    found: dict[int, list[tuple[int, bytes]]] = {}
    columns = [[item[column] for item in ranges] for column in range(3)]
    for scope_key, sequence, entry_hash in await conn.fetch(SELECT_HASHES_SQL, *columns):
        found.setdefault(scope_key, []).append((sequence, entry_hash))
    return found


async def store(
    conn: Connection, claim: Claim, checkpoints: Sequence[Stored], nodes: Mapping[int, Mapping[Node, bytes]]
) -> bool:
    """Store checkpoints with the nodes of their trees; False, and nothing stored, without the lease."""
    kept = [(key, node.height, node.position, root) for key, of in nodes.items() for node, root in of.items()]
    status = await conn.execute(
        STORE_SQL,
        claim.partition,
        claim.epoch,
        claim.owner,
        *([item[column] for item in checkpoints] for column in range(6)),
        *([item[column] for item in kept] for column in range(4)),
    )
    return status == f"INSERT 0 {len(checkpoints)}"
