"""Each statement of the sweeper touches what it asks for and no whole table, as the service's role, functions included.

What a transaction has read of each table PostgreSQL counts by itself, also inside of functions whose plans nobody sees.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from conftest import TemplateDatabase
from pamspec_cli.servers import databases
from pamspec_cli.servers.databases import Database
from pamspec_retention_sweeper.queries import erasures, objects, scans, scopes
from services.query.tests.seeds import Conn, Scope

OBJECTS = 6_000
OPEN = 20
"""Erasures of the scope that are open; the others are closed."""
LATE, SOON = datetime(2026, 1, 1, tzinfo=UTC), timedelta(0)
IDS = [f"obj:{n}" for n in range(40, 60)]
LARGE = (
    "version", "version_private", "version_span", "ledger", "operation_record", "source_event", "data_key", "erasure",
    "due", "access", "indexed_object",
)  # fmt: skip
"""Tables that grow; the outbox is empty while the bus takes what is written, and has no index of scopes."""
READ_SQL = """
SELECT relname::text AS name, seq_scan, coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) AS read
FROM pg_stat_xact_user_tables WHERE relname = ANY ($1::text[])
"""
SEED = """
SET session_replication_role = replica;
UPDATE core.version_private SET operation_hash = sha256(convert_to(scope_key || '-' || ledger_seq, 'UTF8'));
INSERT INTO core.operation_record (scope_key, operation_hash, operation, operation_id, actor_id, state, salt, status,
  answer, created_at)
SELECT scope_key, operation_hash, 'create', 'op', 'a', 'c', 's', 201, '{}', now() FROM core.version_private;
INSERT INTO core.source_event SELECT scope_key, operation_hash, operation_hash, 's', 'f' FROM core.version_private;
INSERT INTO core.data_key SELECT scope_key, ledger_seq, 'k', 'w' FROM core.version_private;
SET session_replication_role = origin;
INSERT INTO retention.scope (scope_key, ledger_epoch, policy_version, wanted_version, followed_seq)
SELECT scope_key, ledger_epoch, 1, 1, last_seq FROM core.scope_head;
INSERT INTO retention.due (scope_key, object_id, due_at, look_at, action, rule, claim)
SELECT scope_key, object_id, t, t, 'expire', 'scope-policy/1/retention/default/ttl_seconds',
  CASE WHEN n BETWEEN 100 AND 119 THEN '{}' END
FROM (SELECT scope_key, object_id, from_seq AS n, CASE WHEN from_seq <= 60 THEN timestamptz '2026-01-01'
        ELSE clock_timestamp() + interval '30 days' END AS t FROM core.version_span) v;
INSERT INTO retention.access SELECT scope_key, object_id, now() FROM core.version_span;
INSERT INTO core.erasure (scope_key, erasure_id, tenant_id, kind, subject_kind, subject_id, part_of, operation_id,
  actor_id, position, erased_from, erased_to, due_at, closed_at)
SELECT scope_key, 'erasure:' || scope_key || '-' || from_seq, 't', 'd', 'o', object_id,
  CASE WHEN from_seq % 1000 = 7 THEN 'erasure:whole' END, 'op', 'a', from_seq, '{1}', '{1}', now(),
  CASE WHEN from_seq > 20 THEN now() END FROM core.version_span;
INSERT INTO index_.indexed_object (scope_key, object_id, kind, version_id, sequence, removed)
SELECT scope_key, object_id, 'o', version_id, from_seq, true FROM core.version_span;
ANALYZE;
"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def large(template_database: TemplateDatabase) -> AsyncIterator[tuple[str, int]]:
    """A database with two scopes of thousands of objects, each with a step and an erasure; the key of one of them."""
    name = databases.new_name("pamspec_sweeps")
    dsn = await databases.create_database(template_database.server_dsn, name, template_database.name)
    conn = await asyncpg.connect(dsn)
    scope, other = Scope("workspace:large"), Scope("workspace:beside")
    for one in (scope, other):
        for index in range(OBJECTS):
            one.put(f"obj:{index}", index)
        await one.flush(conn)
    await conn.execute(SEED)
    await conn.close()
    database = Database(name, dsn, databases.role_dsns(dsn, template_database.passwords))
    yield database.role("retention_sweeper"), scope.key
    await databases.drop_database(template_database.server_dsn, name)


