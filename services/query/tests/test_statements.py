"""Every statement fits the migrated schema, and the hot ones use their index as the service's role sees the tables."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import asyncpg
import orjson
import pytest
import pytest_asyncio

from conftest import TemplateDatabase
from pamspec_cli.servers import databases
from pamspec_cli.servers.databases import Database
from pamspec_common.analysis import sought
from pamspec_common.verification import pages
from pamspec_query.documents import Query, decode
from pamspec_query.model.plan import Plan, plan
from pamspec_query.model.snapshots import Snapshot
from pamspec_query.queries import (
    candidates,
    comparison,
    export,
    heads,
    history,
    lapses,
    proofs,
    reads,
    snapshots,
    spaces,
)
from pamspec_query.queries.candidates import Depth, Near, Reached, Source, Words
from pamspec_query.queries.statements import At, Within, hint_statement, page_statement
from services.query.tests import indexed
from services.query.tests.asking import eq
from services.query.tests.door import Conn
from services.query.tests.seeds import START, Scope

CONSTANTS = {
    f"{module.__name__.rpartition('.')[2]}.{name}": getattr(module, name)
    for module in (heads, history, pages, proofs, export, snapshots, comparison, candidates, spaces, lapses, reads)
    for name in vars(module)
    if name.endswith("_SQL")
}


@pytest_asyncio.fixture
async def reader(database: Database) -> AsyncIterator[Conn]:
    """A connection of the service's role."""
    conn = await asyncpg.connect(database.role("query"), server_settings={"jit": "off"})
    yield conn
    await conn.close()


@pytest.mark.parametrize("name", CONSTANTS)
async def test_constants_fit_the_schema(reader: Conn, name: str) -> None:
    statement = await reader.prepare(CONSTANTS[name])
    assert statement.get_attributes()


