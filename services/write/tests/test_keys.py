"""API keys by operations: made, listed, replaced, ended; who may, what is kept, and what is noted of it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import asyncpg
import pytest

from pamspec_cli.servers.databases import Database
from pamspec_cli.servers.nats import NatsAddress
from pamspec_common.instants import parse, wire
from pamspec_common.keys import key_hash
from pamspec_common.principal import RIGHT_OPERATOR, Principal
from services.write.tests.writer import PEPPER, Document, Writer, started, stopped, write_settings

OPERATOR = Principal("tenant:operations", "human:operator", "human", frozenset({RIGHT_OPERATOR}))
_tenants = count(1)


async def tenant(writer: Writer) -> Principal:
    """An administrator of a tenant that is this test's alone."""
    tenant_id = f"tenant:keys-{next(_tenants)}"
    await writer.admin.execute("INSERT INTO core.tenant (tenant_id) VALUES ($1)", tenant_id)
    return Principal(tenant_id, "human:admin", "human", roles=frozenset({"admin"}))


def planner(**more: Any) -> Document:
    """A request for a key of an agent."""
    return {"actor_id": "agent:planner", "roles": ["contributor"], "policy_basis": "ticket:7", **more}


def after(**period: float) -> str:
    """A time from now on."""
    return wire(datetime.now(UTC) + timedelta(**period))


async def epochs(writer: Writer, tenant_id: str) -> tuple[int, int]:
    """What services and gateways compare."""
    row = await writer.admin.fetchrow(
        "SELECT t.epoch_authz, c.epoch FROM core.tenant t, core.credential_epoch c WHERE t.tenant_id = $1", tenant_id
    )
    assert row is not None
    return row["epoch_authz"], row["epoch"]


async def opens(writer: Writer, secret: str) -> asyncpg.Record | None:
    """Whom a gateway would let in with this key."""
    return await writer.admin.fetchrow(
        "SELECT * FROM core.key_principal WHERE key_hash = $1", key_hash(PEPPER.encode(), secret)
    )


async def as_gateway(writer: Writer, sql: str, *arguments: Any) -> None:
    """Run a statement with the privileges of the gateway."""
    async with writer.admin.transaction():
        await writer.admin.execute("SET LOCAL ROLE pamspec_gateway")
        await writer.admin.execute(sql, *arguments)


async def test_a_key_is_made_shown_once_listed_and_ended(shared: Writer) -> None:
    admin = await tenant(shared)
    until = after(days=3)
    made = await shared.ok("create_key", planner(rights=["audit"], expires_at=until), by=admin)
    key_id, secret = made["key"]["key_id"], made["secret"]
    found = await opens(shared, secret)
    assert found is not None
    assert (found["tenant_id"], found["actor_id"], found["roles"], found["rights"]) == (
        admin.tenant_id, "agent:planner", ["contributor"], ["audit"],
    )  # fmt: skip
    answer = await shared.call("list_keys", {}, by=admin)
    assert secret.encode() not in answer.body
    assert key_hash(PEPPER.encode(), secret).hex().encode() not in answer.body
    (listed,) = (await shared.ok("list_keys", {}, by=admin))["keys"]
    assert listed == made["key"]
    assert (listed["roles"], listed["rights"], listed["expires_at"], listed["created_by"], listed["state"]) == (
        ["contributor"], ["audit"], until, admin.actor_id, "valid",
    )  # fmt: skip
    before = await epochs(shared, admin.tenant_id)
    ended = await shared.ok("revoke_key", {"key_id": key_id, "policy_basis": "incident:1"}, by=admin)
    assert (ended["changed"], ended["key"]["state"]) == (True, "revoked")
    now = await epochs(shared, admin.tenant_id)
    assert now[0] > before[0]
    assert now[1] > before[1]
    assert await opens(shared, secret) is None
    again = await shared.ok("revoke_key", {"key_id": key_id, "policy_basis": "incident:1"}, by=admin)
    assert (again["changed"], again["key"]["revoked_at"]) == (False, ended["key"]["revoked_at"])
    assert (await shared.ok("list_keys", {}, by=admin))["keys"] == []
    assert len((await shared.ok("list_keys", {"include_ended": True}, by=admin))["keys"]) == 1
    noted = (await shared.ok("list_administration", {}, by=admin))["entries"]
    assert [(one["operation"], one["subject"], one["detail"], one["policy_basis"]) for one in noted] == [
        ("revoke_key", "agent:planner", key_id, "incident:1"),
        ("create_key", "agent:planner", key_id, "ticket:7"),
    ]


