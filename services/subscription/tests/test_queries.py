"""Every statement prepares against the migrated schema, and the hot ones walk the index they should."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import asyncpg
import orjson
import pytest

from pamspec_cli.servers.databases import Database
from pamspec_common.postgres import KEYED_PLANS
from pamspec_subscription.queries import cursors, leases, ledger, subscriptions
from services.subscription.tests.test_limits import seed
from services.subscription.tests.world import World

MODULES = (cursors, leases, ledger, subscriptions)


@pytest.fixture(scope="module")
def statements() -> list[tuple[ModuleType, str]]:
    return [(module, name) for module in MODULES for name in vars(module) if name.endswith("_SQL")]


async def test_every_statement_prepares_as_the_service_role(
    database: Database, statements: list[tuple[ModuleType, str]]
) -> None:
    conn = await asyncpg.connect(database.role("subscription"))
    for module, name in statements:
        await conn.prepare(getattr(module, name))
    await conn.close()
    assert len(statements) >= 25


async def test_pages_and_heads_walk_their_indexes(world: World) -> None:
    """As the service role, under row-level security, by a generic plan."""
    scope = await world.scope()
    await seed(world, scope, 30_000)
    key = await world.scope_key(scope)
    await world.admin.execute("ANALYZE core.ledger; ANALYZE core.scope_head; ANALYZE subscription.subscription")
    conn = await asyncpg.connect(world.database.role("subscription"))
    for name, value in KEYED_PLANS.items():
        await conn.execute(f"SET {name} = {value}")
    for sql, arguments in [
        (ledger.PAGE_SQL, f"{key}, 20000, 30000, 1000"),
        (ledger.TYPED_PAGE_SQL, f"{key}, 20000, 30000, 1000, '{{object_deleted}}'"),
        (ledger.SUBJECT_PAGE_SQL, f"{key}, 20000, 30000, 1000, '{{object_deleted}}', 'obj:x', '{{access_denied}}'"),
    ]:
        await conn.execute(f"PREPARE page AS {sql}")
        async with conn.transaction():
            await conn.execute(f"SET LOCAL pamspec.scope_keys = '{{{key}}}'")
            text = await conn.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE page ({arguments})")
        await conn.execute("DEALLOCATE page")
        plan = orjson.loads(text)[0]["Plan"]
        nodes = list(_nodes(plan))
        assert not [node for node in nodes if node["Node Type"] in ("Seq Scan", "Sort", "Incremental Sort")], text
        assert [node["Index Name"] for node in nodes if "Index Name" in node] == ["ledger_pkey"], text
        assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 2000, text
    text = await conn.fetchval(
        f"EXPLAIN (FORMAT JSON) {subscriptions.LOAD_SQL}".replace("$1", "'t'").replace("$2", "'sub:1'")
    )
    nodes = list(_nodes(orjson.loads(text)[0]["Plan"]))
    assert "subscription_pkey" in {node.get("Index Name") for node in nodes} or len(nodes) < 8, text
    await conn.close()


def _nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    found = [plan]
    for below in plan.get("Plans", []):
        found += _nodes(below)
    return found


async def test_another_scope_stays_out_of_sight(world: World) -> None:
    """The second wall: without its key set, a scope's ledger does not exist for the service's role."""
    scope = await world.scope()
    await world.create(scope, 1)
    conn = await asyncpg.connect(world.database.role("subscription"))
    assert await conn.fetchval("SELECT count(*) FROM core.ledger") == 0
    assert await conn.fetchval("SELECT count(*) FROM core.version") == 0
    for statement in ("DELETE FROM core.ledger", "INSERT INTO core.tenant VALUES ('t')", "SELECT 1 FROM core.api_key"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await conn.execute(statement)
    await conn.close()
