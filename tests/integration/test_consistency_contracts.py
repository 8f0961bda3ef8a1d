"""The eight consistency contracts K1 to K8, each as a named test over HTTP, on real servers that really lag or die."""

import asyncio
import json
import os
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import aiohttp
import asyncpg
import pytest
import pytest_asyncio
from asyncpg.transaction import Transaction

from pamspec_conformance import Facilities, HttpBinding, Outcome
from pamspec_conformance.scenarios import run_scenario, shipped
from tests.integration.harness import SECOND_DOOR, Fleet, until
from tests.integration.plain_http import Document, Http, in_own_scope
from tests.integration.standby import LAGGING_DOOR, Standby, standby
from tests.integration.wires import AnswerLosingWire

if TYPE_CHECKING:
    Database: TypeAlias = asyncpg.Connection[asyncpg.Record]
else:
    Database = asyncpg.Connection

WAIT_MS = 20_000


@pytest_asyncio.fixture(loop_scope="session")
async def http(fleet: Fleet) -> AsyncIterator[Http]:
    async with in_own_scope(fleet) as http:
        yield http


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def behind(shared_fleet: Fleet, server_directory: Path) -> AsyncIterator[Standby]:
    """A standby with a door in front, for all tests here."""
    await shared_fleet.ready()
    async with standby(shared_fleet, server_directory / "standby") as behind:
        yield behind


@pytest_asyncio.fixture(loop_scope="session")
async def lagging(behind: Standby, http: Http) -> AsyncIterator[Standby]:
    """A door whose reads come from a standby that has the test's scope."""
    await behind.caught_up()
    yield behind
    await behind.resume()


READ: Document = {}
QUERY: Document = {"query": {"kind": "structured"}}
RANKED: Document = {"query": {"kind": "hybrid", "text": "n", "modes": ["lexical"], "trust": "all"}}


def asked(operation: str, object_id: str) -> Document:
    """A read of the object, a query that finds it, or its history."""
    return {"query": {"kind": "structured"}} if operation == "query" else {"object_id": object_id}


async def test_k1_read_your_writes(http: Http, lagging: Standby) -> None:
    """A read after an acknowledged write shows it, or waits, or is unavailable; from a store that lags too."""
    await lagging.pause()
    made = await http.claim({"n": 1})
    floor = {"min_sequence": made["ledger_sequence"]}
    for operation in ("read", "query", "inspect_history"):
        document = asked(operation, made["object_id"])
        behind = await http.call(operation, {**document, **floor}, door=LAGGING_DOOR)
        assert (behind.status, behind.code, behind.reason) == (503, "service_unavailable", "stale_session"), operation
        assert "Retry-After" in behind.headers
        beside = await http.call(operation, {**document, **floor})
        assert made["version_id"].encode() in beside.body, operation
    ranked = await http.call("query", {**RANKED, **floor}, door=LAGGING_DOOR)
    assert (ranked.status, ranked.code, ranked.reason) == (503, "service_unavailable", "stale_session")
    waiting = asyncio.create_task(
        http.call("read", {"object_id": made["object_id"], **floor, "wait_ms": WAIT_MS}, door=LAGGING_DOOR)
    )
    await lagging.resume()
    assert (await waiting).document["envelope"] == made["envelope"]


