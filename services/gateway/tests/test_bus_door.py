"""The operation door over the bus: the same answers as over HTTP, its limits, and requests that don't wait."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import nats.errors
import orjson
import pytest
import pytest_asyncio

from pamspec_common import contracts
from pamspec_common.calls import Answer
from pamspec_common.ids import subject_token
from pamspec_gateway.absences import Absences
from pamspec_gateway.bus_door import MESSAGE_BYTES
from services.gateway.tests.behind import refusal_of
from services.gateway.tests.on_the_bus import PATIENCE_S, Agent, BusWorld, document_of, until
from services.gateway.tests.whole import SCOPE, Whole

EXAMPLES = Path(__file__).resolve().parents[3] / "contracts" / "examples" / "valid"
CATALOGUE = contracts.operation_catalogue()
OVER_BOTH = sorted(name for name, one in CATALOGUE.operations.items() if one.public and one.streams is None)
OVER_HTTP = sorted(name for name, one in CATALOGUE.operations.items() if one.public and one.streams is not None)
TOLD_ONCE = frozenset(("bind_role", "unbind_role", "create_key", "rotate_key", "revoke_key", "subscribe"))
"""The first answer tells of a change or shows a secret; later ones say that this was done."""
HEADERS = ("pamspec-", "idempotency-replayed", "etag", "retry-after", "www-authenticate")
_turns = itertools.count(1)

Document = dict[str, Any]
Both = tuple[int, bytes, dict[str, str]]


class Doors:
    """One principal at both doors."""

    def __init__(self, whole: Whole, agent: Agent) -> None:
        self._whole, self._agent = whole, agent

    async def http(self, operation: str, body: bytes, **headers: str) -> Both:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self._whole.session.post(f"{self._whole.url}/v1/{operation}", data=body, headers=sent) as answer:
            return answer.status, await answer.read(), _ours(dict(answer.headers))

    async def bus(self, operation: str, body: bytes, **headers: str) -> Both:
        answer = await self._agent.request(operation, body, **headers)
        found = dict(answer.headers or {})
        return int(found.pop("Pamspec-Status")), answer.data, _ours(found)

    async def same(self, operation: str, document: Document) -> Document:
        """The answer of both doors, which must be one; a write goes in by turns at either door, with one key."""
        writes = CATALOGUE.operations[operation].writes
        turn = next(_turns)
        headers = {"Idempotency_Key": f"both-{turn}"} if writes else {}
        body = orjson.dumps({"operation_id": f"op:both-{turn}"} | document)
        ways = [self.http, self.bus] if turn % 2 else [self.bus, self.http]
        if operation in TOLD_ONCE:
            await ways[0](operation, body, **headers)
        first, second = [await way(operation, body, **headers) for way in ways]
        async with asyncio.timeout(60):
            # Jobs that an operation began go on writing: between two reads the scope may move, for a while.
            while not writes and second[2] != first[2]:
                first, second = [await way(operation, body, **headers) for way in ways]
        assert second[0] == first[0], (operation, first, second)
        assert _standing(operation, second[1]) == _standing(operation, first[1]), operation
        for name, value in first[2].items():
            assert second[2].get(name) == value, (operation, name)
        # The second of two writes is a repetition, and says so.
        assert writes or second[2] == first[2], operation
        answer: Document = orjson.loads(first[1])
        return answer


def _standing(operation: str, body: bytes) -> bytes:
    """An answer without what goes on by itself: how old the entries are that an index has not taken in."""
    if operation != "list_indexes":
        return body
    document = orjson.loads(body)
    for one in document["indexes"]:
        one["lag"] = sorted(one.get("lag") or {})
    return orjson.dumps(document)


def _ours(headers: dict[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items() if name.lower().startswith(HEADERS)}


@pytest_asyncio.fixture(loop_scope="session")
async def doors(whole: Whole) -> AsyncIterator[Doors]:
    """The development principal of all services at both doors."""
    agent = Agent(subject_token("tenant:t", "agent:a"))
    await agent.connect(whole.nats_url, whole.key)
    yield Doors(whole, agent)
    await agent.client.close()


async def test_every_operation_answers_over_both_doors_with_the_same_bytes(doors: Doors) -> None:
    """One garden, worked in through either door; what an operation answers the other door answers as well."""
    seen: set[str] = set()
    scope = "workspace:both"

    async def same(operation: str, document: Document, refused: str | None = None) -> Document:
        answer = await doors.same(operation, document)
        assert answer.get("error", {}).get("code") == refused, answer
        seen.add(operation)
        return answer

    named = {"scope_id": scope}
    why = {"policy_basis": "a test"}
    told = {"provenance": {"activity": "told"}}
    await same("create_scope", {**named, "scope_kind": "workspace"})
    claim = {**named, "object_type": "claim", "canonical_content": {"statement": "It rains."}, **told}
    one = await same("create", claim)
    two = await same("create", claim | {"canonical_content": {"n": 1.50}})
    at = {**named, "object_id": one["object_id"]}
    changed = await same("update", {**at, "expected_version_id": one["version_id"], "canonical_content": 2, **told})
    await same(
        "update", {**at, "expected_version_id": one["version_id"], **told, "canonical_content": 3}, "version_conflict"
    )
    moved = await same(
        "transition",
        {
            **at,
            "expected_version_id": changed["version_id"],
            "dimension": "validation",
            "target_state": "corroborated",
            **why,
        },
    )
    joined = {"source_object_id": one["object_id"], "target_object_id": two["object_id"]}
    await same("relate", {**named, **joined, "relationship_type": "informed_by", "directionality": "directed", **told})
    work = await same(
        "create",
        {**named, "object_type": "working_memory", "canonical_content": {"task_ref": "task:1", "content": "x"}, **told},
    )
    await same(
        "promote",
        {
            **named,
            "source_object_id": work["object_id"],
            "expected_version_id": work["version_id"],
            "target_object_type": "claim",
            "target_canonical_content": {"statement": "x"},
            **told,
        },
    )
    item = {"operation": "create", "object_type": "claim", "canonical_content": 1, **told}
    await same("batch", {**named, "items": [item, item | {"object_type": "no such type"}]})
    await same("batch", {**named, "items": [item, item]})
    await same("read", at)
    await same("read", {**at, "version_id": one["version_id"]})
    await same("read", {**named, "object_id": "obj:nothing"}, "object_not_found")
    await same("read", {"scope_id": "workspace:nowhere", "object_id": "obj:nothing"}, "scope_not_found")
    await same("query", {**named, "query": {"kind": "structured", "trust": "working"}, "pagination": {"limit": 2}})
    await same(
        "query", {**named, "query": {"kind": "structured", "where": {"field": "x", "op": "eq"}}}, "invalid_request"
    )
    await same("inspect_history", at)
    await same("get_operation", {**named, "operation_id": one["operation_id"]})
    sealed = [(await same("seal_snapshot", named))["snapshot"]["snapshot_id"] for _ in range(2)]
    await same("list_snapshots", named)
    await same("compare_snapshots", {"base_snapshot_id": sealed[0], "other_snapshot_id": sealed[1]})
    opened = await same("subscribe", {**named, "after_sequence": 0})
    on = {"subscription_id": opened["subscription_id"]}
    page = await same("poll", {**on, "after_sequence": 0, "max": 2})
    await same("ack", {**on, "sequence": page["next_after_sequence"]})
    await same("ack", {**on, "sequence": 10**6}, "invalid_request")
    await same("reset", {**on, "after_sequence": 1})
    await same("list_subscriptions", on)
    await same("unsubscribe", on)
    target = {"redaction_target": {"whole": True}}
    await same("redact", {**at, "expected_version_id": moved["version_id"], **target, **why})
    await same("delete", {**named, "object_id": two["object_id"], "expected_version_id": two["version_id"], **why})
    await same("read", at, "object_redacted")
    await same("read", {**named, "object_id": two["object_id"]}, "object_deleted")
    for operation in ("get_scope", "list_policy_versions", "list_holds", "list_schemas", "verify_ledger"):
        await same(operation, named)
    for operation in OVER_BOTH:
        for example in _examples(operation):
            answer = await doors.same(operation, example)
            assert answer
            seen.add(operation)
    assert seen == set(OVER_BOTH)


def _examples(operation: str) -> list[Document]:
    found = [orjson.loads(path.read_bytes()) for path in sorted((EXAMPLES / f"{operation}.request").glob("*.json"))]
    assert found, f"{operation} has no example"
    return found


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b"\xff", b'{"a":1,"a":2}', b"{}", b"[" * 300], ids=range(8)
)
async def test_what_is_no_document_is_refused_alike(doors: Doors, body: bytes) -> None:
    over_http, over_bus = await doors.http("create", body), await doors.bus("create", body)
    assert over_bus[0] == over_http[0]
    errors = [refusal_of(answer[1]) for answer in (over_http, over_bus)]
    for error in errors:
        del error["operation_id"]
    assert errors[0] == errors[1]


async def test_the_document_goes_on_as_it_came_and_the_answer_comes_back(world: BusWorld) -> None:
    agent = await world.agent(await world.key())
    body = b' {"n": 1.0e0, "n2": "\xe2\x82\xac"} '
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    world.behind.answer = Answer(201, b'{"odd": 1.50}', {"Pamspec-Ledger-Sequence": "9", "ETag": '"ver:1"'})
    answer = await agent.request("create", body, Idempotency_Key="a key", traceparent=trace, Pamspec_Status="200")
    assert (answer.data, dict(answer.headers or {})) == (
        b'{"odd": 1.50}',
        {"Pamspec-Ledger-Sequence": "9", "ETag": '"ver:1"', "Pamspec-Status": "201"},
    )
    call = world.behind.calls[-1]
    assert (call.operation, call.body, call.idempotency_key, call.traceparent) == ("create", body, "a key", trace)
    assert call.principal.actor_id == "agent:a"
    refused = await agent.request("create", body, Idempotency_Key="x" * 1025)
    assert refusal_of(refused.data)["details"] == {"limit": 1024}
    refused = await agent.request("create", body, Content_Type="text/plain")
    assert (refused.headers or {})["Pamspec-Status"] == "415"


async def test_what_the_door_does_not_have(world: BusWorld) -> None:
    agent = await world.agent(await world.key())
    for operation in (*OVER_HTTP, "nonsense", "record_event", "CREATE", "whoami"):
        answer = await agent.request(operation)
        assert refusal_of(answer.data)["code"] == "invalid_request", operation
        assert (answer.headers or {})["Pamspec-Status"] == "404"
        assert ("over HTTP alone" in refusal_of(answer.data)["message"]) == (operation in OVER_HTTP)


async def test_what_no_message_can_carry_is_told(world: BusWorld) -> None:
    agent = await world.agent(await world.key())
    answer = await agent.request("create", b"x" * (MESSAGE_BYTES + 1))
    assert (answer.headers or {})["Pamspec-Status"] == "413"
    assert refusal_of(answer.data)["details"] == {"limit": MESSAGE_BYTES}
    whole = b'{"operation_id":"op:mine","x":"' + b"x" * MESSAGE_BYTES + b'"}'
    for headers, said in (({}, "ask for less"), ({"Pamspec-Ledger-Sequence": "9"}, "was carried out")):
        world.behind.answer = Answer(200, whole, headers)
        answer = await agent.request("update")
        error = refusal_of(answer.data)
        assert (error["operation_id"], error["details"]["reason"]) == ("op:mine", "answer_too_large")
        assert said in error["message"]
        assert dict(answer.headers or {}) == {**headers, "Pamspec-Status": "413"}
    world.behind.answer = Answer(200, b'"' + b"x" * (MESSAGE_BYTES - 2) + b'"', {})
    assert len((await agent.request("read")).data) == MESSAGE_BYTES
    world.behind.reset()


async def test_one_slow_request_holds_up_no_other_and_too_many_are_refused(own_world: BusWorld) -> None:
    world = own_world
    gateway = await world.gateway(max_requests=9)  # of which one tenant gets five
    agent = await world.agent(await world.key())
    world.behind.gate = asyncio.Event()
    slow = [asyncio.create_task(agent.request("read")) for _ in range(5)]

    async def under_way() -> bool:
        return len(world.behind.calls) == 5

    await until(under_way)
    refused = await agent.request("read")
    error = refusal_of(refused.data)
    assert (error["code"], error["details"]["limit"]) == ("service_unavailable", "tenant.concurrency")
    assert {"Pamspec-Status": "429", "Retry-After": "1"}.items() <= dict(refused.headers or {}).items()
    waiting = asyncio.create_task(agent.request("poll"))

    async def polls() -> bool:
        return len(world.behind.calls) == 6

    await until(polls)
    assert not any(task.done() for task in slow)
    stopping = asyncio.create_task(gateway.stop())
    world.behind.gate.set()
    for task in (*slow, waiting):
        assert document_of(await task) == {"told": True}
    await stopping
    with pytest.raises(nats.errors.NoRespondersError):
        await agent.request("read")


async def test_two_gateways_share_the_requests(own_world: BusWorld) -> None:
    world = own_world
    first, second = await world.gateway(), await world.gateway()
    agent = await world.agent(await world.key())
    answers = await asyncio.gather(*(agent.request("read") for _ in range(100)))
    assert all(document_of(answer) == {"told": True} for answer in answers)
    assert len(world.behind.calls) == 100
    await first.stop()
    assert document_of(await agent.request("read")) == {"told": True}
    await second.stop()


async def test_a_waiting_poll_ends_with_its_key(own_world: BusWorld) -> None:
    world = own_world
    await world.gateway(system_nkey_seed=None)
    key = await world.key()
    agent = await world.agent(key)
    world.behind.gate = asyncio.Event()
    polling = asyncio.create_task(agent.request("poll"))
    await asyncio.wait_for(world.behind.started.wait(), PATIENCE_S)
    await world.revoke(key)
    assert refusal_of((await polling).data)["code"] == "access_denied"


async def test_an_answer_sent_to_a_foreign_subject_shows_what_it_is(world: BusWorld) -> None:
    """The server carries it to whoever listens there; no frame of a channel has its header."""
    victim = await world.agent(await world.key("agent:b"), "agent:b")
    subject = f"pamspec.deliver.{victim.token}.sub"
    heard = await victim.client.subscribe(subject)
    await victim.client.flush()
    attacker = await world.agent(await world.key("agent:attacker"), "agent:attacker")
    seen = len(world.behind.calls)
    await attacker.client.publish(f"pamspec.op.{attacker.token}.read", b"{}")
    for reply in (subject, f"_INBOX_{victim.token}.x"):
        await attacker.client.publish(f"pamspec.op.{attacker.token}.read", b"{}", reply=reply)
    message = await heard.next_msg(PATIENCE_S)
    assert (message.headers or {})["Pamspec-Status"] == "200"
    for reserved in ("_R_.x.y", "$JS.ACK.a.b", "_GR_.x"):
        await attacker.client.publish(f"pamspec.op.{attacker.token}.read", b"{}", reply=reserved)
        async with asyncio.timeout(PATIENCE_S):
            await attacker.told.get()
    await attacker.request("read")
    assert len(world.behind.calls) == seen + 3


async def test_pages_and_polls_end_where_a_message_does(doors: Doors) -> None:
    named = {"scope_id": "workspace:large"}
    await doors.bus("create_scope", orjson.dumps({**named, "scope_kind": "workspace"}))
    for _ in range(6):
        document = {
            **named,
            "object_type": "claim",
            "canonical_content": "x" * 900_000,
            "provenance": {"activity": "t"},
        }
        status, answer, _ = await doors.bus("create", orjson.dumps(document))
        assert status == 201, answer[:300]
    asked: Document = {**named, "query": {"kind": "structured", "trust": "all"}, "pagination": {"limit": 10}}
    status, answer, _ = await doors.bus("query", orjson.dumps(asked))
    page = orjson.loads(answer)
    assert (status, len(page["items"])) == (200, 3)
    asked["pagination"]["cursor"] = page["next_cursor"]
    rest = orjson.loads((await doors.bus("query", orjson.dumps(asked)))[1])
    assert len(rest["items"]) == 3
    opened = {**named, "after_sequence": 0, "include_content": True}
    on = {"subscription_id": orjson.loads((await doors.bus("subscribe", orjson.dumps(opened)))[1])["subscription_id"]}
    status, answer, _ = await doors.bus("poll", orjson.dumps({**on, "after_sequence": 0, "max": 100}))
    assert (status, len(orjson.loads(answer)["envelopes"])) == (200, 3)
    status, answer, _ = await doors.http("poll", orjson.dumps({**on, "after_sequence": 0, "max": 100}))
    assert (status, len(orjson.loads(answer)["envelopes"])) == (200, 6)


async def test_an_absence_is_held_back_over_the_bus_too(doors: Doors, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[float] = []

    async def hold(self: Absences, came: float) -> None:
        held.append(came)

    monkeypatch.setattr(Absences, "hold", hold)
    body = orjson.dumps({"scope_id": SCOPE, "object_id": "obj:nowhere"})
    status, _, _ = await doors.bus("read", body)
    assert (status, len(held)) == (404, 1)
    status, _, _ = await doors.bus("get_scope", orjson.dumps({"scope_id": SCOPE}))
    assert (status, len(held)) == (200, 1)
