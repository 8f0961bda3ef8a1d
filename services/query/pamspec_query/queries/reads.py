"""How often objects were read by their ids, and when last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pamspec_common.authorization.rows import shown
from pamspec_common.authorization.sight import Sight
from pamspec_common.postgres import Connection
from pamspec_query.queries.predicates import Arguments

READS_SQL = """
SELECT s.object_id, a.reads, a.read_at FROM core.version_span s
JOIN retention.access a ON a.scope_key = s.scope_key AND a.object_id = s.object_id
WHERE s.scope_key = $1 AND s.object_id = ANY ($2::text[]) AND s.to_seq = 9223372036854775807
  AND s.kind = 'o' AND s.availability_state <> 'deleted'
"""
_ORDER = " ORDER BY s.object_id"


@dataclass(frozen=True, slots=True)
class Reads:
    """The noted reads of one object."""

    object_id: str
    reads: int
    read_at: datetime


async def reads(conn: Connection, scope_key: int, object_ids: Sequence[str], sight: Sight) -> list[Reads]:
    """The noted reads of those of these objects that are seen, in the order of their ids."""
    arguments = Arguments([scope_key, list(object_ids)])
    condition = "" if sight.everything else " AND " + shown(sight, arguments.values, is_head=True)
    return [Reads(*row) for row in await conn.fetch(READS_SQL + condition + _ORDER, *arguments.values)]