async def test_k2_version_floor(http: Http, lagging: Standby) -> None:
    """A floor of 42 is never satisfied by 41: not by a look-up, a query, a history or a projection."""
    made = await http.claim({"n": 0})
    while made["ledger_sequence"] < 41:
        made = (await http.update(made, {"n": made["ledger_sequence"]})).document
    await lagging.caught_up()
    await lagging.pause()
    newer = (await http.update(made, {"n": "42"})).document
    assert newer["ledger_sequence"] == 42
    for operation in ("read", "query", "inspect_history"):
        document = asked(operation, made["object_id"])
        at_41 = await http.call(operation, {**document, "min_sequence": 41}, door=LAGGING_DOOR)
        assert (at_41.code, at_41.position) == (None, 41), operation
        for wait_ms in (0, 200):
            floor = {"min_sequence": 42, "wait_ms": wait_ms}
            below = await http.call(operation, {**document, **floor}, door=LAGGING_DOOR)
            assert (below.code, below.reason) == ("service_unavailable", "stale_session"), operation
            assert newer["version_id"].encode() not in below.body
            assert b'"envelope"' not in below.body
            ranked = await http.call("query", {**RANKED, **floor}, door=LAGGING_DOOR)
            assert (ranked.code, ranked.reason) == ("service_unavailable", "stale_session")
    await lagging.resume()
    reached = await http.call(
        "read", {"object_id": made["object_id"], "min_sequence": 42, "wait_ms": WAIT_MS}, door=LAGGING_DOOR
    )
    assert reached.document["envelope"] == newer["envelope"]
    assert reached.position >= 42


async def test_k3_index_watermark(http: Http, lagging: Standby) -> None:
    """Whatever answers from a copy says how far it is; a copy that lags is never called current."""
    made = await http.claim({"n": 1})
    await lagging.caught_up()
    await lagging.pause()
    newer = (await http.update(made, {"n": 2})).document
    behind = await http.call("query", QUERY, door=LAGGING_DOOR)
    current = await http.call("query", QUERY)
    assert behind.position == made["ledger_sequence"] < current.position == newer["ledger_sequence"]
    assert [item["envelope"]["version_id"] for item in behind.document["items"]] == [made["version_id"]]
    assert [item["envelope"]["version_id"] for item in current.document["items"]] == [newer["version_id"]]
    await lagging.resume()
    await _indexes_report_their_watermark(http, newer["ledger_sequence"])


async def _indexes_report_their_watermark(http: Http, head: int) -> None:
    """Of derived indexes: how far they are, beside the head; an answer from one never claims more."""
    reached = {**RANKED, "min_sequence": head, "wait_ms": WAIT_MS}
    answer = await http.call("query", reached)
    assert answer.code is None, answer.document
    assert head <= answer.document["index"]["watermark"] <= answer.position
    headers, url = http.fleet.headers, http.fleet["gateway"].url
    async with http.session.get(f"{url}/v1/indexes", params={"scope_id": http.scope}, headers=headers) as got:
        document = await got.json()
    (lexical,) = (index for index in document["indexes"] if index["index_id"] == "index:lexical")
    assert head <= lexical["watermark"]["sequence"] <= document["head"]["sequence"]
    assert lexical["lag"]["events"] == document["head"]["sequence"] - lexical["watermark"]["sequence"]
    ranked = {"query": {"kind": "semantic", "text": "n"}, "embedding_space_id": "space:none"}
    assert (await http.call("query", ranked)).code == "embedding_space_mismatch"


async def test_k4_monotonic_reads(http: Http, lagging: Standby) -> None:
    """A session that saw a position is never shown an older one: it is told that its session would go back."""
    made = await http.claim({"n": 1})
    await lagging.caught_up()
    await lagging.pause()
    await http.update(made, {"n": 2})
    document = {"object_id": made["object_id"]}
    seen = (await http.call("read", document)).position
    for operation in ("read", "query"):
        about = asked(operation, made["object_id"])
        back = await http.call(operation, {**about, "min_sequence": seen}, door=LAGGING_DOOR)
        assert (back.code, back.reason) == ("service_unavailable", "stale_session")
    unbound = await http.call("read", document, door=LAGGING_DOOR)
    assert unbound.document["envelope"] == made["envelope"], "without a floor it may be older, and says so"
    assert unbound.position < seen
    await lagging.resume()
    positions = [seen]
    for _ in range(5):
        floor = {"min_sequence": positions[-1], "wait_ms": WAIT_MS}
        positions.append((await http.call("read", {**document, **floor}, door=LAGGING_DOOR)).position)
    assert positions == sorted(positions)


