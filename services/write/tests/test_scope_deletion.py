"""The deletion of a scope, and the end of a tenant: what is left, who sees it, and that it goes on where it was."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from pamspec_cli.servers.databases import Database
from pamspec_cli.servers.nats import NatsAddress
from pamspec_common.postgres import scoped
from pamspec_common.principal import Principal
from pamspec_common.verification import walk
from services.write.tests.test_keys import OPERATOR
from services.write.tests.test_rights import bind, holder
from services.write.tests.writer import (
    AGENT,
    KEY,
    KID,
    PROVENANCE,
    SUBSCRIPTION,
    TENANT,
    Document,
    Writer,
    claim,
    edge,
    started,
    stopped,
    write_settings,
)

SECRET = "the-depot-opens-at-six"
OTHER_ADMIN = Principal("tenant:elsewhere", "agent:tester", "agent", roles=frozenset({"admin"}))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def eraser(template_database: Any, write_bus: NatsAddress) -> AsyncIterator[Writer]:
    """A service whose job looks often, on a database of these tests."""
    from pamspec_cli.servers import databases

    name = databases.new_name("pamspec_deletion")
    dsn = await databases.create_database(template_database.server_dsn, name, template_database.name)
    database = Database(name, dsn, databases.role_dsns(dsn, template_database.passwords))
    settings = write_settings(database, write_bus, deletion_poll_ms=20, deletion_versions=7, deletion_pause_ms=0)
    writer = await started(database, settings)
    await writer.admin.execute("INSERT INTO core.tenant (tenant_id) VALUES ('tenant:elsewhere') ON CONFLICT DO NOTHING")
    yield writer
    await stopped(writer)
    await databases.drop_database(template_database.server_dsn, name)


@pytest_asyncio.fixture(loop_scope="session")
async def here(eraser: Writer) -> Writer:
    """The same with a scope that is this test's alone."""
    return await eraser.afresh()


def deletion(scope: str, **more: Any) -> Document:
    return {"scope_id": scope, "policy_basis": "contract ended", **more}


async def filled(writer: Writer) -> None:
    """Content of every kind that a scope holds, with a text to look for."""
    scope = writer.scope
    one = await writer.create(SECRET, provenance={**PROVENANCE, "source_ref": SECRET})
    two = await writer.ok("create", claim(scope, {"a": SECRET}, source_event={"source": "mail", "id": SECRET}))
    one = await writer.update(one, SECRET + "!")
    await writer.ok("relate", edge(one, two, canonical_content={"why": SECRET}))
    gone = await writer.create(SECRET)
    await writer.ok("delete", writer.change(gone, policy_basis=SECRET))
    items = [{**claim(scope, SECRET), "operation": "create"} for _ in range(20)]
    await writer.ok("batch", {"scope_id": scope, "items": items}, key=SECRET)
    await writer.refused("update", writer.change(gone, canonical_content=SECRET, provenance=PROVENANCE), key="refused")
    schema = {"type": "object", "title": SECRET}
    registered = {"scope_id": scope, "schema_id": "urn:schema:one", "schema": schema}
    await writer.ok("register_schema", registered)
    policy = {"scope_id": scope, "policy": {"object_types": {"deny": [f"urn:{SECRET}"]}}, "expected_policy_version": 0}
    await writer.ok("update_scope", {**policy, "policy_basis": "policy"})
    rules = {"scope_id": scope, "rules": f"// {SECRET}\n", "expected_rules_version": 0, "policy_basis": "rules"}
    await writer.ok("set_access_rules", rules)
    await bind(writer, "agent:guest", "contributor", scope)
    forget = {
        "scope_id": scope, "actor": {"actor_id": "human:officer", "actor_kind": "human"}, "policy_basis": SECRET,
        "token": f"1.{scope}", "ledger_sequence": 1, "items": [],
    }  # fmt: skip
    await writer.ok("begin_forget", forget, by=SUBSCRIPTION)


async def erased(writer: Writer, scope: str) -> Document:
    """What is answered once the job is done."""
    async with asyncio.timeout(60):
        while True:
            answer = await writer.ok("delete_scope", deletion(scope))
            if answer["state"] == "erased":
                return answer
            await asyncio.sleep(0.02)


