"""The retention rules of a scope as a query needs them, and what they hide as a condition on a version's row `s`."""

from __future__ import annotations

from typing import LiteralString

from pamspec_common.postgres import Connection
from pamspec_common.scope_policy import stored_policy
from pamspec_query.model.lapses import Lapse, Lapses, endings
from pamspec_query.queries.heads import positions_at
from pamspec_query.queries.predicates import Arguments, any_of

# The clock of a scope for evaluations is that of its last entry. A policy that never spoke of retention has no row.
RULES_SQL = """
SELECT p.policy, h.last_seq,
  CASE WHEN convert_from(s.document, 'UTF8') LIKE '%"scope_kind":"evaluation"%' THEN h.last_at
  ELSE clock_timestamp() END AS now
FROM retention.scope r JOIN core.scope s USING (scope_key) JOIN core.scope_head h USING (scope_key)
CROSS JOIN LATERAL (
  SELECT c.policy FROM core.scope_policy c WHERE c.scope_key = $1 ORDER BY c.policy_version DESC LIMIT 1) p
WHERE r.scope_key = $1
"""


async def lapses(conn: Connection, scope_key: int) -> Lapses:
    """What has lapsed by now in a scope."""
    row = await conn.fetchrow(RULES_SQL, scope_key)
    if row is None:
        return Lapses(scope_key)
    found = endings(stored_policy(row["policy"]).retention, row["now"])
    instants = sorted({one.created_by for one in found if one.created_by is not None})
    positions = await positions_at(conn, scope_key, instants, row["last_seq"]) if instants else []
    known = dict(zip(instants, positions, strict=True))
    return Lapses(scope_key, [Lapse(one, None if one.created_by is None else known[one.created_by]) for one in found])


def unlapsed(found: Lapses, arguments: Arguments) -> list[LiteralString]:
    """Conditions under which a version is of an object that has not lapsed; none where no rule ends anything."""
    if not found.lapses:
        return []
    scope = arguments.add(found.scope_key, "bigint")
    ended = any_of([_ended(one, scope, arguments) for one in found.lapses])
    return ["(s.scope_key <> " + scope + " OR s.kind <> 'o' OR (" + ended + ") IS NOT TRUE)"]


def _ended(one: Lapse, scope: LiteralString, arguments: Arguments) -> LiteralString:
    ending = one.ending
    by: list[LiteralString] = []
    if ending.valid_until is not None:
        by.append("s.valid_until <= " + arguments.add(ending.valid_until, "timestamptz"))
    if one.created_seq is not None:
        created = arguments.add(one.created_seq, "bigint")
        # A version is as old as its object at most; only of a later version the first one is looked up.
        by.append("s.from_seq <= " + created)
        by.append(
            "(s.version_seq > 1 AND EXISTS (SELECT FROM core.version b WHERE b.object_id = s.object_id"
            " AND b.scope_key = " + scope + " AND b.version_seq = 1 AND b.ledger_seq <= " + created + "))"
        )
    of: LiteralString
    if ending.types is not None:
        of = "s.object_type = ANY (" + arguments.add(list(ending.types), "text[]") + ")"
    elif ending.others:
        of = "s.object_type <> ALL (" + arguments.add(list(ending.others), "text[]") + ")"
    else:
        of = "true"
    return "(" + of + " AND (" + any_of(by) + "))"
