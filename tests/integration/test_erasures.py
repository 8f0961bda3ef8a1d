"""After a redaction or a deletion the value is nowhere: no row, no door, no message, no file of ours (M048, S16, S21).

The page bytes and the write-ahead log of PostgreSQL are the one place that is left out: they are the store's own.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from pamspec_client import ObjectDeleted, ObjectRedacted, Outcome, VersionConflict
from tests.integration.checks import whole
from tests.integration.erasing import (
    PUBLIC,
    SECRETS,
    Door,
    _numbers,
    erased,
    everywhere,
    in_files,
    in_stream,
    in_tables,
    lived,
)
from tests.integration.harness import SECOND_DOOR, Fleet


@pytest_asyncio.fixture
async def door(fleet: Fleet) -> AsyncIterator[Door]:
    """A scope of the test alone."""
    scope = f"workspace:erasures-{next(_numbers)}"
    await fleet.client().create_scope(scope_id=scope)
    async with aiohttp.ClientSession() as session:
        yield Door(fleet, session, scope)


WAYS = ["delete", "redact", "transition", "atomic batch", "paths", "chosen versions"]


@pytest.mark.parametrize("how", WAYS)
async def test_the_value_is_nowhere(fleet: Fleet, door: Door, how: str) -> None:
    client = fleet.client()
    life = await lived(client, door.scope)
    before = await everywhere(door, life)
    assert (await in_tables(fleet, *SECRETS)).keys() == set(SECRETS)
    for text in SECRETS:
        assert any(text.encode() in body for body in before.values()), text
    async with fleet.database() as connection:
        await connection.execute("ANALYZE")
    gone = await erased(client, life, how)
    kept = how in ("paths", "chosen versions")
    assert gone.erasure_id is not None or how == "transition"
    after = await everywhere(door, replace(life, versions=[*life.versions, gone]))
    # The signals of a version that is cut stay its own (and are gone with the next whole erasure).
    texts = [text for text in SECRETS if not (kept and text == SECRETS[11])]
    for text in texts:
        assert [name for name, body in after.items() if text.encode() in body] == [], text
    assert await in_tables(fleet, *texts) == {}
    await whole(fleet, [door.scope])
    assert await in_stream(fleet, texts) == []
    assert in_files(fleet, texts) == []
    code = b"object_deleted" if how == "delete" else b"object_redacted"
    restoring = {"restore_version_id": life.versions[0].version_id, "expected_version_id": gone.version_id}
    about = {"object_id": life.object_id, "provenance": PUBLIC}
    assert code in (await door("update", **about, **restoring))[1]
    assert code in after["snapshot"]
    past = [
        after[f"{name} {number}"] for name in ("version", "as of", "as of time", "operation") for number in range(3)
    ]
    for body in (*past, after["again create"], after["again update"], after["again batch"], after["source"]):
        assert code in body, body
    if kept:
        assert json.loads(after["read"])["envelope"]["canonical_content"] == {
            "kept": "public",
            "deep": {"list": ["kept"]},
        }
    else:
        assert code in after["read"]
        state = "deleted" if how == "delete" else "redacted"
        assert b'"canonical_content":{"tombstone":true}' in after[f"query {state}"]
        assert b'"canonical_content":{"tombstone":true}' not in after["query available"]
    history = json.loads(after["history"])
    tombstones = [one["canonical_content"] == {"tombstone": True} for one in history["versions"]]
    assert tombstones == [True] * 3 + [not kept]
    assert list(history["notes"].values()) == [{"policy_basis": "asked"}]


async def test_an_entity_tag_of_an_erased_version_is_never_fresh(fleet: Fleet, door: Door) -> None:
    """What a client holds under a tag is gone from the service, and it says so."""
    client = fleet.client()
    made = await client.create(scope_id=door.scope, object_type="claim", canonical_content={"a": 1}, provenance=PUBLIC)
    path = f"/v1/objects?scope_id={door.scope}&object_id={made.object_id}"
    status, _, tag = await door.get(path)
    assert tag is not None
    assert (status, (await door.get(path, **{"If-None-Match": tag}))[0]) == (200, 304)
    left = await client.redact(
        scope_id=door.scope,
        object_id=made.object_id or "",
        expected_version_id=made.version_id,
        policy_basis="asked",
        redaction_target={"paths": ["/a"]},
    )
    status, body, other = await door.get(path, **{"If-None-Match": tag})
    assert (status, json.loads(body)["envelope"]["canonical_content"], other != tag) == (200, {}, True)
    assert (await door.get(f"{path}&version_id={made.version_id}", **{"If-None-Match": tag}))[0] == 410
    assert other is not None
    await client.redact(
        scope_id=door.scope,
        object_id=made.object_id or "",
        expected_version_id=left.version_id,
        policy_basis="asked",
        redaction_target={"whole": True},
    )
    assert (await door.get(path, **{"If-None-Match": other}))[0] == 410


async def test_a_page_begun_before_the_erasure_shows_nothing_of_it(fleet: Fleet, door: Door) -> None:
    """A cursor's position lies before it; what was erased since is left out, what was cut comes no more."""
    client = fleet.client()
    made = [
        await client.create(
            scope_id=door.scope, object_type="claim", canonical_content={"n": n, "s": SECRETS[0]}, provenance=PUBLIC
        )
        for n in range(6)
    ]
    expression: Any = {"kind": "structured", "trust": "working"}
    first = await client.query(scope_id=door.scope, query=expression, limit=2)
    assert [item.envelope.content["n"] for item in first.items] == [5, 4]
    about: Any = {"scope_id": door.scope, "policy_basis": "asked"}
    targets: Any = ((3, {"whole": True}), (2, {"paths": ["/s"]}))
    for number, target in targets:
        one: Any = {"object_id": made[number].object_id, "expected_version_id": made[number].version_id}
        await client.redact(**about, **one, redaction_target=target)
    await client.delete(**about, object_id=made[1].object_id or "", expected_version_id=made[1].version_id)
    second = await client.query(scope_id=door.scope, query=expression, limit=10, cursor=first.next_cursor)
    assert [item.envelope.content["n"] for item in second.items] == [0]


