"""The second wall: what PostgreSQL itself keeps apart, when a statement of ours forgets to.

Everything is found in the catalogue, so a table, a function or a role that somebody adds is judged from then on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest
import pytest_asyncio

from conftest import TemplateDatabase
from pamspec_cli.servers import databases
from pamspec_cli.servers.databases import Database
from tests.security import catalogue
from tests.security.catalogue import Table

MINE, FOREIGN = ("tenant:mine", 7_000_001), ("tenant:foreign", 7_000_002)

NOT_WALLED = {
    "core.tenant": "names and epochs of tenants, no memory: every decision compares the epoch",
    "core.api_key": "a key is found by its keyed hash before its tenant is known",
    "relay.outbox": "a queue over all scopes, which the relay drains; others see how much waits",
    "core.quotas": "limits, no memory: a batch of several tenants compares them all",
    "core.tenant_usage": "counters, no memory: a batch of several tenants counts for them all",
    "subscription.subscription": "the service's own book, served over all scopes by leases; no content",
    "subscription.webhook": "the same",
    "subscription.webhook_delivery": "the same",
    "delegation.inbox": "the service's own book: how far each scope's entries were taken in",
    "delegation.parked": "the same: entries that were not, by their ids",
    "delegation.exercise": "the same: how often each grant was used",
    "index_.inbox": "the service's own book: how far each scope's entries were taken in",
    "index_.parked": "the same: entries that were not, by their ids",
    "index_.job": "the same: work over an index, its progress and what it counted",
    "index_.unready": "the same: indexes that are not to be used",
    "index_.embedding_queue": "the same: which versions wait to be embedded, by their numbers",
    "index_.embedding_untold": "the same: which got vectors that no entry tells of yet",
    "index_.cleared": "the same: deleted scopes of which nothing is indexed any more",
}
"""Tables whose rows belong to a scope or a tenant and which no policy guards, each with the reason.