async def test_k5_compare_and_set(http: Http) -> None:
    """Of twenty updates of one version over two doors one is carried out; a mismatch changes nothing."""
    made = await http.claim({"n": 0})
    doors = ["gateway", SECOND_DOOR] * 10
    answers = await asyncio.gather(*(http.update(made, {"n": n}, door=door) for n, door in enumerate(doors)))
    won = [answer.document for answer in answers if answer.code is None]
    lost = [answer for answer in answers if answer.code is not None]
    assert len(won) == 1
    assert {answer.code for answer in lost} == {"version_conflict"}
    assert {answer.document["error"]["details"]["current_version_id"] for answer in lost} == {won[0]["version_id"]}
    assert [version["version_id"] for version in await http.versions(made["object_id"])] == [
        made["version_id"],
        won[0]["version_id"],
    ]


async def test_k6_duplicate_source_event(http: Http) -> None:
    """(source, event id) names one event: the same payload answers the first outcome, another is a conflict."""
    event = {"source_event": {"source": "sensor:1", "id": "E-1"}}
    document = {**http.made({"celsius": 6.2}), **event}
    doors = ["gateway", SECOND_DOOR] * 5
    answers = await asyncio.gather(*(http.call("create", document, door=door) for door in doors))
    assert {answer.status for answer in answers} == {201}
    (outcome,) = {(answer.document["object_id"], answer.document["version_id"]) for answer in answers}
    other = await http.call("create", {**http.made({"celsius": 7.0}), **event})
    assert other.code == "duplicate_operation"
    http.fleet.kill("write")
    await http.fleet["write"].start()
    again = await http.call("create", document)
    assert (again.document["object_id"], again.document["version_id"]) == outcome
    assert (await http.call("create", {**http.made({"celsius": 7.0}), **event})).code == "duplicate_operation"
    elsewhere = await http.call("create", {**document, "source_event": {"source": "sensor:2", "id": "E-1"}})
    assert elsewhere.document["object_id"] != outcome[0]
    assert len(await http.versions(outcome[0])) == 1


async def test_k7_retry_key(http: Http) -> None:
    """A key is one of scope, operation and payload; it answers its outcome at once, later and after a crash."""
    key = f"key:{secrets.token_hex(6)}"
    document = http.made({"n": 1})
    doors = ["gateway", SECOND_DOOR] * 5
    answers = await asyncio.gather(*(http.call("create", document, door=door, key=key) for door in doors))
    (first,) = {answer.body for answer in answers}
    assert {answer.status for answer in answers} == {201}
    http.fleet.kill("write")
    await http.fleet["write"].start()
    again = await http.call("create", document, key=key)
    assert (again.body, again.headers.get("Idempotency-Replayed")) == (first, "true")
    assert (await http.call("create", http.made({"n": 2}), key=key)).code == "duplicate_operation"
    looked_up = await http.call("get_operation", {"operation": "create", "idempotency_key": key})
    assert (looked_up.document["state"], looked_up.document["outcome"]) == ("committed", again.document)
    changed = await http.call("update", http.following(again.document, {"n": 3}), key=key)
    assert changed.document["sequence"] == 2, "of another operation it is another key"
    other = f"{http.scope}-other"
    await http.call("create_scope", {"scope_id": other, "scope_kind": "workspace"})
    elsewhere = await http.call("create", {**document, "scope_id": other}, key=key)
    assert elsewhere.document["object_id"] != again.document["object_id"], "in another scope it is another key"


async def test_k8_ambiguous_outcome(http: Http) -> None:
    """After a lost answer the look-up tells what became of the write; nothing is carried out twice."""
    operation_id = f"op:{secrets.token_hex(6)}"
    document = {**http.made({"n": 1}), "operation_id": operation_id}
    async with AnswerLosingWire.to(http.fleet["gateway"].url) as wire:
        with pytest.raises((aiohttp.ClientError, ConnectionError)):
            await http.send(wire.url, "create", document)
        assert wire.lost == 1
    found = (await http.call("get_operation", {"operation_id": operation_id})).document
    assert found["state"] == "committed"
    assert (await http.call("create", document)).document == found["outcome"]
    assert len(await http.versions(found["outcome"]["object_id"])) == 1

    refused = {"object_id": "obj:none", "expected_version_id": "ver:none", "policy_basis": "test"}
    failed = await http.call("delete", {**refused, "operation_id": f"{operation_id}-f"})
    found = (await http.call("get_operation", {"operation_id": f"{operation_id}-f"})).document
    assert (found["state"], found["outcome"]) == ("failed", failed.document)

    found = (await http.call("get_operation", {"operation_id": f"{operation_id}-u"})).document
    assert found["state"] == "unknown"
    late = await http.call("create", {**document, "operation_id": f"{operation_id}-u"})
    assert (late.code, late.reason) == ("duplicate_operation", "abandoned"), "unknown is final"


