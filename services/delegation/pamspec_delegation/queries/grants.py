"""Grants as checks, explanations and lists look at them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from pamspec_common.authorization.rights import Epochs
from pamspec_common.delegation.grants import Chain
from pamspec_common.delegation.loading import grant_of_row
from pamspec_common.envelope import envelope_bytes
from pamspec_common.postgres import Connection

FACTS_SQL = "SELECT * FROM delegation.facts($1, $2, $3)"

EPOCHS_SQL = """
SELECT h.scope_key, h.epoch_authz, t.epoch_authz AS tenant_authz, clock_timestamp() AS now
FROM core.scope s
JOIN core.scope_head h ON h.scope_key = s.scope_key
JOIN core.tenant t ON t.tenant_id = s.tenant_id
WHERE s.scope_key = ANY ($1::bigint[])"""

LISTED_SQL = "SELECT * FROM delegation.listed($1, $2, $3, $4, $5, $6, $7, $8)"

RECORDS_SQL = "SELECT * FROM delegation.records($1, $2)"

EXERCISES_SQL = """
SELECT operation, sum(times)::bigint AS times FROM delegation.exercise WHERE delegation_id = $1 AND scope_key = $2
GROUP BY operation ORDER BY operation"""

REACHABLE_SQL = "SELECT 1 FROM delegation.inbox LIMIT 1"


class Facts(NamedTuple):
    """What a check rests on, all of one moment."""

    chain: Chain
    now: datetime
    target_epochs: Epochs
    """Of the scope in which the grant works."""
    home_epochs: Epochs
    """Of the scope in which it was granted."""
    ledger_epoch: int
    envelope: bytes
    object_kind: str | None
    object_type: str | None
    """Of the object that was asked about, where it is."""


class Listed(NamedTuple):
    """A grant in a list."""

    delegation_id: str
    scope_key: int
    usage_limit: int | None
    used: int
    redelegation_depth: int
    in_force: bool

    @property
    def remaining_uses(self) -> int | None:
        """As far as its own limit goes."""
        return None if self.usage_limit is None else max(0, self.usage_limit - self.used)


async def fetch_facts(conn: Connection, tenant_id: str, delegation_id: str, object_id: str | None) -> Facts | None:
    """What a check of a grant rests on; None where the tenant has no such grant."""
    rows = await conn.fetch(FACTS_SQL, tenant_id, delegation_id, object_id)
    if not rows:
        return None
    last = rows[-1]
    kind = last["object_kind"]
    return Facts(
        chain=tuple(grant_of_row(row) for row in rows),
        now=last["now"],
        target_epochs=Epochs(last["target_epoch"], last["tenant_epoch"]),
        home_epochs=Epochs(last["home_epoch"], last["tenant_epoch"]),
        ledger_epoch=last["ledger_epoch"],
        envelope=envelope_bytes(last["metadata"], None, last["private"]),
        object_kind=None if kind is None else kind.decode(),
        object_type=last["object_type"],
    )


async def fetch_epochs(conn: Connection, scope_keys: Sequence[int]) -> tuple[dict[int, Epochs], datetime | None]:
    """The authorization epochs of scopes now, and PostgreSQL's clock."""
    rows = await conn.fetch(EPOCHS_SQL, scope_keys)
    found = {row["scope_key"]: Epochs(row["epoch_authz"], row["tenant_authz"]) for row in rows}
    return found, rows[0]["now"] if rows else None


async def fetch_listed(
    conn: Connection,
    tenant_id: str,
    viewer: str | None,
    grantor: str | None,
    delegate: str | None,
    scope_key: int | None,
    in_force: bool | None,
    after: str,
    limit: int,
) -> list[Listed]:
    """Grants in the order of their ids, after an id."""
    rows = await conn.fetch(LISTED_SQL, tenant_id, viewer, grantor, delegate, scope_key, in_force, after, limit)
    return [Listed(*row) for row in rows]


async def fetch_records(conn: Connection, listed: Sequence[Listed]) -> dict[str, bytes]:
    """The envelopes of grants."""
    rows = await conn.fetch(RECORDS_SQL, [one.scope_key for one in listed], [one.delegation_id for one in listed])
    return {row["delegation_id"]: envelope_bytes(row["metadata"], None, row["private"]) for row in rows}


async def fetch_exercises(conn: Connection, delegation_id: str, scope_key: int) -> dict[str, int]:
    """How often each operation was carried out under a grant, as far as the ledger was consumed."""
    return {row["operation"]: row["times"] for row in await conn.fetch(EXERCISES_SQL, delegation_id, scope_key)}
