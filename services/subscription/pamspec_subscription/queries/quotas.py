"""What tenants and principals may subscribe, and how many subscriptions they have."""

from __future__ import annotations

from pamspec_common.postgres import Connection
from pamspec_common.quotas import Quotas, stored_quotas

QUOTAS_SQL = "SELECT quotas FROM core.quotas_in_force WHERE tenant_id = $1"
# Openings of one tenant that are counted follow one another; no lock of a row is needed for that.
TURN_SQL = "SELECT pg_advisory_xact_lock(hashtextextended('pamspec.subscriptions/' || $1, 0))"
COUNT_SQL = """
SELECT count(*) FROM (
  SELECT FROM subscription.subscription
  WHERE tenant_id = $1 AND ($2::text IS NULL OR principal_id = $2) AND state <> 'closed' LIMIT $3) s
"""


async def quotas_of_tenant(conn: Connection, tenant_id: str) -> Quotas:
    """The tenant's own document."""
    return stored_quotas(await conn.fetchval(QUOTAS_SQL, tenant_id))


async def take_turn(conn: Connection, tenant_id: str) -> None:
    """Wait for the openings of this tenant that are being counted; until the transaction ends others wait for us."""
    await conn.execute(TURN_SQL, tenant_id)


async def count_open(conn: Connection, tenant_id: str, principal_id: str | None, bound: int) -> int:
    """How many subscriptions are not closed, of a principal or of the tenant; counted up to `bound`."""
    counted: int = await conn.fetchval(COUNT_SQL, tenant_id, principal_id, bound)
    return counted
