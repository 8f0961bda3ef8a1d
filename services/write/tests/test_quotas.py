"""Quotas: versioned documents of operators, and storage that ends exactly where they say."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from itertools import count
from typing import Any

import orjson
import pytest

from pamspec_cli.servers.databases import Database
from pamspec_common.principal import RIGHT_OPERATOR, Principal
from pamspec_query.app import build as build_query
from pamspec_query.settings import Settings as QuerySettings
from services.write.tests.transfer import Store
from services.write.tests.writer import ADMIN, KEY, KID, PROVENANCE, TENANT, Document, Writer, claim

OPERATOR = Principal(TENANT, "human:operator", "human", frozenset({RIGHT_OPERATOR}))
_numbers = count(1)


@dataclass
class Tenant:
    """A tenant of this test alone, with one scope and its administrator."""

    writer: Writer
    tenant_id: str
    admin: Principal
    scope: str

    async def bound(self, quotas: Document) -> int:
        """Put these quotas in force; their version."""
        version = (await self.shown())["quotas_version"]
        request = {
            "tenant_id": self.tenant_id,
            "quotas": quotas,
            "expected_quotas_version": version,
            "policy_basis": "contract:7",
        }
        answer = await self.writer.ok("set_quotas", request, by=OPERATOR)
        made: int = answer["quotas_version"]
        return made

    async def shown(self, **more: Any) -> Document:
        """The tenant's quotas and what it uses, as its administrator reads them."""
        return await self.writer.ok("get_quotas", more, by=self.admin)

    async def create(self, content: Any = "x", **more: Any) -> Document:
        """A claim in the tenant's scope."""
        return await self.writer.ok("create", claim(self.scope, content, **more), by=self.admin)

    async def refused(self, operation: str, document: Document, **more: Any) -> Document:
        """A refusal (429) that names a limit."""
        answer = await self.writer.call(operation, document, by=self.admin, **more)
        assert answer.status == 429, answer.body
        error: Document = orjson.loads(answer.body)["error"]
        assert error["code"] == "service_unavailable"
        assert error["details"]["reason"] == "quota"
        assert error["details"]["limit"] in error["message"]
        assert int(answer.headers["Retry-After"]) >= 1
        return error

    async def new_scope(self) -> str:
        """Another scope of the tenant."""
        return await self.writer.new_scope(by=self.admin)

    async def check_counts(self) -> Document:
        """What is counted is what is stored: of every scope, and of the tenant."""
        rows = await self.writer.admin.fetch(
            "SELECT h.objects, h.versions, h.content_bytes,"
            " (SELECT count(*) FROM core.version_span p WHERE p.scope_key = s.scope_key"
            "    AND p.to_seq = 9223372036854775807 AND p.availability_state <> 'deleted') AS o,"
            " (SELECT count(*) FROM core.version v WHERE v.scope_key = s.scope_key) AS v,"
            " (SELECT coalesce(sum(octet_length(content)), 0) FROM core.version_private p"
            "    WHERE p.scope_key = s.scope_key)::bigint AS b"
            " FROM core.scope s JOIN core.scope_head h USING (scope_key) WHERE s.tenant_id = $1",
            self.tenant_id,
        )
        for row in rows:
            assert (row["objects"], row["versions"], row["content_bytes"]) == (row["o"], row["v"], row["b"])
        used: Document = (await self.shown())["used"]["tenant"]
        assert used == {
            "objects": sum(row["o"] for row in rows),
            "versions": sum(row["v"] for row in rows),
            "content_bytes": sum(row["b"] for row in rows),
        }
        return used


def item(content: Any, **more: Any) -> Document:
    """An item of a batch, which makes a claim."""
    made = {"operation": "create", **claim("", content, **more)}
    del made["scope_id"]
    return made


