"""Scopes with something to do, their rules, and the leases on them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from pamspec_common.postgres import Connection
from pamspec_common.retention import Retention
from pamspec_common.scope_policy import STRICT, stored_policy

SCOPES_DUE_SQL = "SELECT scope_key, tenant_id, scope_id FROM retention.scopes_due($1, $2)"
BACKLOG_SQL = "SELECT objects, oldest, scopes_behind FROM retention.backlog($1, $2)"

# One process works on a scope at a time; what a killed one leaves is taken up when its lease has run out.
# No lease lasts ten minutes: one that ends later was written before the store's clock jumped back.
LEASE_SQL = """
UPDATE retention.scope SET leased_until = clock_timestamp() + make_interval(secs => $2)
WHERE scope_key = $1
  AND (leased_until < clock_timestamp() OR leased_until > clock_timestamp() + interval '10 minutes')
RETURNING policy_version, ledger_epoch, followed_seq
"""
RENEW_SQL = (
    "UPDATE retention.scope SET leased_until = clock_timestamp() + make_interval(secs => $2) WHERE scope_key = $1"
)

RULES_SQL = """
SELECT policy_version, policy, last_seq, ledger_epoch, evaluation, last_at, now FROM retention.rules($1)
"""
TAKEN_IN_SQL = """
UPDATE retention.scope SET policy_version = $2, ledger_epoch = $3, followed_seq = 0, counts_reads = $4
WHERE scope_key = $1
"""
FOLLOWED_SQL = "UPDATE retention.scope SET followed_seq = $2 WHERE scope_key = $1 AND policy_version = $3"
NOTHING_DUE_SQL = "DELETE FROM retention.due WHERE scope_key = $1"


@dataclass(frozen=True, slots=True)
class DueScope:
    """A scope that somebody should look at."""

    scope_key: int
    tenant_id: str
    scope_id: str


@dataclass(frozen=True, slots=True)
class Rules:
    """A scope's retention rules and the moment at which they are applied."""

    policy_version: int
    retention: Retention
    last_seq: int
    ledger_epoch: int
    now: datetime
    evaluation: bool

    @property
    def counts_reads(self) -> bool:
        """Whether a rule asks when something was read."""
        return any(rule.counts_reads for rule in self.retention.rules())


@dataclass(frozen=True, slots=True)
class Followed:
    """How far a scope was looked at, and under which policy."""

    policy_version: int
    ledger_epoch: int
    followed_seq: int


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits over all scopes."""

    objects: int
    oldest: datetime | None
    scopes_behind: int


async def scopes_due(conn: Connection, ahead: timedelta, limit: int) -> list[DueScope]:
    """Scopes with something to do that nobody works on."""
    return [DueScope(*row) for row in await conn.fetch(SCOPES_DUE_SQL, ahead, limit)]


async def backlog(conn: Connection, ahead: timedelta, most: int) -> Backlog:
    """How much is due over all scopes, counted up to `most`."""
    row = await conn.fetchrow(BACKLOG_SQL, ahead, most)
    assert row is not None
    return Backlog(*row)


async def lease(conn: Connection, scope_key: int, seconds: float) -> Followed | None:
    """Take a scope for that long; None when somebody else has it."""
    row = await conn.fetchrow(LEASE_SQL, scope_key, seconds)
    return None if row is None else Followed(*row)


async def renew(conn: Connection, scope_key: int, seconds: float) -> None:
    """Keep a scope for that long; 0 gives it back."""
    await conn.execute(RENEW_SQL, scope_key, seconds)


async def rules(conn: Connection, scope_key: int, ahead: timedelta) -> Rules | None:
    """The rules of a scope; its moment is PostgreSQL's clock, in a scope for evaluations that of its last entry."""
    row = await conn.fetchrow(RULES_SQL, scope_key)
    if row is None:
        return None
    policy = STRICT if row["policy"] is None else stored_policy(row["policy"])
    now = row["last_at"] if row["evaluation"] else row["now"] + ahead
    places = (row["last_seq"], row["ledger_epoch"])
    return Rules(row["policy_version"], policy.retention, *places, now, row["evaluation"])


async def take_in(conn: Connection, scope_key: int, found: Rules) -> Followed:
    """Look at every object of a scope anew, under the policy that it has now."""
    await conn.execute(TAKEN_IN_SQL, scope_key, found.policy_version, found.ledger_epoch, found.counts_reads)
    if not found.retention.acts:
        await conn.execute(NOTHING_DUE_SQL, scope_key)
    return Followed(found.policy_version, found.ledger_epoch, 0)


async def followed(conn: Connection, scope_key: int, sequence: int, policy_version: int) -> None:
    """Every head up to a sequence was looked at under that policy."""
    await conn.execute(FOLLOWED_SQL, scope_key, sequence, policy_version)