@pytest_asyncio.fixture(loop_scope="session")
async def sweeper(large: tuple[str, int]) -> AsyncIterator[Conn]:
    """A connection of the service's role."""
    conn = await asyncpg.connect(large[0], server_settings={"jit": "off"})
    yield conn
    await conn.close()


POSITIONS = [n + 1 for n in range(40, 60)]
SPANS: list[Any] = [list(range(20)), IDS, [1] * 20, [1] * 20]
NAMES = ["expire"] * 20
CASES: dict[str, tuple[str, list[Any], int]] = {
    "scopes due": (scopes.SCOPES_DUE_SQL, [SOON, 16], 10),
    "backlog": (scopes.BACKLOG_SQL, [SOON, 50], 150),
    "rules": (scopes.RULES_SQL, ["key"], 0),
    "heads": (objects.HEADS_SQL, ["key", OBJECTS - 10, 500], 10),
    "facts": (objects.FACTS_SQL, ["key", IDS, list(objects.JOBS), True], 240),
    "what is due": (objects.NEXT_DUE_SQL, ["key", LATE, 30], 31),
    "claims": (objects.CLAIMS_SQL, ["key", 200], 20),
    "a claim": (objects.CLAIM_SQL, ["key", IDS, NAMES, NAMES, NAMES], 20),
    "no claim": (objects.UNCLAIM_SQL, ["key", [f"obj:{n}" for n in range(100, 110)]], 10),
    "steps": (objects.SET_DUE_SQL, ["key", IDS, [LATE] * 20, NAMES, NAMES], 20),
    "no steps": (objects.CLEAR_DUE_SQL, ["key", IDS], 20),
    "held up": (objects.HOLD_UP_SQL, ["key", LATE, 1.0, IDS, NAMES], 20),
    "erasures due": (erasures.DUE_SQL, [16], 2 * OPEN),
    "erasures open": (erasures.OPEN_SQL, [], 2 * OPEN),
    "an erasure": (erasures.CLAIM_SQL, ["key", 10], 3 * OPEN),
    "noted": (erasures.NOTE_SQL, ["key", ["erasure:none"], ["{}"], [1.0], [False]], 0),
    "parts": (erasures.PARTS_SQL, ["key", "erasure:whole"], 2 * OBJECTS // 1000),
    "remains": (scans.CANONICAL_SQL, ["key", *SPANS], 140),
    "removal": (scans.REMOVE_CANONICAL_SQL, ["key", *SPANS[1:]], 240),
    "needles": (scans.BESIDE_SQL, ["key", SPANS[0], IDS, POSITIONS, SPANS[0], ["heron 417"] * 20], 200),
    "needles in books": (scans.BOOKS_SQL, ["key", SPANS[0], ["heron 417"] * 20], 0),
    "what is derived": (scans.DERIVED_SQL, ["key", IDS, POSITIONS], 300),
    "postings": (scans.POSTINGS_SQL, ["key", IDS, list(range(20))], 20),
}


@pytest.mark.parametrize("name", CASES)
async def test_a_statement_reads_what_it_asks_for(sweeper: Conn, large: tuple[str, int], name: str) -> None:
    sql, arguments, most = CASES[name]
    key = large[1]
    transaction = sweeper.transaction()
    await transaction.start()
    await sweeper.execute("SELECT set_config('pamspec.scope_keys', $1, true)", f"{{{key}}}")
    await sweeper.fetch(sql, *(key if one == "key" else one for one in arguments))
    found = {row["name"]: (row["seq_scan"], row["read"]) for row in await sweeper.fetch(READ_SQL, LARGE)}
    await transaction.rollback()
    assert not [table for table, (whole, _) in found.items() if whole], found
    assert sum(read for _, read in found.values()) <= most, found