async def test_no_row_holds_the_text_of_a_key(shared: Writer) -> None:
    admin = await tenant(shared)
    secret = (await shared.ok("create_key", planner(), by=admin, key="a key for repetition"))["secret"]
    for table in await shared.admin.fetch(
        "SELECT format('%I.%I', schemaname, tablename) AS name FROM pg_tables "
        "WHERE schemaname IN ('core', 'relay', 'subscription')"
    ):
        rows = await shared.admin.fetchval(
            f"SELECT count(*) FROM {table['name']} t WHERE t::text LIKE '%' || $1 || '%' OR t::text LIKE $2",
            secret, f"%{secret.encode().hex()}%",
        )  # fmt: skip
        assert rows == 0, table["name"]


async def test_a_repetition_makes_no_second_key(shared: Writer) -> None:
    admin = await tenant(shared)
    first = await shared.ok("create_key", planner(), by=admin, key="once")
    again = await shared.refused("create_key", planner(), by=admin, key="once")
    assert (again["code"], again["details"]) == ("duplicate_operation", {"key_id": first["key"]["key_id"]})
    other = await shared.ok("create_key", planner(operation_id="op:mine"), by=admin)
    again = await shared.refused("create_key", planner(operation_id="op:mine"), by=admin)
    assert again["details"] == {"key_id": other["key"]["key_id"]}
    assert len((await shared.ok("list_keys", {}, by=admin))["keys"]) == 2
    await shared.ok("create_key", planner(), by=await tenant(shared), key="once")


async def test_a_replaced_key_opens_until_its_overlap_ends(shared: Writer) -> None:
    admin = await tenant(shared)
    first = await shared.ok("create_key", planner(rights=["assert_actor"], expires_at=after(days=30)), by=admin)
    until = after(hours=2)
    asked = {"key_id": first["key"]["key_id"], "old_expires_at": until, "policy_basis": "rotation"}
    second = await shared.ok("rotate_key", asked, by=admin)
    assert second["secret"] != first["secret"]
    for secret in (first["secret"], second["secret"]):
        found = await opens(shared, secret)
        assert found is not None
        assert (found["actor_id"], found["roles"], found["rights"]) == (
            "agent:planner", ["contributor"], ["assert_actor"],
        )  # fmt: skip
    assert second["replaced"]["expires_at"] == until
    assert second["replaced"]["replaced_by"] == second["key"]["key_id"]
    lasts = parse(second["key"]["expires_at"]) - parse(second["key"]["created_at"])
    was_to_last = parse(first["key"]["expires_at"]) - parse(first["key"]["created_at"])
    assert abs(lasts - was_to_last) < timedelta(seconds=1)
    refused = await shared.refused("rotate_key", asked, by=admin)
    assert refused["details"] == {"reason": "key_replaced", "replaced_by": second["key"]["key_id"]}
    third = await shared.ok(
        "rotate_key",
        {"key_id": second["key"]["key_id"], "old_expires_at": "2020-01-01T00:00:00Z", "policy_basis": "leak"},
        by=admin,
    )
    assert third["replaced"]["state"] == "expired"
    assert await opens(shared, second["secret"]) is None
    assert await opens(shared, third["secret"]) is not None
    ended = {"key_id": second["key"]["key_id"], "policy_basis": "x"}
    assert (await shared.refused("rotate_key", ended, by=admin))["details"]["reason"] == "key_ended"


async def test_an_overlap_never_makes_a_key_last_longer(shared: Writer) -> None:
    admin = await tenant(shared)
    soon = after(minutes=5)
    first = await shared.ok("create_key", planner(expires_at=soon), by=admin)
    asked = {"key_id": first["key"]["key_id"], "old_expires_at": after(days=9), "policy_basis": "rotation"}
    assert (await shared.ok("rotate_key", asked, by=admin))["replaced"]["expires_at"] == soon
    endless = await shared.ok("create_key", planner(), by=admin)
    replaced = await shared.ok("rotate_key", {"key_id": endless["key"]["key_id"], "policy_basis": "x"}, by=admin)
    assert "expires_at" not in replaced["key"]
    left = parse(replaced["replaced"]["expires_at"]) - datetime.now(UTC)
    assert timedelta(hours=22) < left < timedelta(hours=26)


