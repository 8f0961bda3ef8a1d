"""The service's door to PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence

from pamspec_common import store
from pamspec_delegation.queries import grants
from pamspec_delegation.queries.grants import Facts, Listed


class Store(store.Store):
    """Connections of one process, and what is read of grants."""

    name = "delegation"
    reach_sql = grants.REACHABLE_SQL

    async def facts(self, tenant_id: str, delegation_id: str, object_id: str | None) -> Facts | None:
        """What a check of a grant rests on."""
        async with self.session() as conn:
            return await grants.fetch_facts(conn, tenant_id, delegation_id, object_id)

    async def records(self, listed: Sequence[Listed]) -> dict[str, bytes]:
        """The envelopes of grants."""
        if not listed:
            return {}
        async with self.session() as conn:
            return await grants.fetch_records(conn, listed)