@pytest.mark.parametrize("rival", ["update", "transition", "redact", "delete", "promote"])
async def test_of_two_changes_at_once_one_follows_the_other(fleet: Fleet, door: Door, rival: str) -> None:
    """Over two write processes: one wins, the other hears so, and nothing of the loser is left."""
    doors = [fleet.client(), fleet.client(SECOND_DOOR)]
    for number in range(12):
        made = await doors[0].create(
            scope_id=door.scope,
            object_type="working_memory" if rival == "promote" else "claim",
            canonical_content={"task_ref": "task:1", "content": f"RACE-{number}"},
            provenance=PUBLIC,
        )
        about: Any = {
            "scope_id": door.scope,
            "object_id": made.object_id,
            "expected_version_id": made.version_id,
        }
        basis: Any = {"policy_basis": "asked"}
        requests: dict[str, Any] = {
            "update": {"canonical_content": {"content": f"LATER-{number}"}, "provenance": PUBLIC},
            "transition": {**basis, "dimension": "lifecycle", "target_state": "archived"},
            "redact": {**basis, "redaction_target": {"paths": ["/content"]}},
            "delete": basis,
        }
        sent_by_rival = about | requests.get(rival, {})
        if rival == "promote":
            del sent_by_rival["object_id"]
            sent_by_rival |= {"source_object_id": made.object_id, "target_object_type": "claim"}
            sent_by_rival |= {"target_canonical_content": {"public": number}, "provenance": PUBLIC}
        whole_: Any = {**about, **basis, "redaction_target": {"whole": True}}
        sent = [doors[0].call("redact", whole_), doors[1].call(rival, sent_by_rival)]
        if number % 2:
            sent.reverse()
        answers = await asyncio.gather(*sent, return_exceptions=True)
        lost = [answer for answer in answers if isinstance(answer, BaseException)]
        assert [type(error) for error in lost] in ([VersionConflict], [ObjectDeleted])
        with suppress(ObjectRedacted, ObjectDeleted):
            left = await doors[0].read(scope_id=door.scope, object_id=made.object_id or "")
            again: Any = {**whole_, "expected_version_id": left.version_id}
            await doors[number % 2].redact(**again)
        with pytest.raises(Exception, match=r"redacted|deleted"):
            await doors[0].read(scope_id=door.scope, object_id=made.object_id or "")
        assert await in_tables(fleet, f'"RACE-{number}"', f'"LATER-{number}"') == {}
    await whole(fleet, [door.scope])