async def rows_with(writer: Writer, text: str) -> dict[str, int]:
    """In how many rows of each table a text stands, as text, JSON or bytes."""
    found = {}
    for row in await writer.admin.fetch(
        "SELECT format('%I.%I', schemaname, tablename) AS name FROM pg_tables "
        "WHERE schemaname IN ('core', 'relay', 'subscription')"
    ):
        count = await writer.admin.fetchval(
            f"SELECT count(*) FROM {row['name']} t WHERE strpos(t::text, $1) > 0 OR strpos(t::text, $2) > 0",
            text, text.encode().hex(),
        )  # fmt: skip
        if count:
            found[row["name"]] = count
    return found


async def test_nothing_of_a_deleted_scope_is_left_but_a_ledger_that_verifies(here: Writer) -> None:
    await filled(here)
    scope, key = here.scope, await here.scope_key()
    assert {"core.version_private", "core.version_span", "core.scope_policy", "core.forget"} <= set(
        await rows_with(here, SECRET)
    )
    counted = await here.ok("delete_scope", deletion(scope, dry_run=True))
    assert (counted["state"], counted["counts"]["objects"], counted["counts"]["versions"]) == ("present", 24, 26)
    assert counted["counts"]["role_bindings"] == 1
    await here.create("still there")
    before = await here.ledger()
    asked = await here.ok("delete_scope", deletion(scope))
    assert (asked["state"], asked["counts"]["versions"]) == ("erasing", 27)
    done = await erased(here, scope)
    assert done["erased_versions"] == 27
    assert await rows_with(here, SECRET) == {}
    assert [entry.raw for entry in await here.ledger()] == [entry.raw for entry in before]
    for table in ("core.version_private", "core.version_span", "core.operation_record", "core.source_event"):
        for column in ("salt", "content", "private", "fingerprint", "answer"):
            if await here.admin.fetchval(
                "SELECT count(*) FROM information_schema.columns WHERE table_schema || '.' || table_name = $1 "
                "AND column_name = $2", table, column,
            ):  # fmt: skip
                assert await here.count(table, f"scope_key = {key} AND {column} IS NOT NULL") == 0, (table, column)
    async with scoped(here.admin, [key]):
        chain = await walk.verify(here.admin, key)
    assert chain.document()["problems"] == []
    assert chain.document()["versions"] == 27
    await here.admin.execute("DROP TRIGGER insert_only ON core.ledger")
    await here.admin.execute("UPDATE core.ledger SET event = event || ' ' WHERE scope_key = $1 AND sequence = 3", key)
    assert (await walk.verify(here.admin, key)).document()["ok"] is False
    await here.admin.execute(
        "CREATE TRIGGER insert_only BEFORE UPDATE OR DELETE OR TRUNCATE ON core.ledger "
        "FOR EACH STATEMENT EXECUTE FUNCTION core.refuse_change()"
    )


async def test_a_deleted_scope_answers_like_one_that_never_was(here: Writer) -> None:
    one = await here.create("x", operation_id="op:before")
    other = await here.create("y")
    nowhere = "scope:never-was"
    await here.ok("delete_scope", deletion(here.scope))
    documents: list[tuple[str, Document]] = [
        ("create", claim(here.scope)),
        ("create", claim(here.scope, operation_id="op:before")),
        ("update", here.change(one, canonical_content="z", provenance=PROVENANCE)),
        ("delete", here.change(one, policy_basis="x")),
        ("relate", edge(one, other)),
        ("batch", {"scope_id": here.scope, "items": [{**claim(here.scope), "operation": "create"}]}),
        ("get_operation", {"scope_id": here.scope, "operation_id": "op:before"}),
        ("place_hold", {"scope_id": here.scope, "policy_basis": "x"}),
        ("bind_role", {"scope_id": here.scope, "actor_id": "agent:a", "role": "admin", "policy_basis": "x"}),
        ("list_role_bindings", {"scope_id": here.scope}),
        ("list_administration", {"scope_id": here.scope}),
        ("set_access_rules", {"scope_id": here.scope, "rules": "", "expected_rules_version": 0, "policy_basis": "x"}),
        ("update_scope", {"scope_id": here.scope, "policy": {}, "expected_policy_version": 0, "policy_basis": "x"}),
        ("seal_snapshot", {"scope_id": here.scope}),
    ]
    for operation, document in documents:
        there = await here.refused(operation, document)
        never = await here.refused(operation, json.loads(json.dumps(document).replace(here.scope, nowhere)))
        assert there["code"] == "scope_not_found", (operation, there)
        assert {**there, "operation_id": ""} == {**never, "operation_id": ""}
    assert (await here.refused("create_scope", {"scope_id": here.scope, "scope_kind": "workspace"}))["details"] == {
        "reason": "scope_deleted"
    }
    await here.ok("create", claim(await here.new_scope()))


