"""Reads under a grant: the grantor's rights within its terms, nothing beside them, and every use committed first."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
import pytest_asyncio
from msgspec.structs import replace

from conftest import TemplateDatabase
from pamspec_cli.servers import databases
from pamspec_cli.servers.databases import Database
from pamspec_cli.servers.nats import AgentUser
from pamspec_common.calls import Answer, Call
from pamspec_common.internal import answer as run
from pamspec_common.peers import LocalPeer
from pamspec_common.principal import RIGHT_ASSERT_ACTOR, Principal
from pamspec_common.service import Service
from pamspec_query.app import build
from pamspec_query.settings import Settings
from services.write.tests.delegating import LATER, LONG_AGO, Delegating, agent, delegating
from services.write.tests.test_rights import bind, moved, rules
from services.write.tests.writer import KEY, KID, Document, Writer, check_answer, claim, edge, started, stopped
from services.write.tests.writer import write_settings as settings_of_write
from tests.servers.chosen import servers

READS = ["read", "query", "inspect_history"]
ALL: Document = {"kind": "structured", "trust": "all"}


@dataclass
class World:
    """A write service, a query service beside it, and a scope of the test's own."""

    given: Delegating
    query: Service

    @property
    def writer(self) -> Writer:
        return self.given.writer

    async def call(self, operation: str, document: Document, by: Principal | None = None) -> Answer:
        """The answer, valid by its contract."""
        signed = self.writer.signer.sign(by or self.given.delegate)
        document = {"scope_id": self.given.scope, **document}
        answer = await run(self.query.operations, Call(operation, signed, orjson.dumps(document)))
        check_answer(operation, answer)
        return answer

    async def ok(self, operation: str, document: Document, by: Principal | None = None) -> Document:
        answer = await self.call(operation, document, by)
        assert answer.status == 200, answer.body
        body: Document = json.loads(answer.body)
        return body

    async def refused(self, operation: str, document: Document, by: Principal | None = None) -> Document:
        answer = await self.call(operation, document, by)
        assert answer.status >= 400, answer.body
        error: Document = json.loads(answer.body)["error"]
        return error

    async def denied(self, operation: str, document: Document, by: Principal | None = None) -> str:
        error = await self.refused(operation, document, by)
        assert error["code"] == "access_denied", error
        return str(error["details"]["reason"])

    async def made(self, object_type: str = "claim", content: Any = "a", **more: Any) -> Document:
        """An object of somebody else."""
        return await self.writer.ok("create", claim(self.given.scope, content, object_type=object_type, **more))

    async def ids(self, granted: Document, **more: Any) -> set[str]:
        """What a query under a grant finds."""
        found = await self.ok("query", {"query": ALL, "delegation_id": granted["delegation_id"], **more})
        named = ("object_id", "relationship_id")
        return {item["envelope"][name] for item in found["items"] for name in named if name in item["envelope"]}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def services(
    template_database: TemplateDatabase, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Writer, Service]]:
    name = databases.new_name("pamspec_delegated")
    dsn = await databases.create_database(template_database.server_dsn, name, template_database.name)
    database = Database(name, dsn, databases.role_dsns(dsn, template_database.passwords))
    folder: Path = tmp_path_factory.mktemp("nats")
    bus = servers().nats(folder, agent=AgentUser.of_principal("delegatedtests00000000000a"), max_file_bytes=2**30)
    writer = await started(database, settings_of_write(database, await bus.start()))
    query = build(
        Settings(database_url=database.role("query"), token_keys={KID: KEY}, drain_s=2.0),
        LocalPeer(writer.service),
    )
    await query.start()
    yield writer, query
    await query.stop()
    await stopped(writer)
    await bus.stop()
    await databases.drop_database(template_database.server_dsn, name)


@pytest_asyncio.fixture(loop_scope="session")
async def world(services: tuple[Writer, Service]) -> World:
    writer, query = services
    return World(await delegating(await writer.afresh()), query)


def reading(granted: Document, made: Document, **more: Any) -> Document:
    return {"object_id": made["object_id"], "delegation_id": granted["delegation_id"], **more}


async def test_a_delegate_reads_with_the_rights_of_the_grantor_and_each_use_is_told(world: World) -> None:
    made = await world.made()
    granted = await world.given.grant(granted_operations=READS)
    assert (await world.refused("read", {"object_id": made["object_id"]}))["code"] == "scope_not_found"
    assert (await world.ok("read", reading(granted, made)))["envelope"] == made["envelope"]
    assert await world.ids(granted) == {made["object_id"]}
    history = await world.ok("inspect_history", reading(granted, made))
    assert history["events"][0]["event_type"] == "object_created"
    told = await world.given.events("delegation_exercised")
    assert [(event["payload"]["operation"], event["actor"]["actor_id"]) for event in told] == [
        (operation, world.given.delegate.actor_id) for operation in READS
    ]
    assert {event["payload"]["delegation_id"] for event in told} == {granted["delegation_id"]}
    assert told[0]["object_id"] == made["object_id"]


