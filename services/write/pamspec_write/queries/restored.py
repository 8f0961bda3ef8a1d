"""Past versions whose content comes back."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pamspec_common.postgres import Connection
from pamspec_write.model.facts import OldContent, ScopeState

# The range of one id and the order make the index that begins with it the only way (see KEYED_PLANS).
RESTORED_SQL = """
SELECT v.scope_key, v.version_id, v.object_id, v.ledger_seq, s.schema_id, s.availability_state, p.content
FROM unnest($1::bigint[], $2::text[]) AS k (scope_key, version_id)
CROSS JOIN LATERAL (
  SELECT * FROM core.version v
  WHERE v.version_id BETWEEN k.version_id AND k.version_id AND v.scope_key = k.scope_key
  ORDER BY v.version_id LIMIT 1) v
CROSS JOIN LATERAL (
  SELECT * FROM core.version_span s WHERE s.scope_key = v.scope_key AND s.from_seq = v.ledger_seq LIMIT 1) s
CROSS JOIN LATERAL (
  SELECT * FROM core.version_value p WHERE p.scope_key = v.scope_key AND p.ledger_seq = v.ledger_seq LIMIT 1) p
"""


async def restored(conn: Connection, states: Mapping[int, ScopeState], versions: Collection[tuple[int, str]]) -> None:
    """Add to the states what is left of those versions, each by (scope_key, version_id)."""
    columns = [list(column) for column in zip(*versions, strict=True)]
    for row in await conn.fetch(RESTORED_SQL, *columns):
        states[row["scope_key"]].old[row["version_id"]] = OldContent(
            row["object_id"], row["ledger_seq"], row["schema_id"], row["availability_state"], row["content"]
        )