async def test_a_grant_opens_no_deleted_scope(here: Writer) -> None:
    helper = Principal(TENANT, f"agent:helper-{here.scope.partition(':')[2]}", "agent")
    await bind(here, AGENT.actor_id, "admin")
    granted = await here.ok(
        "grant_delegation",
        {
            "scope_id": here.scope,
            "delegated_actor": {"actor_id": helper.actor_id, "actor_kind": "agent"},
            "granted_operations": ["create", "read"],
            "not_before": "2020-01-01T00:00:00Z",
            "not_after": "2099-01-01T00:00:00Z",
            "policy_basis": "season",
        },
    )
    under = {"delegation_id": granted["delegation_id"]}
    await here.ok("create", claim(here.scope, **under), by=helper)
    await here.ok("delete_scope", deletion(here.scope))
    versions = await here.count("core.version")
    refused = await here.refused("create", claim(here.scope, **under), by=helper)
    assert refused["code"] in ("scope_not_found", "access_denied")
    assert await here.count("core.version") == versions


async def test_who_may_delete_and_who_learns_of_it(here: Writer) -> None:
    admin = Principal(TENANT, "human:of-scope", "human")
    await bind(here, admin.actor_id, "admin", here.scope)
    for role in ("reader", "contributor", "curator", "auditor", "platform"):
        error = await here.refused("delete_scope", deletion(here.scope), by=holder(role))
        assert error["code"] in ("access_denied", "scope_not_found"), role
    assert (await here.refused("delete_scope", deletion(here.scope), by=OTHER_ADMIN))["code"] == "scope_not_found"
    await here.create("x")
    await here.ok("delete_scope", deletion(here.scope), by=admin)
    assert (await here.refused("delete_scope", deletion(here.scope), by=OTHER_ADMIN))["code"] == "scope_not_found"
    assert (await here.refused("delete_scope", deletion(here.scope), by=holder("curator")))["code"] == "scope_not_found"
    assert (await erased(here, here.scope))["erased_versions"] == 1
    rules = {"rules": "", "expected_rules_version": 0, "policy_basis": "x", "scope_id": here.scope}
    assert (await here.refused("set_access_rules", rules))["code"] == "scope_not_found"
    noted = await here.admin.fetch(
        "SELECT operation, actor_id, policy_basis FROM core.administration WHERE scope_key = $1 ORDER BY id",
        await here.scope_key(),
    )
    assert [tuple(row) for row in noted] == [
        ("delete_scope", admin.actor_id, "contract ended"),
        ("delete_scope", "service:scope-deletion", "contract ended"),
    ]


async def test_a_scope_whose_rules_keep_an_administrator_out_is_not_deleted_by_it(here: Writer) -> None:
    """What tells of a deletion beyond the end of the scope opens no way around its rules."""
    key = await here.scope_key()
    await here.admin.execute(
        "INSERT INTO core.access_rules (tenant_id, scope_key, rules_version, text, policy_basis, actor_id) "
        "VALUES ($1, $2, 1, $3, 'x', 'a:b')",
        TENANT, key, '@id("out") forbid (principal, action, resource);',
    )  # fmt: skip
    await here.admin.execute("UPDATE core.scope_head SET epoch_authz = epoch_authz + 1 WHERE scope_key = $1", key)
    assert (await here.refused("delete_scope", deletion(here.scope)))["code"] == "scope_not_found"
    assert await here.admin.fetchval("SELECT count(*) FROM core.scope_deletion WHERE scope_key = $1", key) == 0


