"""What proofs are made of: the newest checkpoint, the kept nodes of its tree, and the chain hashes of few entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pamspec_common.merkle import Node, Span, leaf_hash
from pamspec_common.postgres import Connection

CHECKPOINT_SQL = "SELECT document FROM relay.checkpoint WHERE scope_key = $1"

NODES_SQL = """
SELECT n.height, n.position, n.hash
FROM unnest($2::smallint[], $3::bigint[], $4::bigint[]) AS r(height, low, high)
JOIN relay.tree_node n ON n.scope_key = $1 AND n.height = r.height AND n.position >= r.low AND n.position < r.high
"""

LEAVES_SQL = """
SELECT l.sequence, l.entry_hash
FROM unnest($2::bigint[], $3::bigint[]) AS r(low, high)
JOIN core.ledger l ON l.scope_key = $1 AND l.sequence > r.low AND l.sequence <= r.high
"""


async def checkpoint(conn: Connection, scope_key: int) -> bytes | None:
    """The newest signed checkpoint of a scope; None before the first."""
    document: bytes | None = await conn.fetchval(CHECKPOINT_SQL, scope_key)
    return document


async def nodes(conn: Connection, scope_key: int, needed: Mapping[int, Sequence[Span]]) -> dict[Node, bytes]:
    """The nodes of these ranges by height, the leaves among them; what is not there is left out."""
    kept = [(height, low, high) for height, spans in needed.items() if height for low, high in spans]
    found: dict[Node, bytes] = {}
    if kept:
        columns = ([item[column] for item in kept] for column in range(3))
        found = {Node(row[0], row[1]): row[2] for row in await conn.fetch(NODES_SQL, scope_key, *columns)}
    leaves = needed.get(0, ())
    if leaves:
        rows = await conn.fetch(LEAVES_SQL, scope_key, [span.low for span in leaves], [span.high for span in leaves])
        found |= {Node(0, sequence - 1): leaf_hash(entry_hash) for sequence, entry_hash in rows}
    return found


async def entry_hashes(conn: Connection, scope_key: int, low: int, high: int) -> dict[int, bytes]:
    """The chain hashes of the entries after one position up to another, by sequence."""
    rows = await conn.fetch(LEAVES_SQL, scope_key, [low], [high])
    return {row["sequence"]: row["entry_hash"] for row in rows}