async def tenant_of(writer: Writer) -> Tenant:
    """A new tenant."""
    tenant_id = f"tenant:quotas-{next(_numbers)}"
    await writer.admin.execute("INSERT INTO core.tenant (tenant_id) VALUES ($1)", tenant_id)
    admin = Principal(tenant_id, "human:admin", "human", roles=ADMIN)
    return Tenant(writer, tenant_id, admin, await writer.new_scope(by=admin))


@pytest.fixture
async def tenant(shared: Writer) -> Tenant:
    return await tenant_of(shared)


async def test_operators_set_and_administrators_read(shared: Writer, tenant: Tenant) -> None:
    assert (await tenant.shown())["quotas_version"] == 0
    quotas = {"tenant": {"requests_per_s": 7, "objects": 10}, "scope": {"versions": 9}}
    assert await tenant.bound(quotas) == 1
    shown = await tenant.shown(scope_id=tenant.scope)
    assert (shown["quotas"], shown["changed_by"], shown["policy_basis"]) == (quotas, "human:operator", "contract:7")
    assert shown["in_force"]["tenant"] == {"requests_per_s": 7, "burst": 7, "objects": 10}
    assert shown["used"]["scope"] == {"objects": 0, "versions": 0, "content_bytes": 0}
    assert await tenant.bound({}) == 2
    assert (await tenant.shown(quotas_version=1))["quotas"] == quotas
    listed = await shared.ok("list_administration", {"operation": "set_quotas"}, by=tenant.admin)
    assert [(one["operation"], one["actor_id"], one["detail"]) for one in listed["entries"]] == [
        ("set_quotas", "human:operator", "2"),
        ("set_quotas", "human:operator", "1"),
    ]


async def test_who_may_not(shared: Writer, tenant: Tenant) -> None:
    request = {"quotas": {}, "expected_quotas_version": 0, "policy_basis": "mine"}
    assert (await shared.refused("set_quotas", request, by=tenant.admin))["code"] == "access_denied"
    foreign = {"tenant_id": TENANT}
    assert (await shared.refused("get_quotas", foreign, by=tenant.admin))["code"] == "access_denied"
    missing = {"tenant_id": "tenant:never"}
    assert (await shared.refused("get_quotas", missing, by=tenant.admin))["code"] == "access_denied"
    assert (await shared.refused("get_quotas", missing, by=OPERATOR))["code"] == "object_not_found"
    assert (await shared.refused("set_quotas", request | missing, by=OPERATOR))["code"] == "object_not_found"
    reader = Principal(tenant.tenant_id, "agent:reader", "agent", roles=frozenset({"reader"}))
    assert (await shared.refused("get_quotas", {}, by=reader))["code"] == "access_denied"
    later = await shared.refused("get_quotas", {"quotas_version": 5}, by=tenant.admin)
    assert later["code"] == "object_not_found"


@pytest.mark.parametrize(
    "quotas",
    [
        {"tenant": {"request_per_s": 1}},
        {"tenants": {}},
        {"tenant": {"objects": -1}},
        {"tenant": {"objects": None}},
        {"tenant": {"objects": 1.5}},
        {"tenant": {"body_bytes": 17 * 2**20}},
        {"principal": {"requests_per_s": 0}},
        {"scope": []},
        "all",
    ],
)
async def test_quotas_that_are_none(shared: Writer, tenant: Tenant, quotas: Any) -> None:
    request = {
        "tenant_id": tenant.tenant_id,
        "quotas": quotas,
        "expected_quotas_version": 0,
        "policy_basis": "x",
    }
    assert (await shared.refused("set_quotas", request, by=OPERATOR))["code"] == "invalid_request"
    assert (await tenant.shown())["quotas_version"] == 0


async def test_of_two_operators_one_is_told(shared: Writer, tenant: Tenant) -> None:
    request = {
        "tenant_id": tenant.tenant_id,
        "quotas": {"tenant": {"objects": 3}},
        "expected_quotas_version": 0,
        "policy_basis": "x",
    }
    answers = await asyncio.gather(*(shared.call("set_quotas", request, by=OPERATOR) for _ in range(4)))
    assert sorted(answer.status for answer in answers) == [200, 409, 409, 409]