@pytest.mark.parametrize("over", ["object", "type", "scope"])
async def test_a_hold_keeps_its_scope(here: Writer, over: str) -> None:
    one = await here.create("x")
    if over == "object":
        held = await here.ok(
            "transition",
            here.change(one, dimension="retention", target_state="legal_hold", policy_basis="case"),
        )
    else:
        place = {"scope_id": here.scope, "policy_basis": "case"}
        placed = await here.ok("place_hold", place | ({"object_type": "claim"} if over == "type" else {}))
    error = await here.refused("delete_scope", deletion(here.scope))
    assert error["code"] == "legal_hold"
    assert (await here.refused("delete_scope", deletion(here.scope, dry_run=True)))["code"] == "legal_hold"
    if over == "object":
        released = here.change(held, dimension="retention", target_state="retained", policy_basis="case closed")
        await here.ok("transition", released)
    else:
        hold = {"scope_id": here.scope, "hold_id": placed["hold_id"], "policy_basis": "case closed"}
        await here.ok("release_hold", hold)
        async with asyncio.timeout(60):
            while (await here.call("delete_scope", deletion(here.scope, dry_run=True))).status != 200:
                await asyncio.sleep(0.05)
    await here.ok("delete_scope", deletion(here.scope))


async def test_writes_beside_a_deletion_are_erased_or_refused(here: Writer) -> None:
    async def write(number: int) -> int:
        return (await here.call("create", claim(here.scope, f"{SECRET} {number}"))).status

    writes = [asyncio.create_task(write(number)) for number in range(60)]
    await asyncio.sleep(0)
    await here.ok("delete_scope", deletion(here.scope))
    statuses = await asyncio.gather(*writes)
    assert set(statuses) <= {201, 404}
    done = await erased(here, here.scope)
    assert done["erased_versions"] == statuses.count(201)
    assert await rows_with(here, SECRET) == {}


async def test_a_killed_process_s_erasure_goes_on_where_it_was(database: Database, write_bus: NatsAddress) -> None:
    still = await started(database, write_settings(database, write_bus, deletion_poll_ms=3_600_000))
    try:
        for batch in range(4):
            items = [{**claim(still.scope, f"{SECRET} {n}"), "operation": "create"} for n in range(100)]
            await still.ok("batch", {"scope_id": still.scope, "items": items, "operation_id": f"op:d{batch}"})
        await still.ok("delete_scope", deletion(still.scope))
        environment = {
            **os.environ,
            "PAMSPEC_DATABASE_URL": database.role("write"),
            "PAMSPEC_NATS_URL": write_bus.url,
            "PAMSPEC_NATS_NKEY_SEED": str(write_bus.service_seed),
            "PAMSPEC_TOKEN_KEYS": json.dumps({KID: KEY.decode()}),
            "PAMSPEC_DELETION_POLL_MS": "10",
            "PAMSPEC_DELETION_VERSIONS": "5",
            "PAMSPEC_DELETION_PAUSE_MS": "100",
        }
        for _ in range(2):
            before = await _erased_versions(still)
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "pamspec_write", env=environment, stdout=asyncio.subprocess.DEVNULL
            )
            async with asyncio.timeout(120):
                while await _erased_versions(still) < before + 20:
                    await asyncio.sleep(0.01)
            process.kill()
            await process.wait()
            await still.admin.execute("UPDATE core.scope_deletion SET leased_until = '-infinity'")
        assert 40 <= await _erased_versions(still) < 400
        other = await started(database, write_settings(database, write_bus, deletion_poll_ms=10))
        done = await erased(still, still.scope)
        await stopped(other)
        assert done["erased_versions"] == 400
        assert await rows_with(still, SECRET) == {}
    finally:
        await stopped(still)


async def test_a_lease_from_before_the_stores_clock_jumped_back_is_not_waited_for(here: Writer) -> None:
    """It is written in the transaction that deletes the scope, before the job can see it."""
    await here.create(SECRET)
    await here.admin.execute(
        "ALTER TABLE core.scope_deletion ALTER leased_until SET DEFAULT clock_timestamp() + interval '1 hour'"
    )
    try:
        await here.ok("delete_scope", deletion(here.scope))
    finally:
        await here.admin.execute("ALTER TABLE core.scope_deletion ALTER leased_until SET DEFAULT '-infinity'")
    assert (await erased(here, here.scope))["erased_versions"] == 1


