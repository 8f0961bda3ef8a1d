"""Pages of a large scope as the service's role reads them: what they touch does not grow with the scope."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from conftest import TemplateDatabase
from pamspec_cli.bench import version_rows
from pamspec_cli.development import TENANT_ID
from pamspec_cli.servers import databases
from pamspec_query.documents import Query, decode
from pamspec_query.model.plan import Plan, plan
from pamspec_query.queries.search import count, fetch_page
from pamspec_query.queries.statements import At
from services.query.tests.door import Conn

SMALL, LARGE = 6_000, 60_000
ROWS = 2_500
"""What a page may touch: the newest heads twice, the candidates of one step, and the page itself."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def filled(template_database: TemplateDatabase) -> AsyncIterator[tuple[str, int, int]]:
    """A database with a small and a large scope of the same shares: the service's DSN and the scopes' keys."""
    name = databases.new_name("pamspec_search")
    dsn = await databases.create_database(template_database.server_dsn, name, template_database.name)
    conn = await asyncpg.connect(dsn)
    await conn.execute("INSERT INTO core.tenant (tenant_id) VALUES ($1)", TENANT_ID)
    await conn.close()
    small = await version_rows.fill(dsn, "bench:small", SMALL, version_rows.objects)
    large = await version_rows.fill(dsn, "bench:large", LARGE, version_rows.objects)
    yield databases.role_dsns(dsn, template_database.passwords)["pamspec_query"], small, large
    await databases.drop_database(template_database.server_dsn, name)


@pytest_asyncio.fixture
async def reader(filled: tuple[str, int, int]) -> AsyncIterator[Conn]:
    conn = await asyncpg.connect(filled[0], server_settings={"jit": "off", "plan_cache_mode": "force_custom_plan"})
    yield conn
    await conn.close()


def where(field: str, value: Any, op: str = "eq") -> dict[str, Any]:
    return {"where": {"field": field, "op": op, "value": value}}


WORKING = {"trust": "working"}
CASES: dict[str, dict[str, Any]] = {
    "trusted": {},
    "working": WORKING,
    "everything": {"trust": "all"},
    "a common type": WORKING | {"filters": {"object_type": ["observation"]}},
    "a rare type": WORKING | {"filters": {"object_type": ["task"]}},
    "a rare state": {"trust": "all", "filters": {"retention_state": ["legal_hold"]}},
    "a type and an actor that never meet": WORKING | {"filters": {"object_type": ["claim"]}} | where(
        "actor.actor_id", "agent:visitor"
    ),
    "an actor": WORKING | where("actor.actor_id", "agent:visitor"),
    "a schema": WORKING | where("schema_id", "https://bench.example/schema"),
    "a provenance": {"trust": "all", "filters": {"provenance_id": ["prov:b-00003000"]}},
    "a version": {"trust": "all"} | where("version_id", "ver:b-00003000"),
    "ids": {"trust": "all"} | where("object_id", [f"obj:bench-{n:08d}" for n in range(0, 6000, 200)], "in"),
    "content, one in 5": WORKING | where("content:/speaker", "speaker 2"),
    "content, one in 100": WORKING | where("content:/topic", "topic 2"),
    "content, one in 1,000": WORKING | where("content:/place/harbour", "berth 2"),
    "content, ten": WORKING | where("content:/party", "party 17"),
    "content, one": WORKING | where("content:/turn", 4321),
    "content, none": WORKING | where("content:/turn", "4321"),
    "content, several": WORKING | where("content:/turn", [1, 2, 3, 4321], "in"),
    "an element": WORKING | where("content:/tags", ["tag 5"], "contains"),
    "an element by its place": WORKING | where("content:/tags/0", "tag 5"),
    "a part": WORKING | where("content:", {"place": {"harbour": "berth 2"}}, "contains"),
    "two that never meet": WORKING | {
        "where": {
            "and": [
                {"field": "content:/speaker", "op": "eq", "value": "speaker 1"},
                {"field": "content:/party", "op": "in", "value": ["party 17", "party 18"]},
                {"field": "actor.actor_id", "op": "eq", "value": "agent:visitor"},
            ]
        }
    },
    "either": WORKING | {
        "where": {
            "or": [
                {"field": "content:/party", "op": "eq", "value": "party 5"},
                {"field": "content:/turn", "op": "eq", "value": 4000},
            ]
        }
    },
    "observed within an hour": {
        "kind": "temporal",
        "trust": "all",
        "temporal_basis": "observed_at",
        "range": {"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T01:00:00Z"},
    },
    "committed early": {
        "kind": "temporal",
        "trust": "working",
        "temporal_basis": "committed_at",
        "range": {"from": "2026-01-01T00:00:01Z", "to": "2026-01-01T00:00:02Z"},
    },
    "recorded before": {"trust": "all"} | where("recorded_at", "2026-01-01T00:00:01Z", "lt"),
    "a range of the ledger": {
        "kind": "temporal", "trust": "working", "temporal_basis": "sequence", "range": {"from": 100, "to": 200}
    },
    "changed often": {"trust": "all"} | where("sequence", 3, "gte"),
}  # fmt: skip


