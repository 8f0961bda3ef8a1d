"""What the store itself refuses, and what an erasure leaves in it."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from pamspec_cli.servers.databases import Database
from pamspec_cli.servers.nats import NatsAddress
from pamspec_common.principal import Principal
from services.write.tests.writer import ADMIN, PROVENANCE, TENANT, Writer, claim, started, stopped, write_settings

SECRETS = [f"SECRET-{number}-x" for number in range(12)]


async def scoped(conn: asyncpg.Connection[asyncpg.Record], *keys: int) -> None:
    """Show the session these scopes."""
    await conn.execute("SELECT set_config('pamspec.scope_keys', $1, false)", "{" + ",".join(map(str, keys)) + "}")


@pytest.mark.parametrize("table", ["core.ledger", "core.version"])
@pytest.mark.parametrize("statement", ["UPDATE {} SET scope_key = scope_key", "DELETE FROM {}", "TRUNCATE {}"])
async def test_ledger_and_versions_accept_inserts_only(
    writer: Writer, database: Database, table: str, statement: str
) -> None:
    await writer.create()
    for dsn, refused in (
        (database.role("write"), asyncpg.InsufficientPrivilegeError),
        (database.dsn, asyncpg.RestrictViolationError),
    ):
        conn = await asyncpg.connect(dsn)
        await scoped(conn, await writer.scope_key())
        with pytest.raises(refused):
            await conn.execute(statement.format(table))
        await conn.close()
    assert await writer.count(table) == 1


TABLES = [
    "scope",
    "scope_head",
    "version",
    "version_private",
    "version_span",
    "ledger",
    "operation_record",
    "source_event",
]


async def test_a_session_sees_the_scopes_that_it_named(writer: Writer, database: Database) -> None:
    there = await writer.new_scope()
    for scope_id in (writer.scope, there):
        await writer.ok("create", claim(scope_id, source_event={"source": "s", "id": "1"}))
    conn = await asyncpg.connect(database.role("write"))
    for table in TABLES:
        assert await conn.fetchval(f"SELECT count(*) FROM core.{table}") == 0
    await scoped(conn, await writer.scope_key())
    for table in TABLES:
        keys = await conn.fetchval(f"SELECT array_agg(DISTINCT scope_key) FROM core.{table}")
        assert keys == [await writer.scope_key()], table
    await scoped(conn, await writer.scope_key(), await writer.scope_key(there))
    assert await conn.fetchval("SELECT count(*) FROM core.ledger") == 2
    await conn.close()


@pytest.mark.parametrize("table", [table for table in TABLES if table not in ("scope", "scope_head")])
async def test_nothing_can_be_put_into_a_foreign_scope(writer: Writer, database: Database, table: str) -> None:
    there = await writer.new_scope()
    await writer.ok("create", claim(writer.scope, source_event={"source": "s", "id": "1"}))
    here, foreign = await writer.scope_key(), await writer.scope_key(there)
    conn = await asyncpg.connect(database.role("write"))
    await scoped(conn, here)
    columns = await writer.admin.fetchval(
        "SELECT string_agg(quote_ident(column_name), ',' ORDER BY ordinal_position) FROM information_schema.columns "
        "WHERE table_schema = 'core' AND table_name = $1 AND column_name <> 'scope_key'",
        table,
    )
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await conn.execute(
            f"INSERT INTO core.{table} (scope_key, {columns}) SELECT {foreign}, {columns} FROM core.{table}"
        )
    if table not in ("ledger", "version"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await conn.execute(f"UPDATE core.{table} SET scope_key = {foreign}")
    await conn.close()


async def test_the_role_reads_no_keys_hashes_of_others_scopes_and_no_messages(database: Database) -> None:
    conn = await asyncpg.connect(database.role("write"))
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await conn.fetch("SELECT message FROM relay.outbox")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await conn.execute("DELETE FROM relay.outbox")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await conn.execute("SET ROLE pamspec_resolver")
    await conn.close()


async def test_names_of_scopes_are_a_tenants_own(writer: Writer) -> None:
    await writer.admin.execute("INSERT INTO core.tenant (tenant_id) VALUES ('tenant:other')")
    stranger = Principal("tenant:other", "agent:tester", "agent", roles=ADMIN)
    made = await writer.create(object_id="obj:mine")
    for operation, document in (
        ("create", claim(writer.scope)),
        ("delete", writer.change(made, policy_basis="p")),
        ("get_operation", {"scope_id": writer.scope, "operation_id": made["operation_id"]}),
        ("batch", {"scope_id": writer.scope, "items": [{"operation": "create", **claim(writer.scope)}]}),
    ):
        error = await writer.refused(operation, document, by=stranger)
        assert error["code"] == "scope_not_found"
    await writer.new_scope(writer.scope, by=stranger)
    theirs = await writer.ok("create", claim(writer.scope, object_id="obj:mine"), by=stranger)
    assert (theirs["ledger_sequence"], theirs["sequence"]) == (1, 1)
    gone = writer.change(made, policy_basis="p", expected_version_id=theirs["version_id"])
    assert (await writer.refused("delete", gone))["code"] == "version_conflict"
    await writer.check_scope()


async def test_a_scope_is_created_once(writer: Writer) -> None:
    document = {"scope_id": "scope:new", "scope_kind": "agent", "parent_scope_id": writer.scope}
    first = await writer.ok("create_scope", document)
    assert first["scope"] == document
    again = await writer.ok("create_scope", {**document, "operation_id": "op:mine"})
    assert again == {"scope": document, "operation_id": "op:mine", "policy_version": 0}
    error = await writer.refused("create_scope", {"scope_id": "scope:new"})
    assert error["code"] == "duplicate_operation"


async def test_one_scope_of_many_creators(writers: tuple[Writer, Writer]) -> None:
    same = [{"scope_id": "scope:same", "scope_kind": "agent"}] * 20
    answers = await asyncio.gather(*(writers[n % 2].ok("create_scope", document) for n, document in enumerate(same)))
    assert {answer["scope"]["scope_kind"] for answer in answers} == {"agent"}
    kinds = [{"scope_id": "scope:kinds", "scope_kind": f"kind-{n}"} for n in range(20)]
    mixed = await asyncio.gather(*(writers[n % 2].call("create_scope", document) for n, document in enumerate(kinds)))
    assert sorted(answer.status for answer in mixed) == [200] + [409] * 19
    names = ["scope:same", "scope:kinds"]
    assert await writers[0].admin.fetchval("SELECT count(*) FROM core.scope WHERE scope_id = ANY($1)", names) == 2


async def test_a_scope_keeps_its_partition(database: Database, write_bus: NatsAddress) -> None:
    first = await started(database, write_settings(database, write_bus, partitions=1))
    later = await started(database, write_settings(database, write_bus, partitions=7))
    new = [await later.new_scope() for _ in range(8)]
    for scope_id in (first.scope, *new):
        await later.ok("create", claim(scope_id))
        await later.check_scope(scope_id)
    rows = await later.admin.fetch(
        "SELECT s.scope_id, o.partition FROM relay.outbox o JOIN core.scope s USING (scope_key)"
    )
    partitions = {row["scope_id"]: row["partition"] for row in rows}
    assert partitions[first.scope] == 0
    assert {partitions[scope_id] for scope_id in new} == set(range(7))
    await stopped(later)
    await stopped(first)


async def everywhere(writer: Writer, text: str) -> list[str]:
    """The tables in which a text stands, in whatever form the store keeps it."""
    tables = await writer.admin.fetch(
        "SELECT quote_ident(table_schema) || '.' || quote_ident(table_name) AS name FROM information_schema.tables "
        "WHERE table_type = 'BASE TABLE' AND table_schema NOT IN ('pg_catalog', 'information_schema')"
    )
    raw = text.encode().hex()
    found = []
    for table in tables:
        count = await writer.admin.fetchval(
            f"SELECT count(*) FROM {table['name']} t WHERE strpos(t::text, $1) > 0 OR strpos(t::text, $2) > 0",
            text,
            raw,
        )
        if count:
            found.append(str(table["name"]))
    return found


async def test_after_a_deletion_the_value_is_nowhere(writer: Writer) -> None:
    actor = {
        "actor_id": "agent:tester",
        "actor_kind": "agent",
        "display_name": SECRETS[0],
        "attestation": {"manifest_digest": SECRETS[1]},
    }
    provenance = {
        "activity": SECRETS[2],
        "source_ref": SECRETS[3],
        "evidence_refs": [SECRETS[4]],
        "transformation_parent": SECRETS[5],
        "integrity_ref": SECRETS[6],
    }
    made = await writer.ok(
        "create",
        claim(
            writer.scope,
            {"deep": [SECRETS[7]]},
            actor=actor,
            provenance=provenance,
            integrity={"signature": SECRETS[8]},
            source_event={"source": "s", "id": "1"},
            idempotency_key="k",
        ),
    )
    moved = await writer.ok(
        "transition",
        writer.change(made, dimension="retention", target_state="expired", policy_basis=SECRETS[9], actor=actor),
    )
    changed = await writer.update(moved, SECRETS[10], actor=actor)
    batch = await writer.ok(
        "batch",
        {
            "scope_id": writer.scope,
            "idempotency_key": "b",
            "items": [
                {
                    "operation": "update",
                    **writer.change(changed, canonical_content={SECRETS[11]: "a\u0000b"}, provenance=PROVENANCE),
                }
            ],
        },
    )
    for secret in SECRETS:
        assert await everywhere(writer, secret), secret
    await writer.delete(batch["results"][0])
    for secret in SECRETS:
        assert await everywhere(writer, secret) == [], secret
    left = await writer.admin.fetch(
        "SELECT operation, salt, fingerprint FROM core.operation_record WHERE salt IS NOT NULL ORDER BY last_seq"
    )
    assert [row["operation"] for row in left] == ["batch", "delete"]
    await writer.check_scope()


async def test_a_deletion_spares_the_others(writer: Writer) -> None:
    kept = await writer.create("kept", idempotency_key="kept", source_event={"source": "s", "id": "kept"})
    await writer.delete(await writer.create("gone"))
    again = await writer.ok("create", claim(writer.scope, "kept", source_event={"source": "s", "id": "kept"}))
    assert again == kept
    there = await writer.new_scope()
    twin = await writer.ok("create", claim(there, "twin", object_id="obj:twin"))
    await writer.delete(await writer.create("twin", object_id="obj:twin"))
    assert (
        await writer.admin.fetchval(
            "SELECT content FROM core.version_private WHERE scope_key = $1", await writer.scope_key(there)
        )
        == b'"twin"'
    )
    assert twin["envelope"]["canonical_content"] == "twin"


async def test_tenants_are_not_found_by_their_keys(writer: Writer, database: Database) -> None:
    """(tenant, id) -> scope is the only way around the policy, and it answers for one tenant."""
    conn = await asyncpg.connect(database.role("write"))
    found: Any = await conn.fetch("SELECT scope_key FROM core.resolve_scope($1, $2)", TENANT, writer.scope)
    assert [row["scope_key"] for row in found] == [await writer.scope_key()]
    assert await conn.fetch("SELECT scope_key FROM core.resolve_scope($1, $2)", "tenant:none", writer.scope) == []
    await conn.close()