@pytest.mark.parametrize("as_actor", [False, True])
async def test_the_grant_may_be_named_in_the_actor(world: World, as_actor: bool) -> None:
    made = await world.made()
    granted = await world.given.grant(granted_operations=READS)
    delegate = world.given.delegate
    named: Document = {"delegation_id": granted["delegation_id"]}
    if as_actor:
        named = {"actor": {"actor_id": delegate.actor_id, "actor_kind": delegate.actor_kind, **named}}
    by = replace(delegate, rights=frozenset({RIGHT_ASSERT_ACTOR})) if as_actor else delegate
    await world.ok("read", {"object_id": made["object_id"], **named}, by)
    assert len(await world.given.events("delegation_exercised")) == 1


async def test_types_and_ids_cut_everything_else_out_of_queries_counts_and_pages(world: World) -> None:
    tasks = [await world.made("task", {"title": str(n)}) for n in range(5)]
    claims = [await world.made() for _ in range(5)]
    by_type = await world.given.grant(granted_operations=READS, granted_object_types=["task"])
    by_id = await world.given.grant(granted_operations=READS, granted_object_ids=[claims[0]["object_id"]])
    assert await world.ids(by_type) == {one["object_id"] for one in tasks}
    assert await world.ids(by_id) == {claims[0]["object_id"]}
    for granted, count in ((by_type, 5), (by_id, 1)):
        document: Document = {"query": {**ALL, "count": "exact"}, "delegation_id": granted["delegation_id"]}
        answer = await world.call("query", document)
        if answer.status == 200:
            assert orjson.loads(answer.body)["count"]["value"] == count
        seen: list[str] = []
        page: Document = {"limit": 2}
        while True:
            found = await world.ok(
                "query", {"query": ALL, "delegation_id": granted["delegation_id"], "pagination": page}
            )
            seen += [item["envelope"]["object_id"] for item in found["items"]]
            if found["next_cursor"] is None:
                break
            page = {"limit": 2, "cursor": found["next_cursor"]}
        assert len(seen) == count
    hidden = await world.refused("query", {"query": {"kind": "structured"}, "delegation_id": "dlg:none"})
    assert hidden["code"] == "scope_not_found"
    empty = await world.ok("query", {"query": {"kind": "structured"}, "delegation_id": by_type["delegation_id"]})
    assert empty["items"] == []
    assert "hint" in empty


async def test_what_the_grant_does_not_name_is_not_read(world: World) -> None:
    task, other = await world.made("task", {"title": "t"}), await world.made()
    by_id = await world.given.grant(granted_operations=READS, granted_object_ids=[task["object_id"]])
    for operation in ("read", "inspect_history"):
        assert await world.denied(operation, reading(by_id, other)) == "object_id"
    by_type = await world.given.grant(granted_operations=READS, granted_object_types=["task"])
    await world.ok("read", reading(by_type, task))
    for more in ({}, {"version_id": other["version_id"]}, {"as_of": {"ledger_sequence": 2}}):
        error = await world.refused("read", reading(by_type, other, **more))
        missing = await world.refused("read", reading(by_type, {"object_id": "obj:missing"}, **more))
        assert {**error, "operation_id": ""} == {**missing, "operation_id": ""}
        assert error["code"] == "object_not_found"


async def test_history_of_the_scope_shows_what_the_grant_names(world: World) -> None:
    """A confused deputy: the grantor sees everything, the grant one type."""
    task = await world.made("task", {"title": "t"})
    other = await world.made()
    await world.writer.ok("relate", edge(task, other))
    granted = await world.given.grant(granted_operations=READS, granted_object_types=["task"])
    history = await world.ok("inspect_history", {"after_sequence": 0, "delegation_id": granted["delegation_id"]})
    shown = {event.get("object_id") or event.get("relationship_id") for event in history["events"]}
    assert task["object_id"] in shown
    assert other["object_id"] not in shown
    assert [version.get("object_id") for version in history["versions"] if "object_type" in version] == [
        task["object_id"]
    ]
    assert not any(event["event_type"].startswith("relationship_") for event in history["events"])


async def test_a_traversal_goes_no_further_than_the_grant(world: World) -> None:
    """A confused deputy: along an edge from what is granted to what is not, and into another scope."""
    one, two, three = [await world.made() for _ in range(3)]
    first = await world.writer.ok("relate", edge(one, two))
    await world.writer.ok("relate", edge(two, three))
    ids = [one["object_id"], two["object_id"], first["relationship_id"]]
    granted = await world.given.grant(granted_operations=READS, granted_object_ids=ids)
    walk = {"from": [one["object_id"]], "direction": "outgoing", "depth": 3}
    assert await world.ids(granted, traverse=walk) == {two["object_id"]}
    outside = {"from": [three["object_id"]], "direction": "incoming", "depth": 3}
    error = await world.refused("query", {"query": ALL, "delegation_id": granted["delegation_id"], "traverse": outside})
    assert error["code"] == "object_not_found"