@pytest.mark.parametrize("whose", ["tenant", "scope"])
async def test_storage_ends_at_its_bound_and_begins_again_with_room(tenant: Tenant, whose: str) -> None:
    await tenant.bound({whose: {"objects": 3, "content_bytes": 12}})
    first = await tenant.create("xx")
    await tenant.create("yy")
    error = await tenant.refused("create", claim(tenant.scope, "four5"), key="again")
    assert error["details"] == {
        "reason": "quota",
        "limit": f"{whose}.content_bytes",
        "bound": 12,
        "used": 8,
    }
    change = tenant.writer.change(first, canonical_content="zzz", provenance=PROVENANCE)
    assert (await tenant.refused("update", change))["details"]["limit"] == f"{whose}.content_bytes"
    await tenant.create("z")
    assert (await tenant.refused("create", claim(tenant.scope, "")))["details"]["limit"] == f"{whose}.objects"
    gone = tenant.writer.change(first, policy_basis="room")
    await tenant.writer.ok("delete", gone, by=tenant.admin)
    await tenant.writer.ok("create", claim(tenant.scope, "abc"), by=tenant.admin, key="again")
    assert await tenant.check_counts() == {"objects": 3, "versions": 5, "content_bytes": 12}


async def test_what_takes_content_away_always_has_room(tenant: Tenant) -> None:
    made = [await tenant.create("12345678") for _ in range(3)]
    await tenant.bound({"tenant": {"versions": 3, "content_bytes": 0, "objects": 0}, "scope": {"versions": 1}})
    change = tenant.writer.change
    whole = change(made[0], redaction_target={"whole": True}, policy_basis="x")
    await tenant.writer.ok("redact", whole, by=tenant.admin)
    moved = {"dimension": "availability", "target_state": "redacted", "policy_basis": "x"}
    answer = await tenant.writer.ok("transition", change(made[1], **moved), by=tenant.admin)
    await tenant.writer.ok("delete", change(made[2], policy_basis="x"), by=tenant.admin)
    further = {"dimension": "retention", "target_state": "expired", "policy_basis": "x"}
    assert (await tenant.refused("transition", change(answer, **further)))["details"]["limit"] == "scope.versions"
    assert await tenant.check_counts() == {"objects": 2, "versions": 6, "content_bytes": 0}


async def test_a_batch_that_has_no_room_leaves_no_count(tenant: Tenant) -> None:
    await tenant.bound({"tenant": {"objects": 3}, "scope": {"objects": 5}})
    items = [item(f"{number}") for number in range(4)]
    batch = {"scope_id": tenant.scope, "items": items}
    await tenant.refused("batch", batch | {"atomic": True})
    assert (await tenant.check_counts())["objects"] == 0
    answer = await tenant.writer.ok(
        "batch", {"scope_id": tenant.scope, "atomic": False, "items": items}, by=tenant.admin
    )
    assert ["error" in result for result in answer["results"]] == [False, False, False, True]
    assert (await tenant.check_counts())["objects"] == 3


async def test_two_processes_at_the_bound_store_exactly_what_it_says(writers: tuple[Writer, Writer]) -> None:
    first = await tenant_of(writers[0])
    scopes = [first.scope, *[await first.new_scope() for _ in range(3)]]
    await first.bound({"tenant": {"objects": 37, "content_bytes": 37 * 4}})

    async def one(number: int) -> int:
        writer = writers[number % 2]
        answer = await writer.call("create", claim(scopes[number % 4], "ab"), by=first.admin)
        assert answer.status in (201, 429), answer.body
        return answer.status

    statuses = await asyncio.gather(*(one(number) for number in range(120)))
    assert statuses.count(201) == 37
    assert await first.check_counts() == {"objects": 37, "versions": 37, "content_bytes": 37 * 4}