async def test_the_role_can_only_read(reader: Conn, seeding: Conn) -> None:
    scope = Scope("workspace:a")
    scope.put("obj:x", 1)
    await scope.flush(seeding)
    assert await reader.fetchval("SELECT count(*) FROM core.version") == 0, "no scope set, nothing seen"
    await reader.execute(f"SET pamspec.scope_keys = '{{{scope.key}}}'")
    assert await reader.fetchval("SELECT count(*) FROM core.version") == 1
    for sql in (
        "DELETE FROM core.ledger",
        "UPDATE core.version_private SET content = NULL",
        "INSERT INTO core.tenant (tenant_id) VALUES ('x')",
        "SELECT * FROM core.api_key",
        "SELECT * FROM core.scope_import",
        "UPDATE core.operation_record SET salt = NULL",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await reader.execute(sql)


def planned(query: dict[str, Any] | None = None, **more: Any) -> Plan:
    return plan(decode(Query, {"scope_id": "workspace:big", "query": {"kind": "structured", **(query or {})}, **more}))


class Explained:
    """The scans of a statement, and how many rows they touched."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.indexes: set[str] = set()
        self.touched = 0
        self.sequential = False
        self.joined: set[str] = set()
        self._visit(document["Plan"])

    def _visit(self, node: dict[str, Any]) -> None:
        if "Index Name" in node:
            self.indexes.add(node["Index Name"])
        if node["Node Type"] == "Seq Scan":
            self.sequential = True
        if node["Node Type"] in ("Hash Join", "Merge Join"):
            self.joined.add(node["Node Type"])
        if "Scan" in node["Node Type"] and "Relation Name" in node:
            rows = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
            self.touched += int(rows * node["Actual Loops"])
        for below in node.get("Plans", []):
            self._visit(below)


async def explain(reader: Conn, scope: Scope, sql: str, arguments: list[Any]) -> Explained:
    """The plan as a query's transaction gets it."""
    async with reader.transaction():
        await reader.execute(
            f"SET LOCAL pamspec.scope_keys = '{{{scope.key}}}'; SET LOCAL plan_cache_mode = force_custom_plan"
        )
        text = await reader.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", *arguments)
    return Explained(orjson.loads(text)[0])


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def large(template_database: TemplateDatabase) -> AsyncIterator[tuple[Database, Scope]]:
    """A database for all tests here, with 20,000 objects in one scope beside another scope.

    Mostly unverified observations, every twentieth corroborated, few of any other type or state; and one object that
    was updated thousands of times last.
    """
    name = databases.new_name("pamspec_large")
    dsn = await databases.create_database(template_database.server_dsn, name, template_database.name)
    conn = await asyncpg.connect(dsn)
    other, scope = Scope("workspace:other"), Scope("workspace:big")
    for index in range(2_000):
        other.put(f"obj:{index}", index)
    for index in range(20_000):
        kind = "claim" if index % 2_500 == 3 else "observation"
        validation = "corroborated" if index % 20 == 0 else "unverified"
        lifecycle = "archived" if index % 4_000 == 7 else "active"
        at = START + timedelta(seconds=index)
        scope.put(
            f"obj:{index}", index, object_type=kind, observed_at=at, validation_state=validation,
            lifecycle_state=lifecycle,
        )  # fmt: skip
    for index in range(6_000):
        scope.put("obj:counter", index, validation_state="unverified")
    for index in range(2_000):
        joined = {"source_object_id": f"obj:{index}", "target_object_id": f"obj:{index * 7}"}
        scope.put(f"rel:{index}", None, kind="r", object_type="supports", metadata=joined)
    await other.flush(conn)
    await scope.flush(conn)
    await conn.execute("ANALYZE core.version, core.version_private, core.version_span, core.ledger")
    await conn.close()
    yield Database(name, dsn, databases.role_dsns(dsn, template_database.passwords)), scope
    await databases.drop_database(template_database.server_dsn, name)


@pytest.fixture
def big(large: tuple[Database, Scope]) -> Scope:
    """The large scope."""
    return large[1]


@pytest_asyncio.fixture
async def big_reader(large: tuple[Database, Scope]) -> AsyncIterator[Conn]:
    """A connection of the service's role to the large scope's database."""
    conn = await asyncpg.connect(large[0].role("query"), server_settings={"jit": "off"})
    yield conn
    await conn.close()


PLAIN: list[tuple[str, dict[str, Any], str]] = [
    ("one id", {"trust": "all", "where": eq("object_id", "obj:77")}, "version_span_head"),
    ("one provenance", {"trust": "all", "filters": {"provenance_id": ["prov:77"]}}, "version_span_head_provenance"),
    ("one version", {"trust": "all", "where": eq("version_id", "ver:77")}, "version_id_unique"),
    ("one source", {"trust": "all", "where": eq("source_object_id", "obj:77")}, "version_span_source"),
    ("one target", {"trust": "all", "where": eq("target_object_id", "obj:77")}, "version_span_target"),
    ("relationships", {"trust": "all", "filters": {"relationship_type": "any"}}, "version_span_head_relationships"),
    (
        "observed then",
        {
            "kind": "temporal",
            "trust": "all",
            "temporal_basis": "observed_at",
            "range": {"from": "2026-03-01T10:00:00Z", "to": "2026-03-01T10:01:00Z"},
        },
        "version_span_head_observed",
    ),
]


@pytest.mark.parametrize(("query", "index"), [case[1:] for case in PLAIN], ids=[case[0] for case in PLAIN])
async def test_pages_come_from_an_index(big_reader: Conn, big: Scope, query: dict[str, Any], index: str) -> None:
    """The first page and a later one touch about a page of rows, whatever the scope holds."""
    wanted = planned(query)
    first = At(big.last_seq, True, None)
    later = At(big.last_seq - 3, False, [10_000])
    for at in (first, later):
        statement = page_statement(big.key, wanted, at, 8_000_000)
        found = await explain(big_reader, big, statement.sql, statement.arguments)
        assert index in found.indexes, (at, found.indexes)
        assert not found.sequential
        assert found.touched < 1_500, (at, found.touched)


async def test_a_snapshot_of_a_few_members_looks_at_them_alone(big_reader: Conn, big: Scope) -> None:
    """However large the scope is, and however much was written since."""
    for position in (big.last_seq, 15_000):
        snapshot = Snapshot(position, 1, ["obj:40", "obj:77", "obj:nowhere"], {})
        async with big_reader.transaction():
            await big_reader.execute(f"SET LOCAL pamspec.scope_keys = '{{{big.key}}}'")
            pinned = await snapshots.versions(big_reader, big.key, snapshot)
        assert pinned is not None
        assert len(pinned) == 2
        wanted = replace(planned({"trust": "all"}), pinned=pinned)
        statement = page_statement(big.key, wanted, At(position, position == big.last_seq, None), 8_000_000)
        found = await explain(big_reader, big, statement.sql, statement.arguments)
        assert not found.sequential
        assert found.touched <= 6
        arguments = [big.key, snapshot.members, position]
        found = await explain(big_reader, big, snapshots.MEMBER_VERSIONS_SQL, arguments)
        assert not found.sequential
        assert found.touched <= 12, found.touched


async def test_orders_by_a_time_come_from_its_index(big_reader: Conn, big: Scope) -> None:
    for direction in ("asc", "desc"):
        wanted = planned({"trust": "all"}, ordering={"by": [{"field": "observed_at", "direction": direction}]})
        for after in (None, [START + timedelta(seconds=9_000), 9_001]):
            at = At(big.last_seq, True, after)
            statement = page_statement(big.key, wanted, at, 8_000_000, missing=False)
            found = await explain(big_reader, big, statement.sql, statement.arguments)
            assert "version_span_head_observed" in found.indexes, found.indexes
            assert found.touched < 500, found.touched


async def test_the_hint_looks_at_a_window(big_reader: Conn, big: Scope) -> None:
    wanted = planned({"where": {"field": "content:/none", "op": "exists", "value": True}})
    statement = hint_statement(big.key, wanted, At(big.last_seq, True, None), 1000)
    found = await explain(big_reader, big, statement.sql, statement.arguments)
    assert found.touched <= 1000


async def test_reads_and_history_come_from_an_index(big_reader: Conn, big: Scope) -> None:
    async with big_reader.transaction():
        await big_reader.execute(f"SET LOCAL pamspec.scope_keys = '{{{big.key}}}'")
        version = big.versions[100]
        unused = [*[None] * 4, ["x"], 51, 1 << 20, None]
        for sql, arguments, most in (
            (heads.VERSION_SQL, [big.key, version.version_id, version.object_id, b"o", big.last_seq], 3),
            (heads.VERSION_AS_OF_SQL, [big.key, "obj:40", b"o", 20_000, None], 5),
            (history.EVENTS_OF_SUBJECT_SQL, [big.key, 0, big.last_seq, *unused, "obj:40"], 6),
            (history.EVENTS_OF_SCOPE_SQL, [big.key, 9_000, big.last_seq, *unused], 153),
        ):
            text = await big_reader.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", *arguments)
            found = Explained(orjson.loads(text)[0])
            assert not found.sequential, sql
            assert found.touched <= most, (found.touched, sql)


async def test_a_group_of_reads_uses_indexes_only(large: tuple[Database, Scope], big_reader: Conn) -> None:
    """The function's own statement, as it is planned inside: no table is read from end to end."""
    database, scope = large
    ids = [f"obj:{index}" for index in range(0, 20_000, 100)]
    owner = await asyncpg.connect(database.dsn)
    before = await scans(owner)
    rows = await heads.read_heads(big_reader, [scope.key] * len(ids), ids, 1 << 23)
    assert len(rows) == len(ids)
    assert all(row.stored is not None for row in rows)
    await big_reader.close()
    await until_gone(owner)
    assert await scans(owner) == before
    await owner.close()


async def until_gone(conn: Conn) -> None:
    """Returns once the service's sessions have ended, which is when they have told what they scanned."""
    sql = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'pamspec_query' AND datname = current_database()"
    async with asyncio.timeout(30):
        while await conn.fetchval(sql) > 0:
            await asyncio.sleep(0.01)


async def scans(conn: Conn) -> dict[str, int]:
    """How often each table was read from end to end by anyone so far."""
    rows = await conn.fetch(
        "SELECT relname, seq_scan FROM pg_stat_user_tables WHERE schemaname = 'core'"
        " AND relname IN ('version', 'version_private', 'version_span', 'scope_head')"
    )
    return {row["relname"]: row["seq_scan"] for row in rows}


def test_no_value_enters_a_statement() -> None:
    """Whatever is asked for, the text holds words of ours, numbers of arguments and nothing else."""
    marked = "Zq9'\"%_\\"
    where = {
        "and": [
            {"field": "object_id", "op": op, "value": marked} for op in ("eq", "ne", "gt", "contains", "starts_with")
        ]
        + [{"field": f"content:/{marked}", "op": op, "value": marked} for op in ("eq", "lt", "contains", "starts_with")]
        + [{"field": "content:/x", "op": "in", "value": [marked, 77123, None]}]
        + [{"field": "provenance.source_ref", "op": "in", "value": [marked]}]
    }
    wanted = planned(
        {"where": where, "filters": {"object_type": [marked], "provenance_id": [marked]}, "trust": "all"},
        ordering={"by": [{"field": "schema_id"}], "tie_break": ["object_id"]},
    )
    statement = page_statement(77123, wanted, At(77123, False, [marked, marked]), 77123)
    assert "Zq9" not in statement.sql
    assert "77123" not in statement.sql
    numbers = {int(number) for number in re.findall(r"\$(\d+)", statement.sql)}
    assert numbers == set(range(1, len(statement.arguments) + 1))


TOUCHED_SQL = """
SELECT coalesce(sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)), 0) FROM pg_stat_xact_user_tables
WHERE schemaname = 'core'
"""


async def test_reads_by_id_look_rows_up_by_key_from_the_first_one_on(database: Database, seeding: Conn) -> None:
    """A connection keeps the plan of its first read, which it makes of tables of any size, without statistics."""
    for number in range(6):
        scope = Scope(f"workspace:{number}")
        for index in range(300):
            scope.put(f"obj:{index}", index)
        for index in range(300):
            joined = {"source_object_id": f"obj:{index}", "target_object_id": f"obj:{299 - index}"}
            scope.put(f"rel:{index}", None, kind="r", object_type="supports", metadata=joined)
        await scope.flush(seeding)
        conn = await asyncpg.connect(database.role("query"), server_settings={"jit": "off"})
        try:
            for kind in ("obj", "rel"):
                ids = [f"{kind}:{index}" for index in range(0, 300, 15)]
                async with conn.transaction():
                    before = await conn.fetchval(TOUCHED_SQL)
                    rows = await heads.read_heads(conn, [scope.key] * len(ids), ids, 1 << 23)
                    touched = await conn.fetchval(TOUCHED_SQL) - before
                assert [row.stored is not None for row in rows] == [True] * len(ids)
                assert [len(row.ends) for row in rows] == [2 if kind == "rel" else 0] * len(ids)
                assert 0 < touched <= 10 * len(ids), (kind, scope.scope_id, touched)
        finally:
            await conn.close()


ASKED = 40


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def indexed_scope(template_database: TemplateDatabase) -> AsyncIterator[tuple[Database, Scope, dict[str, int]]]:
    """A database of its own with 3,000 indexed objects in one scope, each with a vector, and the docs of the objects.

    The planner has no statistics of them, or those of a scope of another size: the statements may not depend on any.
    """
    name = databases.new_name("pamspec_indexed")
    dsn = await databases.create_database(template_database.server_dsn, name, template_database.name)
    conn = await asyncpg.connect(dsn)
    scope = Scope("workspace:big")
    for index in range(3_000):
        scope.put(f"obj:{index}", {"text": f"harbour {index}", "hundredth": index % 100})
    await scope.flush(conn)
    docs = await indexed.index(conn, scope)
    await indexed.vectors(conn, scope, {str(index): [1.0, index / 3_000, 0.0] for index in range(3_000)})
    await conn.close()
    yield Database(name, dsn, databases.role_dsns(dsn, template_database.passwords)), scope, docs
    await databases.drop_database(template_database.server_dsn, name)


@pytest.mark.parametrize("analyzed", [False, True], ids=["no statistics", "statistics"])
async def test_what_an_index_names_is_looked_up_by_key(
    indexed_scope: tuple[Database, Scope, dict[str, int]], analyzed: bool
) -> None:
    """However many the planner believes are named: no table is read from end to end, nothing is joined by scans."""
    database, scope, docs = indexed_scope
    owner = await asyncpg.connect(database.dsn)
    if analyzed:
        await owner.execute("ANALYZE core.version, core.version_private, core.version_span, index_.indexed_object")
    await owner.close()
    sources: list[Source] = [Words(sought("harbour")), Near("space:axes", [1.0, 0.5, 0.0], True)]
    if analyzed:
        ids = list(docs)[:ASKED]
        sources.append(Reached(ids, [1.0] * len(ids)))
    at, only = At(scope.last_seq, True, None), [docs[f"obj:{index}"] for index in range(7, 3_000, 100)]
    named = [version.ledger_seq for version in scope.versions[-500:]]
    conn = await asyncpg.connect(database.role("query"), server_settings={"jit": "off"})
    try:
        for query in ({"trust": "all"}, {"trust": "all", "where": eq("content:/hundredth", 7)}):
            wanted = planned(query)
            for way in (at, At(scope.last_seq - 1, False, None)):
                for depth in (Depth(ASKED, 20), Depth(21, 20, whole=True, only=only)):
                    statement = candidates.candidates_statement(scope.key, wanted, way, sources, depth, True)
                    found = await explain(conn, scope, statement.sql, statement.arguments)
                    assert_by_key(found, 8 * ASKED)
                statement = candidates.page_statement(scope.key, wanted, way, named, 21, 1 << 20)
                found = await explain(conn, scope, statement.sql, statement.arguments)
                assert_by_key(found, 700)
            if not analyzed:
                continue
            within = Within(named, named[0] - 1, scope.last_seq + 1)
            statement = candidates.docs_statement(scope.key, wanted, at, within)
            found = await explain(conn, scope, statement.sql, statement.arguments)
            assert_by_key(found, 1_100)
    finally:
        await conn.close()


def assert_by_key(found: Explained, most: int) -> None:
    """A statement looked rows up one by one, and no more than that."""
    assert not found.sequential
    assert not found.joined
    assert 0 < found.touched <= most, (found.touched, found.indexes)