async def test_of_many_who_replace_a_key_one_does(shared: Writer) -> None:
    admin = await tenant(shared)
    first = await shared.ok("create_key", planner(), by=admin)
    asked = {"key_id": first["key"]["key_id"], "policy_basis": "rotation"}
    answers = await asyncio.gather(*(shared.call("rotate_key", asked, by=admin) for _ in range(6)))
    assert sorted(answer.status for answer in answers) == [200, *[400] * 5]
    assert len((await shared.ok("list_keys", {}, by=admin))["keys"]) == 2


@pytest.mark.parametrize(
    "asked",
    [
        {"expires_at": "2020-01-01T00:00:00Z"},
        {"expires_at": "tomorrow"},
        {"roles": ["king"]},
        {"rights": ["service"]},
        {"actor_id": "planner"},
        {"actor_id": "agent:" + "a" * 300},
        {"actor_kind": "a\nb"},
        {"policy_basis": ""},
        {"secret": "pam_mine"},
        {"key_id": "key:mine"},
        {"scope_id": "workspace:mine"},
    ],
)
async def test_keys_that_cannot_be(shared: Writer, asked: Document) -> None:
    admin = await tenant(shared)
    assert (await shared.refused("create_key", {**planner(), **asked}, by=admin))["code"] == "invalid_request"
    assert (await shared.ok("list_keys", {"include_ended": True}, by=admin))["keys"] == []


async def test_only_administrators_of_the_tenant_handle_its_keys(shared: Writer) -> None:
    admin, other = await tenant(shared), await tenant(shared)
    made = await shared.ok("create_key", planner(), by=admin)
    named = {"key_id": made["key"]["key_id"], "policy_basis": "x"}
    for role in ("reader", "contributor", "editor", "reviewer", "curator", "auditor", "platform"):
        by = Principal(admin.tenant_id, f"agent:{role}", "agent", roles=frozenset({role}))
        for operation, document in (
            ("create_key", planner(roles=["admin"])), ("list_keys", {}), ("rotate_key", named), ("revoke_key", named),
        ):  # fmt: skip
            assert (await shared.refused(operation, document, by=by))["code"] == "access_denied", (role, operation)
    bound = Principal(admin.tenant_id, "human:bound", "human")
    assert (await shared.refused("list_keys", {}, by=bound))["code"] == "access_denied"
    binding = {"actor_id": bound.actor_id, "role": "admin", "policy_basis": "x"}
    await shared.ok("bind_role", binding, by=admin)
    assert len((await shared.ok("list_keys", {}, by=bound))["keys"]) == 1
    # Of a key of another tenant nobody learns more than of one that does not exist.
    unknown = {**named, "key_id": "key:01997d4c-3f5e-7a31-8f2e-000000000000"}
    for operation in ("rotate_key", "revoke_key"):
        theirs = await shared.refused(operation, named, by=other)
        nobodys = await shared.refused(operation, unknown, by=other)
        assert theirs["code"] == "object_not_found"
        assert {**theirs, "operation_id": ""} == {**nobodys, "operation_id": ""}
    for operation, document in (("list_keys", {}), ("create_key", planner()), ("revoke_key", named)):
        there = await shared.refused(operation, {**document, "tenant_id": admin.tenant_id}, by=other)
        nowhere = await shared.refused(operation, {**document, "tenant_id": "tenant:nowhere"}, by=other)
        assert there["code"] == "access_denied"
        assert {**there, "operation_id": ""} == {**nowhere, "operation_id": ""}
    assert await opens(shared, made["secret"]) is not None