async def test_a_large_scope_is_erased_in_steps_and_its_neighbours_stay(
    database: Database, write_bus: NatsAddress
) -> None:
    """M042: one job that tells how far it is; M035: nothing of another scope goes with it."""
    writer = await started(database, write_settings(database, write_bus, deletion_poll_ms=3_600_000))
    job = None
    try:
        neighbours = [writer.scope + "-b", writer.scope + "0"]
        for scope in neighbours:
            await writer.ok("create_scope", {"scope_id": scope, "scope_kind": "workspace"})
            await writer.ok("create", claim(scope, SECRET))
        kept = await _rows_of(writer, neighbours)
        for batch in range(10):
            items = [{**claim(writer.scope, f"{batch} {n}"), "operation": "create"} for n in range(1000)]
            await writer.ok("batch", {"scope_id": writer.scope, "items": items, "operation_id": f"op:large{batch}"})
        asked = await writer.ok("delete_scope", deletion(writer.scope))
        assert (asked["state"], asked["counts"]["objects"]) == ("erasing", 10_000)
        job = await started(database, write_settings(database, write_bus, deletion_poll_ms=10, deletion_versions=500))
        assert (await erased(writer, writer.scope))["erased_versions"] == 10_000
        assert await _rows_of(writer, neighbours) == kept
        for scope in neighbours:
            await writer.check_scope(scope)
    finally:
        if job is not None:
            await stopped(job)
        await stopped(writer)


async def _rows_of(writer: Writer, scopes: list[str]) -> list[Any]:
    """The ledger and the private parts of scopes, as they stand."""
    found = []
    for table in ("core.ledger", "core.version", "core.version_private", "core.version_span"):
        sql = f"SELECT t::text FROM {table} t WHERE scope_key = ANY($1) ORDER BY 1"
        found.append([row[0] for row in await writer.admin.fetch(sql, [await writer.scope_key(one) for one in scopes])])
    return found


async def _erased_versions(writer: Writer) -> int:
    found: int = await writer.admin.fetchval("SELECT erased_versions FROM core.scope_deletion")
    return found


async def test_only_operators_administer_tenants(here: Writer) -> None:
    named = {"tenant_id": "tenant:acme", "policy_basis": "x"}
    for by in (AGENT, holder("platform"), OTHER_ADMIN):
        for operation in ("create_tenant", "suspend_tenant", "resume_tenant", "offboard_tenant"):
            there = await here.refused(operation, {**named, "tenant_id": TENANT}, by=by)
            nowhere = await here.refused(operation, {**named, "tenant_id": "tenant:nowhere"}, by=by)
            assert there["code"] == "access_denied"
            assert {**there, "operation_id": ""} == {**nowhere, "operation_id": ""}
        assert (await here.refused("list_tenants", {}, by=by))["code"] == "access_denied"
    assert (await here.refused("suspend_tenant", named, by=OPERATOR))["code"] == "object_not_found"


async def test_a_list_of_tenants_takes_its_own_cursors_alone(here: Writer) -> None:
    for cursor in ("²", "tenant", "tenant:a\n", "'"):
        page = {"pagination": {"limit": 5, "cursor": cursor}}
        assert (await here.refused("list_tenants", page, by=OPERATOR))["code"] == "invalid_request"


async def test_a_tenant_is_made_suspended_and_resumed(here: Writer) -> None:
    named = {"tenant_id": "tenant:paused", "policy_basis": "ticket:1"}
    by = Principal("tenant:paused", "agent:a", "agent", roles=frozenset({"admin"}))
    made = await here.ok("create_tenant", named, by=OPERATOR)
    assert (made["changed"], made["tenant"]["state"]) == (True, "active")
    assert (await here.ok("create_tenant", named, by=OPERATOR))["changed"] is False
    await here.ok("create_scope", {"scope_id": "workspace:a", "scope_kind": "workspace"}, by=by)
    one = await here.ok("create", claim("workspace:a"), by=by)
    suspended = await here.ok("suspend_tenant", named, by=OPERATOR)
    assert suspended["tenant"]["state"] == "suspended"
    assert (await here.refused("create", claim("workspace:a"), by=by))["code"] == "scope_not_found"
    assert (await here.refused("create_scope", {"scope_id": "workspace:b"}, by=by))["code"] == "access_denied"
    assert (await here.refused("list_keys", {}, by=by))["code"] == "access_denied"
    assert (await here.refused("create_tenant", named, by=OPERATOR))["details"] == {"state": "suspended"}
    listed = await here.ok("list_tenants", {"state": "suspended"}, by=OPERATOR)
    assert [row["tenant_id"] for row in listed["tenants"]] == ["tenant:paused"]
    assert (await here.ok("resume_tenant", named, by=OPERATOR))["changed"] is True
    await here.ok("update", here.change(one, canonical_content="z", provenance=PROVENANCE), by=by)


