"""Heads are looked up by the index that begins with their id, whatever the statistics say: what an entry costs does not
grow with its scope, also in a new database, of whose rows the planner knows nothing yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import asyncpg
import orjson
import pytest

from conftest import TemplateDatabase
from pamspec_cli.servers import databases
from pamspec_indexing.queries.objects import HEADS_SQL
from services.indexing.tests.world import Garden
from services.write.tests.writer import claim

OBJECTS = 300
ASKED = 10
BY_ID = {
    "version_span": "version_span_head",
    "version_private": "version_private_pkey",
    "version": "version_seq_unique",
    "indexed_object": "indexed_object_pkey",
}


def scans(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The nodes of a plan that read a table."""
    if "Relation Name" in plan:
        yield plan
    for node in plan.get("Plans", []):
        yield from scans(node)


def by_id(plan: dict[str, Any]) -> dict[str, str]:
    """By table that has an index of ids: the one that the plan goes through."""
    return {
        node["Relation Name"]: node.get("Index Name", node["Node Type"])
        for node in scans(plan)
        if node["Relation Name"] in BY_ID
    }


async def test_a_plan_made_on_empty_tables_goes_by_ids(template_database: TemplateDatabase) -> None:
    """A generic plan stays until statistics come."""
    name = databases.new_name("pamspec_plans")
    dsn = await databases.create_database(template_database.server_dsn, name, template_database.name)
    try:
        conn = await asyncpg.connect(databases.role_dsns(dsn, template_database.passwords)["pamspec_indexing"])
        try:
            await conn.execute("SET plan_cache_mode = force_generic_plan")
            await conn.execute(f"PREPARE heads (bigint[], text[]) AS {HEADS_SQL}")
            plan = orjson.loads(await conn.fetchval("EXPLAIN (FORMAT JSON) EXECUTE heads('{1}', '{obj:a}')"))[0]["Plan"]
        finally:
            await conn.close()
    finally:
        await databases.drop_database(template_database.server_dsn, name)
    assert by_id(plan) == BY_ID


@pytest.mark.parametrize("analyzed", [False, True])
async def test_no_more_is_read_than_was_asked_for(garden: Garden, analyzed: bool) -> None:
    writer = garden.writer
    items = [{"operation": "create", **claim(writer.scope, number)} for number in range(OBJECTS)]
    made = (await writer.ok("batch", {"scope_id": writer.scope, "items": items}))["results"]
    await garden.settled()
    if analyzed:
        await writer.admin.execute("ANALYZE core.version, core.version_span, core.version_private")
        await writer.admin.execute("ANALYZE index_.indexed_object")
    await garden.conn.execute("SELECT set_config('pamspec.scope_keys', $1, false)", f"{{{garden.key}}}")
    ids = [one["object_id"] for one in made[:ASKED]]
    arguments = ([garden.key] * ASKED, ids)
    assert len(await garden.conn.fetch(HEADS_SQL, *arguments)) == ASKED
    explained = await garden.conn.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {HEADS_SQL}", *arguments)
    plan = orjson.loads(explained)[0]["Plan"]
    read = {
        node["Relation Name"]: (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        for node in scans(plan)
        if node["Relation Name"] in BY_ID
    }
    assert read == dict.fromkeys(BY_ID, ASKED)