async def test_operators_handle_the_keys_of_every_tenant(shared: Writer) -> None:
    admin = await tenant(shared)
    theirs = {"tenant_id": admin.tenant_id}
    made = await shared.ok("create_key", planner(**theirs, roles=["admin"]), by=OPERATOR)
    assert made["key"]["tenant_id"] == admin.tenant_id
    assert len((await shared.ok("list_keys", theirs, by=OPERATOR))["keys"]) == 1
    named = {**theirs, "key_id": made["key"]["key_id"], "policy_basis": "x"}
    await shared.ok("rotate_key", named, by=OPERATOR)
    await shared.ok("revoke_key", named, by=OPERATOR)
    missing = await shared.refused("list_keys", {"tenant_id": "tenant:nowhere"}, by=OPERATOR)
    assert (missing["code"], missing["details"]) == ("object_not_found", {"field": "tenant_id"})
    seen = (await shared.ok("list_administration", {}, by=admin))["entries"]
    assert {one["actor_id"] for one in seen} == {OPERATOR.actor_id}


async def test_operators_are_made_by_operators(shared: Writer) -> None:
    admin = await tenant(shared)
    wanted = planner(rights=["operator"])
    assert (await shared.refused("create_key", wanted, by=admin))["details"] == {"field": "rights"}
    made = await shared.ok("create_key", {**wanted, "tenant_id": admin.tenant_id}, by=OPERATOR)
    named = {"key_id": made["key"]["key_id"], "policy_basis": "x"}
    assert (await shared.refused("rotate_key", named, by=admin))["code"] == "access_denied"
    assert await opens(shared, made["secret"]) is not None
    # Who may give roles in a tenant gets no further than the tenant by any of them.
    everything = frozenset({"admin", "platform", "auditor", "curator"})
    mighty = Principal(
        admin.tenant_id, "human:mighty", "human", frozenset({"admin", "assert_actor", "audit"}), 0, everything
    )
    other = await tenant(shared)
    assert (await shared.refused("list_keys", {"tenant_id": other.tenant_id}, by=mighty))["code"] == "access_denied"


async def test_keys_come_in_pages(shared: Writer) -> None:
    admin = await tenant(shared)
    made = [(await shared.ok("create_key", planner(), by=admin))["key"]["key_id"] for _ in range(5)]
    await shared.ok("create_key", planner(actor_id="agent:other"), by=admin)
    seen: list[str] = []
    page: Document = {"limit": 2}
    while True:
        answer = await shared.ok("list_keys", {"actor_id": "agent:planner", "pagination": page}, by=admin)
        seen += [one["key_id"] for one in answer["keys"]]
        if answer["next_cursor"] is None:
            break
        page = {"limit": 2, "cursor": answer["next_cursor"]}
    assert seen == made


async def test_a_gateway_notes_the_use_of_keys_and_does_nothing_else(shared: Writer) -> None:
    admin = await tenant(shared)
    made = await shared.ok("create_key", planner(), by=admin)
    hashed = key_hash(PEPPER.encode(), made["secret"])
    before = await epochs(shared, admin.tenant_id)
    await as_gateway(shared, "SELECT core.note_key_use($1)", [hashed, b"\0" * 32])
    (noted,) = (await shared.ok("list_keys", {}, by=admin))["keys"]
    first = noted["last_used_at"]
    await as_gateway(shared, "SELECT core.note_key_use($1)", [hashed])
    (noted,) = (await shared.ok("list_keys", {}, by=admin))["keys"]
    assert noted["last_used_at"] == first, "a key is noted once a minute at most"
    assert await epochs(shared, admin.tenant_id) == before
    for sql in (
        "SELECT 1 FROM core.api_key", "UPDATE core.api_key SET last_used_at = now()", "DELETE FROM core.api_key",
        "INSERT INTO core.api_key DEFAULT VALUES", "UPDATE core.credential_epoch SET epoch = 1",
        "SELECT 1 FROM core.tenant", "SELECT 1 FROM core.administration",
    ):  # fmt: skip
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await as_gateway(shared, sql)


async def test_without_the_pepper_no_key_is_made(database: Database, write_bus: NatsAddress) -> None:
    writer = await started(database, write_settings(database, write_bus, key_pepper=None))
    try:
        assert (await writer.refused("create_key", planner()))["code"] == "service_unavailable"
        assert (await writer.ok("list_keys", {}))["keys"] == []
    finally:
        await stopped(writer)