async def test_an_offboarded_tenant_leaves_nothing_and_opens_to_nobody(here: Writer) -> None:
    tenant, by = "tenant:leaving", Principal("tenant:leaving", "agent:a", "agent", roles=frozenset({"admin"}))
    named = {"tenant_id": tenant, "policy_basis": "contract ended"}
    await here.ok("create_tenant", named, by=OPERATOR)
    for number in range(3):
        await here.ok("create_scope", {"scope_id": f"workspace:{number}", "scope_kind": "workspace"}, by=by)
        await here.ok("create", claim(f"workspace:{number}", SECRET), by=by)
    key = await here.ok("create_key", {"actor_id": "agent:a", "roles": ["admin"], "policy_basis": "x"}, by=by)
    binding = {"scope_id": "workspace:1", "actor_id": "agent:b", "role": "reader", "policy_basis": "x"}
    await here.ok("bind_role", binding, by=by)
    rules = {"rules": f"// {SECRET}", "expected_rules_version": 0, "policy_basis": "x"}
    await here.ok("set_access_rules", rules, by=by)
    held = await here.ok("place_hold", {"scope_id": "workspace:2", "policy_basis": "case"}, by=by)
    counted = await here.ok("offboard_tenant", {**named, "dry_run": True}, by=OPERATOR)
    assert counted["counts"].items() >= {
        "scopes": 3, "scopes_deleted": 0, "scopes_on_hold": 1, "keys": 1, "role_bindings": 1, "access_rules": 1,
    }.items()  # fmt: skip
    assert counted["tenant"]["state"] == "active"
    assert (await here.refused("offboard_tenant", named, by=OPERATOR))["code"] == "legal_hold"
    release = {"scope_id": "workspace:2", "hold_id": held["hold_id"], "policy_basis": "closed"}
    await here.ok("release_hold", release, by=by)
    async with asyncio.timeout(60):
        while (await here.ok("offboard_tenant", {**named, "dry_run": True}, by=OPERATOR))["counts"]["scopes_on_hold"]:
            await asyncio.sleep(0.05)
    assert (await here.ok("offboard_tenant", named, by=OPERATOR))["changed"] is True
    assert (await here.refused("create", claim("workspace:0"), by=by))["code"] == "scope_not_found"
    assert (await here.refused("create_scope", {"scope_id": "workspace:9"}, by=by))["code"] == "access_denied"
    async with asyncio.timeout(60):
        while True:
            again = await here.ok("offboard_tenant", named, by=OPERATOR)
            if again["tenant"]["state"] == "offboarded":
                break
            await asyncio.sleep(0.05)
    assert again["counts"] == {
        "scopes": 3, "scopes_deleted": 3, "scopes_erased": 3, "scopes_on_hold": 0, "keys": 0, "role_bindings": 0,
        "access_rules": 0,
    }  # fmt: skip
    assert await rows_with(here, SECRET) == {}
    state = await here.admin.fetchval(
        "SELECT revoked_at IS NOT NULL FROM core.api_key WHERE key_id = $1", key["key"]["key_id"]
    )
    assert state is True
    assert (await here.refused("resume_tenant", named, by=OPERATOR))["details"] == {"state": "offboarded"}
    assert (await here.refused("create_tenant", named, by=OPERATOR))["details"] == {"state": "offboarded"}
    noted = await here.admin.fetch(
        "SELECT operation, actor_id FROM core.administration WHERE tenant_id = $1 AND operation = 'offboard_tenant' "
        "ORDER BY id",
        tenant,
    )
    assert [tuple(row) for row in noted] == [
        ("offboard_tenant", OPERATOR.actor_id), ("offboard_tenant", "service:scope-deletion"),
    ]  # fmt: skip
