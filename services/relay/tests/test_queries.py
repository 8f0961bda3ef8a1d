"""Every statement stands against the migrated schema, as the relay's role, and the hot ones use their index."""

from __future__ import annotations

import re
from datetime import timedelta

import asyncpg
import pytest

from pamspec_cli.servers.databases import Database
from pamspec_relay import queries
from pamspec_relay.model import Position
from pamspec_relay.queries import checkpoints, erasures
from services.relay.tests.ledger_rows import Ledger

STATEMENTS = {
    f"{module.__name__}.{name}": value
    for module in (queries, checkpoints, erasures)
    for name, value in vars(module).items()
    if name.endswith("_SQL")
}


@pytest.mark.parametrize("name", STATEMENTS)
async def test_the_statement_prepares_as_the_relays_role(database: Database, name: str) -> None:
    conn = await asyncpg.connect(database.role("relay"))
    await conn.prepare(STATEMENTS[name])
    await conn.close()


async def plan(conn: asyncpg.Connection[asyncpg.Record], sql: str, *values: object) -> str:
    """The plan of a statement that is parametrized: values are bound as in service."""
    await conn.execute("SET plan_cache_mode = force_generic_plan")
    types = ", ".join("unknown" for _ in values)
    await conn.execute(f"PREPARE explained ({types}) AS {sql}")
    literals = ", ".join(f"'{value}'" for value in values)
    rows = await conn.fetch(f"EXPLAIN (ANALYZE, BUFFERS OFF, COSTS OFF, TIMING OFF) EXECUTE explained({literals})")
    return "\n".join(row[0] for row in rows)


@pytest.mark.parametrize("analyzed", [False, True])
async def test_the_outbox_is_read_along_its_key_and_stops_at_the_limit(
    database: Database, ledger: Ledger, *, analyzed: bool
) -> None:
    """Also when a backlog is newer than the statistics, and whatever is under way."""
    scopes = await ledger.add_scopes(100)
    await ledger.add_scopes(100, partition=1)
    await ledger.conn.execute("ANALYZE")
    await ledger.commit(scopes * 200)
    if analyzed:
        await ledger.conn.execute("ANALYZE")
    epoch = await queries.take_lease(ledger.conn, 0, "me", timedelta(seconds=60))
    claim = queries.Claim(0, epoch or 0, "me")
    conn = await asyncpg.connect(database.role("relay"))
    under_way: list[int] = []
    for reads in range(1, 9):
        async with conn.transaction():
            ids, _ = await queries.fetch_outbox(conn, claim, under_way, 500)
            touched = await conn.fetchval(
                "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_all_tables"
                " WHERE relid = 'relay.outbox'::regclass"
            )
        assert len(ids) == 500
        assert ids == sorted(ids)
        assert not set(ids) & set(under_way)
        assert touched <= 1000 * reads
        under_way = ids if not under_way else []
    await conn.close()


async def test_the_delete_of_a_batch_finds_its_rows_by_key(database: Database, ledger: Ledger) -> None:
    scopes = await ledger.add_scopes(100)
    await ledger.commit(scopes * 200)
    await ledger.conn.execute("ANALYZE")
    epoch = await queries.take_lease(ledger.conn, 0, "me", timedelta(seconds=60))
    claim = queries.Claim(0, epoch or 0, "me")
    await queries.finish_repair(ledger.conn, claim, Position("then", 0, 0, 0), [])
    ids, _ = await queries.fetch_outbox(ledger.conn, claim, [], 500)
    conn = await asyncpg.connect(database.role("relay"))
    listed = "{" + ",".join(map(str, ids)) + "}"
    found = await plan(conn, queries.SETTLE_SQL, 0, epoch, "then", 500, listed)
    await conn.close()
    assert re.search(r"outbox_pkey", found), found
    assert "Seq Scan on outbox" not in found, found


async def test_a_repair_looks_at_few_entries_of_a_long_ledger(database: Database, ledger: Ledger) -> None:
    scopes = await ledger.add_scopes(5)
    await ledger.insert(ledger.rows(scopes * 3000), age=timedelta(days=30))
    await ledger.insert(ledger.rows(scopes * 2))
    await ledger.conn.execute("ANALYZE")
    conn = await asyncpg.connect(database.role("relay"))
    facts = await queries.fetch_repair(conn, 0, timedelta(days=7))
    assert [(fact.floor, fact.last_seq) for fact in facts] == [(3000, 3002)] * 5
    assert [list(fact.waiting) for fact in facts] == [[(1, 3002)]] * 5
    found = await plan(conn, queries.SELECT_REPAIR_SQL, 0, "7 days")
    await conn.close()
    assert "Seq Scan on ledger" not in found, found