async def test_a_bound_that_is_set_among_writes_holds_from_its_answer_on(writers: tuple[Writer, Writer]) -> None:
    tenant = await tenant_of(writers[0])
    scopes = [tenant.scope, *[await tenant.new_scope() for _ in range(3)]]
    stop = asyncio.Event()
    stored: list[int] = []

    async def write(number: int) -> None:
        while not stop.is_set():
            answer = await writers[number % 2].call("create", claim(scopes[number % 4]), by=tenant.admin)
            stored.append(answer.status)

    async with asyncio.TaskGroup() as group:
        for number in range(8):
            group.create_task(write(number))
        while stored.count(201) < 50:
            await asyncio.sleep(0)
        before = (await tenant.shown())["used"]["tenant"]["objects"]
        await tenant.bound({"tenant": {"objects": before}})
        counted = (await tenant.shown())["used"]["tenant"]["objects"]
        seen = len(stored)
        while len(stored) < seen + 50:
            await asyncio.sleep(0)
        stop.set()
    assert (await tenant.check_counts())["objects"] == counted


async def test_counts_follow_every_kind_of_change(tenant: Tenant) -> None:
    chance, writer = random.Random(7), tenant.writer
    await tenant.bound({"tenant": {"objects": 10**6}})
    living: list[Document] = []
    for number in range(60):
        kind = chance.choice(["create", "create", "update", "delete", "redact", "relate", "both"])
        if kind == "create" or len(living) < 2:
            living.append(await tenant.create({"n": number, "text": "ü" * chance.randint(0, 40)}))
            continue
        at = chance.randrange(len(living))
        old, change = living[at], writer.change
        if kind == "update":
            living[at] = await writer.ok(
                "update", change(old, canonical_content="é" * number, provenance=PROVENANCE), by=tenant.admin
            )
        elif kind in ("delete", "redact"):
            more = {"policy_basis": "x"} | ({"redaction_target": {"whole": True}} if kind == "redact" else {})
            await writer.ok(kind, change(living.pop(at), **more), by=tenant.admin)
        elif kind == "relate":
            other = living[at - 1]
            edge = {
                "scope_id": tenant.scope,
                "source_object_id": old["object_id"],
                "target_object_id": other["object_id"],
                "relationship_type": f"type-{number}",
                "directionality": "directed",
                "provenance": PROVENANCE,
            }
            answer = await writer.call("relate", edge, by=tenant.admin)
            assert answer.status in (201, 422), answer.body
        elif kind == "both":
            object_id = f"obj:both-{number}"
            items = [item("of one batch", object_id=object_id), item("and more")]
            atomic = chance.choice([True, False])
            await writer.ok("batch", {"scope_id": tenant.scope, "atomic": atomic, "items": items}, by=tenant.admin)
    await tenant.check_counts()


async def test_an_import_counts_and_may_be_too_much(writer: Writer, database: Database) -> None:
    tenant = await tenant_of(writer)
    for number in range(5):
        made = await tenant.create(f"text {number}")
    await tenant.writer.ok("delete", tenant.writer.change(made, policy_basis="x"), by=tenant.admin)
    used = await tenant.check_counts()
    query = build_query(QuerySettings(database_url=database.role("query"), token_keys={KID: KEY}, drain_s=2.0))
    await query.start()
    store = Store(tenant.writer, query)
    file = await store.export(tenant.scope, by=tenant.admin)
    await query.stop()
    await tenant.bound({"tenant": {"versions": 2 * used["versions"] - 1}})
    target = f"remap=scope:copy-of-{tenant.scope.partition(':')[2]}"
    assert (await store.refused(file, target, by=tenant.admin))["details"]["limit"] == "tenant.versions"
    assert await tenant.check_counts() == used
    await tenant.bound({"tenant": {"versions": 2 * used["versions"]}})
    await store.imported(file, target, by=tenant.admin)
    assert await tenant.check_counts() == {name: 2 * number for name, number in used.items()}