async def test_no_read_that_begins_after_the_answer_shows_the_value(fleet: Fleet, door: Door) -> None:
    """K1 through every reading door of the query service, while many read together."""
    client, loop = fleet.client(), asyncio.get_running_loop()
    made = await client.create(
        scope_id=door.scope, object_type="claim", canonical_content={"s": SECRETS[0]}, provenance=PUBLIC
    )
    about = {"object_id": made.object_id}
    filters = {"availability_state": ["available", "redacted"], "validation_state": "any"}
    requests: list[tuple[str, dict[str, Any]]] = [
        ("read", about),
        ("read", {**about, "version_id": made.version_id}),
        ("read", {**about, "as_of": {"ledger_sequence": 1}}),
        ("query", {"query": {"kind": "structured", "filters": filters}}),
        ("inspect_history", about),
    ]
    seen: list[tuple[float, bool, str]] = []
    stop = asyncio.Event()

    async def reading(operation: str, document: dict[str, Any]) -> None:
        while not stop.is_set():
            began = loop.time()
            _, body = await door(operation, **document)
            seen.append((began, SECRETS[0].encode() in body, operation))

    tasks = [asyncio.create_task(reading(*request)) for request in requests * 3]
    async with asyncio.timeout(60):
        while len(seen) < 60:
            await asyncio.sleep(0.01)
        await client.redact(
            scope_id=door.scope,
            object_id=made.object_id or "",
            expected_version_id=made.version_id,
            policy_basis="asked",
            redaction_target={"whole": True},
        )
        answered, count = loop.time(), len(seen)
        while len(seen) < count + 60:
            await asyncio.sleep(0.01)
    stop.set()
    await asyncio.gather(*tasks)
    assert any(shown for _, shown, _ in seen)
    assert [operation for began, shown, operation in seen if shown and began >= answered] == []


async def test_a_killed_write_process_leaves_each_redaction_whole_or_undone(fleet: Fleet, door: Door) -> None:
    """Every client hears of one success, though the process that carries it out is killed twice."""
    client = fleet.client()
    made = []
    for start in range(0, 400, 200):
        items: Any = [
            {
                "operation": "create",
                "object_type": "claim",
                "canonical_content": {"s": f"KILLED-{n}"},
                "provenance": PUBLIC,
            }
            for n in range(start, start + 200)
        ]
        made += (await client.batch(scope_id=door.scope, items=items)).results
    waiting, done = iter(made), []

    async def redacting() -> None:
        for one in waiting:
            assert isinstance(one, Outcome)
            gone = await client.redact(
                scope_id=door.scope,
                object_id=one.object_id or "",
                expected_version_id=one.version_id,
                policy_basis="asked",
                redaction_target={"whole": True},
            )
            done.append(gone)

    workers = [asyncio.create_task(redacting()) for _ in range(4)]
    for share in (80, 240):
        while len(done) < share:
            await asyncio.sleep(0.005)
            assert not any(worker.done() and worker.exception() for worker in workers)
        fleet.kill("write")
        await fleet["write"].start()
    await asyncio.gather(*workers)
    assert {(gone.sequence, gone.envelope.availability_state) for gone in done} == {(2, "redacted")}
    assert len({gone.object_id for gone in done}) == 400
    assert await in_tables(fleet, "KILLED-") == {}
    with pytest.raises(ObjectRedacted):
        await client.read(scope_id=door.scope, object_id=done[0].object_id or "")
    await whole(fleet, [door.scope])