async def test_k8_in_progress(http: Http) -> None:
    """While a write waits for its scope the look-up says in_progress; afterwards it says committed."""
    operation_id = f"op:{secrets.token_hex(6)}"
    document = {**http.made({"n": 1}), "operation_id": operation_id}
    async with http.fleet.database() as database:
        held = database.transaction()
        await held.start()
        await database.execute(
            "SELECT FROM core.scope_head h JOIN core.scope s USING (scope_key) WHERE s.scope_id = $1 FOR UPDATE OF h",
            http.scope,
        )
        writing = asyncio.create_task(http.call("create", document))

        async def in_progress() -> bool:
            answer = await http.call("get_operation", {"operation_id": operation_id})
            assert answer.document["state"] in ("in_progress", "unknown"), answer.document
            return bool(answer.document["state"] == "in_progress")

        await until(in_progress, 60, "the operation is in progress")
        await held.rollback()
    answer = await writing
    assert answer.status == 201
    found = (await http.call("get_operation", {"operation_id": operation_id})).document
    assert (found["state"], found["outcome"]) == ("committed", answer.document)


async def test_k8_after_a_crash(http: Http) -> None:
    """After kill -9 of the writer every write is either committed whole, or unknown for good."""
    ids = [f"op:{secrets.token_hex(6)}-{number}" for number in range(40)]

    async def create(number: int) -> None:
        document = {**http.made({"n": number}), "operation_id": ids[number], "object_id": f"obj:{number}"}
        await http.call("create", document)

    writing = [asyncio.create_task(create(number)) for number in range(len(ids))]
    await asyncio.wait(writing, return_when=asyncio.FIRST_COMPLETED)
    http.fleet.kill("write")
    await asyncio.gather(*writing, return_exceptions=True)
    await http.fleet["write"].start()
    for number, operation_id in enumerate(ids):
        found = (await http.call("get_operation", {"operation_id": operation_id})).document
        assert found["state"] in ("committed", "unknown"), found
        versions = await http.versions(f"obj:{number}")
        assert len(versions) == (1 if found["state"] == "committed" else 0)
        again = {**http.made({"n": number}), "operation_id": operation_id, "object_id": f"obj:{number}"}
        late = await http.call("create", again)
        assert late.reason == "abandoned" if found["state"] == "unknown" else late.document == found["outcome"]


async def test_k2_in_the_acceptance_scenario(http: Http) -> None:
    """A correction while the index lags: the look-up by id is current, whatever an index answers is at its floor."""

    url, key = http.fleet["gateway"].url, http.fleet.headers["Authorization"].partition(" ")[2]
    scenarios = [shipped()]
    if given := os.environ.get("PAMSPEC_COLD_CHAIN"):
        scenarios.append(json.loads(Path(given).read_text(encoding="utf-8")))
    for scenario in scenarios:
        async with http.fleet.database() as database, HttpBinding(url, key) as binding:
            held = database.transaction()

            async def hold(back: bool, database: Database = database, held: Transaction = held) -> None:
                """Whoever takes entries in waits for the rows that it moves."""
                if back:
                    await held.start()
                    await database.execute("SELECT FROM index_.inbox FOR UPDATE")
                else:
                    await held.rollback()

            results = await run_scenario(scenario, binding, Facilities(hold_indexes=hold))
        failed = [one for one in results if one.outcome is not Outcome.PASSED and one.does != "assemble_context"]
        assert not failed, failed