@pytest.mark.parametrize("operation", ["export", "verify_ledger", "list_snapshots", "get_checkpoint"])
async def test_what_cannot_be_delegated_is_not_reached_under_a_grant(world: World, operation: str) -> None:
    granted = await world.given.grant(granted_operations=READS)
    if operation == "export":
        pytest.importorskip("pamspec_query.export_door")
    document = {"scope_id": world.given.scope, "delegation_id": granted["delegation_id"]}
    if operation in world.query.operations:
        assert (await world.refused(operation, document))["code"] == "object_not_found"
    else:
        assert operation == "export"


async def test_a_rule_of_the_scope_holds_under_the_grant_too(world: World) -> None:
    task, other = await world.made("task", {"title": "t"}), await world.made()
    granted = await world.given.grant(granted_operations=READS)
    assert await world.ids(granted) == {task["object_id"], other["object_id"]}
    forbid = '@id("no-tasks") forbid (principal, action, resource) when { resource.object_type == "task" };'
    await rules(world.writer, forbid, world.given.scope)
    assert await world.ids(granted) == {other["object_id"]}


async def test_rights_that_the_grantor_lost_are_lost_at_once(world: World) -> None:
    made = await world.made()
    granted = await world.given.grant(granted_operations=READS)
    await world.ok("read", reading(granted, made))
    await world.writer.admin.execute("DELETE FROM core.role_binding WHERE actor_id = $1", world.given.grantor.actor_id)
    await moved(world.writer, world.given.scope)
    for operation in READS:
        document = reading(granted, made) if operation != "query" else {"query": ALL, **granted_only(granted)}
        assert (await world.refused(operation, document))["code"] in ("access_denied", "scope_not_found")


def granted_only(granted: Document) -> Document:
    return {"delegation_id": granted["delegation_id"]}


@pytest.mark.parametrize(
    ("reason", "terms"),
    [
        ("operation", {"granted_operations": ["create", "read"]}),
        ("not_before", {"not_before": LATER}),
        ("not_after", {"not_after": LONG_AGO}),
    ],
)
async def test_a_read_is_refused_by_the_rule_that_it_breaks(world: World, reason: str, terms: Document) -> None:
    await world.made()
    granted = await world.given.grant(**{"granted_operations": READS, **terms})
    assert await world.denied("query", {"query": ALL, **granted_only(granted)}) == reason
    assert await world.given.events("delegation_exercised") == []


async def test_after_a_revocation_nothing_is_read(world: World) -> None:
    made = await world.made()
    granted = await world.given.grant(granted_operations=READS)
    await world.ok("read", reading(granted, made))
    await world.given.revoke(granted)
    for operation, document in (
        ("read", reading(granted, made)),
        ("inspect_history", reading(granted, made)),
        ("query", {"query": ALL, **granted_only(granted)}),
    ):
        assert await world.denied(operation, document) == "revoked"


async def test_a_limit_counts_reads_and_what_fails_uses_nothing_up(world: World) -> None:
    made = await world.made()
    granted = await world.given.grant(granted_operations=READS, usage_limit=3)
    for _ in range(3):
        assert (await world.refused("read", reading(granted, {"object_id": "obj:missing"})))["code"] == (
            "object_not_found"
        )
    for _ in range(3):
        await world.ok("read", reading(granted, made))
    assert await world.denied("read", reading(granted, made)) == "usage_limit"
    assert len(await world.given.events("delegation_exercised")) == 3


async def test_a_repetition_that_gets_the_same_answer_is_the_same_use(world: World) -> None:
    made = await world.made()
    granted = await world.given.grant(granted_operations=READS, usage_limit=2)
    name = f"op:{secrets.token_hex(8)}"
    before = len(await world.given.events("delegation_exercised"))
    first = await world.call("read", reading(granted, made, operation_id=name, as_of={"ledger_sequence": 1}))
    again = await world.call("read", reading(granted, made, operation_id=name, as_of={"ledger_sequence": 1}))
    assert (first.status, first.body) == (again.status, again.body)
    assert len(await world.given.events("delegation_exercised")) - before <= 1


async def test_a_stranger_learns_nothing_of_a_grant(world: World) -> None:
    made = await world.made()
    granted = await world.given.grant(granted_operations=READS)
    stranger = agent("stranger")
    document = reading(granted, made, operation_id="op:1")
    foreign = await world.call("read", document, stranger)
    missing = await world.call("read", {**document, "delegation_id": "dlg:missing"}, stranger)
    nowhere = await world.call("read", {**document, "scope_id": "scope:nowhere"}, stranger)
    assert foreign.body == missing.body == nowhere.body
    assert b"scope_not_found" in foreign.body
    await bind(world.writer, stranger.actor_id, "reader", world.given.scope)
    foreign = await world.call("read", document, stranger)
    missing = await world.call("read", {**document, "delegation_id": "dlg:missing"}, stranger)
    assert foreign.body == missing.body
    assert b"object_not_found" in foreign.body


async def test_a_grant_works_in_its_own_scope_alone(world: World) -> None:
    granted = await world.given.grant(granted_operations=READS)
    other = await delegating(await world.writer.afresh())
    document = {"query": ALL, "scope_id": other.scope, **granted_only(granted)}
    assert (await world.refused("query", document))["code"] == "scope_not_found"
    await bind(world.writer, world.given.delegate.actor_id, "reader", other.scope)
    assert await world.denied("query", document) == "scope"