def planned(query: dict[str, Any], **more: Any) -> Plan:
    return plan(decode(Query, {"scope_id": "bench:x", "query": {"kind": "structured", **query}, **more}))


class Found:
    """A page, and the rows of version_span that were touched for it."""

    def __init__(self, sequences: list[int], touched: int, sequential: int) -> None:
        self.sequences, self.touched, self.sequential = sequences, touched, sequential


TOUCHED_SQL = """
SELECT seq_scan, seq_tup_read + idx_tup_fetch AS touched FROM pg_stat_xact_user_tables
WHERE schemaname = 'core' AND relname = 'version_span'
"""


async def read(reader: Conn, key: int, wanted: Plan, size: int) -> Found:
    at = await placed(wanted, size)
    async with reader.transaction():
        await reader.execute(f"SET LOCAL pamspec.scope_keys = '{{{key}}}'")
        before = await reader.fetchrow(TOUCHED_SQL)
        page = await fetch_page(reader, key, wanted, at, 1 << 23)
        after = await reader.fetchrow(TOUCHED_SQL)
        assert before is not None
        assert after is not None
    sequences = [item.keys[-1] for item in page.items]
    return Found(sequences, after["touched"] - before["touched"], after["seq_scan"] - before["seq_scan"])


async def placed(wanted: Plan, size: int) -> At:
    """The bounds as the handler finds them: one position a millisecond."""

    def position(bound: Any) -> int:
        if isinstance(bound, int):
            return bound
        return min(size, max(0, int((bound - version_rows.START) / version_rows.TICK)))

    low = max([0, *map(position, wanted.bounds.after)])
    return At(size, True, None, low, min([size, *map(position, wanted.bounds.until)]))


@pytest.mark.parametrize("name", CASES)
async def test_a_page_touches_what_it_needs(filled: tuple[str, int, int], reader: Conn, name: str) -> None:
    """The rows touched for a page stay bounded at ten times the objects, and the page is that of a plain scan."""
    wanted = planned(CASES[name])
    for key, size in ((filled[1], SMALL), (filled[2], LARGE)):
        found = await read(reader, key, wanted, size)
        assert found.sequential == 0, (name, size)
        assert found.touched <= ROWS, (name, size, found.touched)
        plain = await read(reader, key, replace(wanted, lookup=None), size)
        assert found.sequences == plain.sequences, (name, size)


@pytest.mark.parametrize("direction", ["asc", "desc"])
@pytest.mark.parametrize("field", ["observed_at", "valid_from", "asserted_at"])
async def test_pages_in_the_order_of_a_time(
    filled: tuple[str, int, int], reader: Conn, field: str, direction: str
) -> None:
    ordering = {"by": [{"field": field, "direction": direction}]}
    wanted = planned({"trust": "all"}, ordering=ordering)
    found = await read(reader, filled[2], wanted, LARGE)
    assert found.touched <= 500, found.touched
    assert found.sequential == 0


async def test_candidates_of_another_scope_are_never_found(filled: tuple[str, int, int], reader: Conn) -> None:
    """The search's role sees every scope; the search itself answers only for those of the caller's transaction."""
    sql = "SELECT query.find($1, 0, 100000, 10, NULL, NULL, NULL, NULL, NULL)"
    async with reader.transaction():
        assert await reader.fetchval(sql, filled[1]) == []
        await reader.execute(f"SET LOCAL pamspec.scope_keys = '{{{filled[1]}}}'")
        assert len(await reader.fetchval(sql, filled[1])) == 10
        assert await reader.fetchval(sql, filled[2]) == []
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await reader.execute("SET ROLE pamspec_search")


async def test_counts_of_few_and_of_many(filled: tuple[str, int, int], reader: Conn) -> None:
    async with reader.transaction():
        await reader.execute(f"SET LOCAL pamspec.scope_keys = '{{{filled[2]}}}'")
        for query, bounded, exact in (
            (CASES["content, ten"], (10, True), (10, True)),
            (CASES["content, none"], (0, True), (0, True)),
            (CASES["trusted"], (3_000, True), (3_000, True)),
            (CASES["everything"], (10_000, False), (LARGE, True)),
        ):
            wanted, at = planned(query), At(LARGE, True, None)
            for all_of_them, expected in ((False, bounded), (True, exact)):
                found = await count(reader, filled[2], wanted, at, all_of_them)
                assert (found.value, found.exact) == expected, query
