"""The look-ups by an id go through the index that begins with it, on a table without statistics and with them.

As the role of the service, under row-level security, with the settings of its pool: no look-up begins with a scope.
"""

from __future__ import annotations

from typing import Any

import asyncpg
import orjson
import pytest
import pytest_asyncio

from pamspec_cli.servers.databases import Database
from pamspec_common.calls import Call
from pamspec_common.postgres import KEYED_PLANS
from pamspec_write.queries.prefetch import PREFETCH_SQL, VERSIONS_SQL
from pamspec_write.queries.relationships import ENDS_SQL
from pamspec_write.queries.restored import RESTORED_SQL
from pamspec_write.queries.snapshots import MEMBERS_SQL
from services.write.tests.writer import AGENT, PROVENANCE, Document, Writer, claim, edge

TARGETS = 1000


@pytest_asyncio.fixture(loop_scope="session")
async def hub(writer: Writer) -> Document:
    """An object that is joined to a thousand others, each by an active and an archived relationship."""
    made = await writer.create("hub")
    items = [{"operation": "create", **claim(writer.scope, number)} for number in range(TARGETS)]
    targets = await _batch(writer, items)
    for state in ("archived", "active"):
        await _batch(
            writer,
            [{"operation": "relate", **edge(made, target, lifecycle_state=state)} for target in targets],
        )
    return {"hub": made, "targets": targets}


async def _batch(writer: Writer, items: list[Document]) -> list[Document]:
    body = orjson.dumps({"scope_id": writer.scope, "items": items})
    answer = await writer.service.operations["batch"](Call("batch", writer.signer.sign(AGENT), body))
    results: list[Document] = orjson.loads(answer.body)["results"]
    assert not any("error" in result for result in results)
    return results


async def explained(database: Database, key: int, sql: str, arguments: list[Any]) -> tuple[set[str], int]:
    """The indexes that the statement goes through, and how many rows its scans of tables meet."""
    conn = await asyncpg.connect(database.role("write"), server_settings=KEYED_PLANS)
    await conn.execute("SELECT set_config('pamspec.scope_keys', $1, false)", f"{{{key}}}")
    plan = orjson.loads(await conn.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", *arguments))[0]["Plan"]
    await conn.close()
    indexes, rows = set(), 0
    nodes = [plan]
    while nodes:
        node = nodes.pop()
        nodes += node.get("Plans", [])
        assert node["Node Type"] != "Seq Scan", node
        if "Index Name" in node:
            indexes.add(node["Index Name"])
            rows += int((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"])
    return indexes, rows


@pytest.fixture(params=["young", "analyzed"])
async def statistics(request: pytest.FixtureRequest, writer: Writer, hub: Document) -> None:
    """What the planner knows: nothing, or all that there is."""
    if request.param == "analyzed":
        await writer.admin.execute(
            "ANALYZE core.version, core.version_span, core.version_private, core.operation_record"
        )


async def test_an_edge_and_its_ends_are_found_by_index(
    writer: Writer, database: Database, hub: Document, statistics: None
) -> None:
    key = await writer.scope_key()
    source, target = hub["hub"]["object_id"], hub["targets"][500]["object_id"]
    archived = await writer.admin.fetchval(
        "SELECT object_id FROM core.object_head WHERE target_object_id = $1 AND lifecycle_state = 'archived'", target
    )
    arguments = [
        *([key, key], [source, target]),
        *([key], [source], [target], ["supports"], [""]),
        *([key], [archived]),
        *([key], [archived]),
    ]
    indexes, rows = await explained(database, key, ENDS_SQL, arguments)
    assert indexes == {"version_seq_unique", "version_span_pkey", "version_span_active_edge"}
    assert rows <= 12


async def test_a_restored_version_is_found_by_index(
    writer: Writer, database: Database, hub: Document, statistics: None
) -> None:
    first = hub["targets"][1]
    await writer.ok("update", writer.change(first, canonical_content=2, provenance=PROVENANCE))
    key = await writer.scope_key()
    indexes, rows = await explained(database, key, RESTORED_SQL, [[key], [first["version_id"]]])
    assert indexes == {"version_id_unique", "version_span_pkey", "version_private_pkey", "data_key_pkey"}
    assert rows == 3
    indexes, rows = await explained(database, key, VERSIONS_SQL, [[key], [first["version_id"]]])
    assert (indexes, rows) == ({"version_id_unique"}, 1)


async def test_heads_and_records_are_found_by_index(
    writer: Writer, database: Database, hub: Document, statistics: None
) -> None:
    key = await writer.scope_key()
    document = claim(writer.scope, source_event={"source": "s", "id": "1"}, operation_id="op:1", idempotency_key="k")
    await writer.ok("create", document)
    record = await writer.admin.fetchrow("SELECT * FROM core.operation_record WHERE operation_id = 'op:1'")
    source = await writer.admin.fetchval("SELECT source_hash FROM core.source_event")
    assert record is not None
    arguments = [
        [key],
        *([key], [hub["targets"][700]["object_id"]]),
        *([key], [record["operation_hash"]]),
        *([key], [record["key_hash"]]),
        *([key], [source]),
    ]
    _, rows = await explained(database, key, PREFETCH_SQL, arguments)
    assert rows <= 16


async def test_the_members_of_a_snapshot_are_found_one_by_one(
    writer: Writer, database: Database, hub: Document, statistics: None
) -> None:
    key = await writer.scope_key()
    names = [target["object_id"] for target in hub["targets"]]
    indexes, rows = await explained(database, key, MEMBERS_SQL, [[key] * TARGETS, names])
    assert indexes == {"version_seq_unique", "version_span_pkey"}
    assert rows == 2 * TARGETS