In the schema of a service: nobody else reads them.
"""

SEES_ALL = {
    ("pamspec_relay", "core.ledger"): "refills streams; the events hold no content",
    ("pamspec_relay", "core.scope"): "where a scope's events go",
    ("pamspec_relay", "core.scope_head"): "epochs and heads",
    ("pamspec_relay", "core.erasure"): "tells the log outside of the store of every erasure; sees ids alone",
    ("pamspec_relay", "core.scope_deletion"): "tells the same log of deleted scopes; sees their keys alone",
    ("pamspec_relay", "relay.checkpoint"): "its own",
    ("pamspec_relay", "relay.tree_node"): "its own",
    ("pamspec_subscription", "core.scope_head"): "compares the heads of all followed scopes",
    ("pamspec_delegation", "core.ledger"): "takes in the entries of all scopes; the events hold no content",
    ("pamspec_delegation", "core.scope"): "which scopes are its own",
    ("pamspec_delegation", "core.scope_head"): "epochs and heads",
    ("pamspec_indexing", "core.ledger"): "takes in the entries of all scopes; the events hold no content",
    ("pamspec_indexing", "core.scope"): "which scopes are its own",
    ("pamspec_indexing", "core.scope_head"): "epochs and heads",
    ("pamspec_indexing", "index_.scope_space"): "which scopes are on their way to another space; ids of spaces alone",
    ("pamspec_indexing", "core.embedding_space"): "descriptors, no memory: whose they are follows from the scope",
    ("pamspec_indexing", "core.scope_deletion"): "clears deleted scopes away; sees their keys alone",
    ("pamspec_subscription", "core.scope_deletion"): "closes what follows a deleted scope; sees their keys alone",
}
"""Who reads a guarded table over all scopes, each with the reason. Nobody does with content."""

VERIFIER = "pamspec_verifier"
"""Looks for what erasures took, wherever it could be, in functions that answer only whether; nobody logs in as it."""

SERVICES_OF = {"index_": "indexing"}
"""The service of a schema that is not called like it."""

OWNERS = {
    "core.rewrite_pages(text)": "only an owner writes a table anew; it takes names of one list, and answers a time"
}
"""Functions with the rights of who made the tables, each with the reason."""

WRITES_LEDGER = {"core.ledger": "pamspec_write", "core.version": "pamspec_write"}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def planted(template_database: TemplateDatabase) -> AsyncIterator[Database]:
    """A database with a row of two tenants in every table."""
    name = databases.new_name("pamspec_wall")
    dsn = await databases.create_database(template_database.server_dsn, name, template_database.name)
    conn = await asyncpg.connect(dsn)
    await conn.execute("SET session_replication_role = replica")
    for table in await catalogue.tables(conn):
        if table.owned and not table.part:
            for tenant, key in (MINE, FOREIGN):
                await catalogue.plant(conn, table, tenant, key)
    await conn.close()
    yield Database(name, dsn, databases.role_dsns(dsn, template_database.passwords))
    await databases.drop_database(template_database.server_dsn, name)


@pytest_asyncio.fixture(loop_scope="session")
async def admin(planted: Database) -> AsyncIterator[asyncpg.Connection]:
    conn = await asyncpg.connect(planted.dsn)
    yield conn
    await conn.close()


async def _readable(conn: asyncpg.Connection, role: str, table: Table) -> list[str]:
    """The columns that a role may read."""
    return [
        name
        for name in sorted(table.all_columns)
        if await conn.fetchval("SELECT has_column_privilege($1, $2::text, $3, 'SELECT')", role, table.name, name)
    ]


async def test_every_table_of_scopes_and_tenants_is_guarded(admin: asyncpg.Connection) -> None:
    """Row-level security, forced, in every table that has a scope_key or a tenant_id, but for those named above."""
    owned = [table for table in await catalogue.tables(admin) if table.owned]
    assert {table.name for table in owned if not table.walled} <= set(NOT_WALLED), "guard it, or say why not"
    assert not {table.name for table in owned if table.walled} & set(NOT_WALLED), "guarded now: take it off the list"
    assert {"core.ledger", "core.version_private", "core.role_binding", "core.snapshot"} <= {
        table.name for table in owned if table.walled
    }


async def test_no_row_of_another_shows_whatever_the_statement_forgets(
    planted: Database, admin: asyncpg.Connection
) -> None:
    """As each service: nothing of anybody before a transaction names whom it is about, then of that one alone."""
    found = []
    for role in await catalogue.roles(admin):
        if role not in planted.roles:
            continue
        conn = await asyncpg.connect(planted.roles[role])
        for table in await catalogue.tables(admin):
            columns = await _readable(admin, role, table)
            if not table.owned or not columns or table.name in NOT_WALLED or (role, table.name) in SEES_ALL:
                continue
            assert await admin.fetchval(f"SELECT count(*) FROM {table.name}") >= 2, f"{table.name} has no rows to hide"
            names = ", ".join(columns)
            seen = {"without": len(await conn.fetch(f"SELECT {names} FROM {table.name}"))}
            async with conn.transaction():
                await conn.execute(f"SET LOCAL pamspec.scope_keys = '{{{MINE[1]}}}'")
                await conn.execute(f"SET LOCAL pamspec.tenant_id = '{MINE[0]}'")
                seen["with"] = len(await conn.fetch(f"SELECT {names} FROM {table.name}"))
            if seen != {"without": 0, "with": 1}:
                found.append((role, table.name, seen))
        await conn.close()
    assert not found


async def test_a_service_s_own_book_is_read_by_nobody_else(admin: asyncpg.Connection) -> None:
    """But for how much waits in the outbox, of which others see neither scope nor message."""
    harmless = {"partition", "id", "created_at"}
    for table in await catalogue.tables(admin):
        schema = table.name.partition(".")[0]
        if table.name not in NOT_WALLED or schema == "core":
            continue
        for role in await catalogue.roles(admin):
            if role not in (f"pamspec_{SERVICES_OF.get(schema, schema)}", VERIFIER):
                assert set(await _readable(admin, role, table)) <= harmless, (role, table.name)


async def test_who_sees_all_scopes_sees_no_content(admin: asyncpg.Connection) -> None:
    """Each of the exceptions is there, and neither they nor the gateway reach versions."""
    tables = {table.name: table for table in await catalogue.tables(admin)}
    for role, name in SEES_ALL:
        assert await _readable(admin, role, tables[name]), (role, name)
    for table in ("core.version_private", "core.version_span", "core.version"):
        for role in ("pamspec_relay", "pamspec_gateway", "pamspec_delegation", "pamspec_retention_sweeper"):
            assert not await _readable(admin, role, tables[table]), (role, table)


@pytest.mark.parametrize("table", WRITES_LEDGER)
async def test_only_the_write_service_appends_to_the_ledger(
    planted: Database, admin: asyncpg.Connection, table: str
) -> None:
    """Nobody else inserts, nobody changes or removes, and not even the owner of the tables does so unnoticed."""
    for role in await catalogue.roles(admin):
        for privilege in ("INSERT", "UPDATE", "DELETE", "TRUNCATE", "TRIGGER"):
            may = await admin.fetchval("SELECT has_table_privilege($1, $2, $3)", role, table, privilege)
            some = privilege in ("INSERT", "UPDATE") and await admin.fetchval(
                "SELECT has_any_column_privilege($1, $2, $3)", role, table, privilege
            )
            assert (may or some) == (privilege == "INSERT" and role == WRITES_LEDGER[table]), (role, privilege)
    for statement in (f"UPDATE {table} SET scope_key = 1", f"DELETE FROM {table}", f"TRUNCATE {table}"):
        with pytest.raises(asyncpg.RestrictViolationError):
            await admin.execute(statement)
    for role in planted.roles:
        conn = await asyncpg.connect(planted.roles[role])
        if role != WRITES_LEDGER[table]:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await conn.execute(f"INSERT INTO {table} (scope_key) VALUES (1)")
        await conn.close()


async def test_a_row_cannot_be_written_into_another_scope(planted: Database, admin: asyncpg.Connection) -> None:
    """The write service itself, in a transaction about one scope, adds and changes nothing in another."""
    conn = await asyncpg.connect(planted.role("write"))
    for table in await catalogue.tables(admin):
        guarded = table.walled and "scope_key" in table.all_columns and "tenant_id" not in table.all_columns
        if not guarded or not await admin.fetchval(
            "SELECT has_table_privilege('pamspec_write', $1, 'INSERT')", table.name
        ):
            continue
        async with conn.transaction():
            await conn.execute(f"SET LOCAL pamspec.scope_keys = '{{{MINE[1]}}}'")
            with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
                async with conn.transaction():
                    await catalogue.plant(conn, table, FOREIGN[0], FOREIGN[1] + 1)
    await conn.close()


async def test_no_role_is_above_the_wall(admin: asyncpg.Connection) -> None:
    """Neither superuser nor BYPASSRLS, nor a maker of roles or databases, nor a member of somebody who is."""
    above = await admin.fetch(
        "SELECT r.rolname, o.rolname FROM pg_roles r JOIN pg_roles o ON pg_has_role(r.oid, o.oid, 'MEMBER') "
        "WHERE r.rolname LIKE 'pamspec\\_%' "
        "AND (o.rolsuper OR o.rolbypassrls OR o.rolcreaterole OR o.rolcreatedb OR o.rolreplication OR o.oid <> r.oid)"
    )
    assert not above
    assert len(await catalogue.roles(admin)) >= 7
    owners = await admin.fetch(
        "SELECT c.relname FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner WHERE r.rolname LIKE 'pamspec\\_%'"
    )
    assert not owners, "who owns a table could take its wall down"


async def test_functions_of_another_s_rights_are_closed(admin: asyncpg.Connection) -> None:
    """SECURITY DEFINER: a pinned search path that ends in pg_temp, no right of PUBLIC, a role of their own.

    A trigger function is called by no one, so it may belong to who made the tables.
    """
    functions = await admin.fetch(
        "SELECT p.oid::regprocedure::text AS name, p.proconfig, r.rolname, r.rolsuper, "
        "p.prorettype = 'trigger'::regtype AS triggers, "
        "has_function_privilege('public', p.oid, 'EXECUTE') AS open "
        "FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace JOIN pg_roles r ON r.oid = p.proowner "
        "WHERE p.prosecdef AND n.nspname <> ALL ($1::text[])",
        list(catalogue.OURS),
    )
    assert len(functions) >= 7
    for function in functions:
        paths = [one.partition("=")[2] for one in function["proconfig"] or () if one.startswith("search_path=")]
        assert [path.rpartition(",")[2].strip() for path in paths] == ["pg_temp"], function["name"]
        assert not function["open"], function["name"]
        assert function["triggers"] or function["name"] in OWNERS or not function["rolsuper"], function["name"]


async def test_views_look_with_the_eyes_of_who_asks(admin: asyncpg.Connection) -> None:
    """But for those that show less than their tables: the keys that are alive, and the quotas in force."""
    views = await admin.fetch(
        "SELECT n.nspname || '.' || c.relname AS name, "
        "coalesce('security_invoker=true' = ANY (c.reloptions), false) AS own "
        "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE c.relkind = 'v' AND n.nspname <> ALL ($1::text[])",
        list(catalogue.OURS),
    )
    assert {row["name"] for row in views if not row["own"]} <= {"core.key_principal", "core.quotas_in_force"}
