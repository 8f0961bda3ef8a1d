"""After a redaction or a deletion the value is nowhere: no row, no door, no message, no file of ours (M048, S16, S21).

The page bytes and the write-ahead log of PostgreSQL are the one place that is left out: they are the store's own.
"""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from pamspec_client import AsyncClient, ObjectDeleted, ObjectRedacted, Outcome, VersionConflict
from pamspec_common import streams
from tests.integration.checks import whole
from tests.integration.harness import SECOND_DOOR, Fleet

SECRETS = [f"SECRET-{number}-x" for number in range(16)]
CONTENT_SECRETS = SECRETS[:3]
_numbers = itertools.count(1)
ACTOR: Any = {"display_name": SECRETS[3], "attestation": {"manifest_digest": SECRETS[4], "signature": SECRETS[5]}}
PROVENANCE: Any = {
    "activity": SECRETS[6],
    "source_ref": SECRETS[7],
    "evidence_refs": [SECRETS[8]],
    "transformation_parent": SECRETS[9],
    "integrity_ref": SECRETS[10],
}
SIGNALS: Any = {"verification_method_id": SECRETS[11], "evidence_strength": 0.5}
INTEGRITY: Any = {"digest": SECRETS[12], "signature": SECRETS[13], "ledger_ref": SECRETS[14]}
PUBLIC: Any = {"activity": "kept"}


@dataclass
class Door:
    """The gateway over HTTP: answers as bytes, refusals too."""

    fleet: Fleet
    session: aiohttp.ClientSession
    scope: str

    async def __call__(self, operation: str, **document: Any) -> tuple[int, bytes]:
        """The status and the body of an operation in the test's scope."""
        url = f"{self.fleet['gateway'].url}/v1/{operation}"
        body = json.dumps({"scope_id": self.scope, **document})
        async with self.session.post(url, data=body, headers=self.fleet.headers) as answer:
            return answer.status, await answer.read()

    async def get(self, path: str, **headers: str) -> tuple[int, bytes, str | None]:
        """The status, the body and the entity tag of a convenience."""
        url = f"{self.fleet['gateway'].url}{path}"
        async with self.session.get(url, headers=self.fleet.headers | headers) as answer:
            return answer.status, await answer.read(), answer.headers.get("ETag")


@pytest_asyncio.fixture
async def door(fleet: Fleet) -> AsyncIterator[Door]:
    """A scope of the test alone."""
    scope = f"workspace:erasures-{next(_numbers)}"
    await fleet.client().create_scope(scope_id=scope)
    async with aiohttp.ClientSession() as session:
        yield Door(fleet, session, scope)


@dataclass
class Life:
    """An object with secrets wherever a client can put any, and how it was written."""

    versions: list[Outcome]
    snapshot_id: str
    """Sealed after the last of them."""
    create: dict[str, Any]
    update: dict[str, Any]

    @property
    def object_id(self) -> str:
        """The object."""
        assert self.versions[0].object_id is not None
        return self.versions[0].object_id

    @property
    def head(self) -> Outcome:
        """Its newest version."""
        return self.versions[-1]


async def lived(client: AsyncClient, scope: str) -> Life:
    """Created with a source event, held up by a policy, updated, part of a batch."""
    actor: Any = {**await _own(client, scope), **ACTOR}
    create: Any = {
        "scope_id": scope,
        "object_type": "claim",
        "canonical_content": {"kept": "public", "deep": {"list": [SECRETS[0], "kept"]}, SECRETS[1]: 1},
        "provenance": PROVENANCE,
        "quality_signals": SIGNALS,
        "integrity": INTEGRITY,
        "actor": actor,
        "source_event": {"source": "mail", "id": f"{scope}-1"},
        "idempotency_key": f"{scope}-create",
    }
    versions = [await client.create(**create)]
    about: Any = {"scope_id": scope, "object_id": versions[0].object_id}
    versions.append(
        await client.transition(
            **about,
            expected_version_id=versions[-1].version_id,
            dimension="validation",
            target_state="corroborated",
            policy_basis=SECRETS[15],
            actor=actor,
        )
    )
    update: Any = {
        **about,
        "expected_version_id": versions[-1].version_id,
        "canonical_content": {"kept": "public", "deep": {"list": ["kept", SECRETS[2]]}, SECRETS[1]: "a\u0000b"},
        "provenance": PROVENANCE,
        "actor": actor,
        "idempotency_key": f"{scope}-update",
    }
    items: Any = [{"operation": "update", **update}]
    batch = await client.batch(scope_id=scope, items=items, idempotency_key=f"{scope}-batch")
    assert isinstance(batch.results[0], Outcome), batch.results[0]
    versions.append(batch.results[0])
    snapshot_id = f"snap:{scope}"
    await client.call("seal_snapshot", {"scope_id": scope, "snapshot_id": snapshot_id})
    return Life(versions, snapshot_id, create, update)


async def _own(client: AsyncClient, scope: str) -> dict[str, str]:
    made = await client.create(scope_id=scope, object_type="claim", canonical_content=0, provenance=PUBLIC)
    return {name: made.envelope.actor[name] for name in ("actor_id", "actor_kind")}


async def everywhere(door: Door, life: Life) -> dict[str, bytes]:
    """What every door that shows content answers about the object and its scope, by the door's name."""
    about = {"object_id": life.object_id}
    asked: list[tuple[str, str, dict[str, Any]]] = [
        ("read", "read", about),
        ("read fields", "read", {**about, "fields": ["canonical_content", "provenance", "actor", "quality_signals"]}),
        ("history", "inspect_history", {**about, "pagination": {"limit": 1000}}),
        ("ledger", "inspect_history", {"after_sequence": 0, "pagination": {"limit": 1000}}),
        ("again create", "create", life.create),
        ("again update", "update", life.update),
        (
            "again batch",
            "batch",
            {"items": [{"operation": "update", **life.update}], "idempotency_key": f"{door.scope}-batch"},
        ),
        ("source", "create", {**life.create, "idempotency_key": "other"}),
        ("snapshot", "read", {**about, "snapshot_id": life.snapshot_id}),
        ("snapshot query", "query", {"query": {"kind": "structured", "trust": "all"}, "snapshot_id": life.snapshot_id}),
        ("snapshot history", "inspect_history", {**about, "snapshot_id": life.snapshot_id}),
        ("export", "export", {}),
        ("verify", "verify_ledger", {}),
    ]
    for number, version in enumerate(life.versions):
        at = {"ledger_sequence": version.ledger_sequence}
        asked.append((f"version {number}", "read", {**about, "version_id": version.version_id}))
        asked.append((f"as of {number}", "read", {**about, "as_of": at}))
        asked.append(
            (f"as of time {number}", "read", {**about, "as_of": {"recorded_at": version.envelope.recorded_at}})
        )
        everything = {"kind": "structured", "trust": "all", "filters": dict.fromkeys(_STATES, "any"), "as_of": at}
        asked.append((f"query as of {number}", "query", {"query": everything}))
        asked.append((f"operation {number}", "get_operation", {"operation_id": version.operation_id}))
    for state in ("available", "partially_redacted", "redacted", "deleted", "any"):
        states = state if state == "any" else [state]
        filters = {"availability_state": states, "validation_state": "any", "lifecycle_state": "any"}
        asked.append((f"query {state}", "query", {"query": {"kind": "structured", "filters": filters}}))
        temporal = {"kind": "temporal", "temporal_basis": "recorded_at", "range": {"from": "2020-01-01T00:00:00Z"}}
        asked.append((f"temporal {state}", "query", {"query": {**temporal, "filters": filters}}))
    found = {name: (await door(operation, **document))[1] for name, operation, document in asked}
    path = f"/v1/objects?scope_id={door.scope}&object_id={life.object_id}"
    found["convenience"] = (await door.get(path))[1]
    found["subscription"] = await _polled(door)
    return found


_STATES = ("lifecycle_state", "availability_state", "retention_state", "validation_state")


async def _polled(door: Door) -> bytes:
    """All events of the scope from the beginning, with their content."""
    status, body = await door("subscribe", after_sequence=0, include_content=True)
    assert status == 201, body
    name = json.loads(body)["subscription_id"]
    status, events = await door("poll", subscription_id=name, max=1000)
    assert status == 200, events
    await door("unsubscribe", subscription_id=name)
    return events


FOUND_SQL = """
SELECT x FROM unnest($1::text[]) x WHERE EXISTS (
  SELECT FROM {} t WHERE strpos(t::text, x) > 0 OR strpos(t::text, encode(convert_to(x, 'UTF8'), 'hex')) > 0)
"""
TABLES_SQL = """
SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'm') AND n.nspname <> 'information_schema' AND n.nspname <> 'pg_toast'
"""


async def in_tables(fleet: Fleet, *texts: str) -> dict[str, list[str]]:
    """By text the tables of every schema, the system's own with its statistics included, that hold it in any column."""
    found: dict[str, list[str]] = {}
    async with fleet.database() as connection:
        for (name,) in await connection.fetch(TABLES_SQL):
            for (text,) in await connection.fetch(FOUND_SQL.format(name), texts):
                found.setdefault(text, []).append(name)
    return found


async def in_stream(fleet: Fleet, texts: Sequence[str]) -> list[str]:
    """Those of the texts that stand in a message of any of our streams, in its subject or in its headers."""
    found: set[str] = set()
    async with fleet.bus() as client:
        for info in await client.jetstream().streams_info():
            assert info.config.name is not None
            held = await streams.inspect(client, info.config.name)
            assert held is not None
            async for page in streams.read(client, held, 0):
                for message in page:
                    seen = b"%s %s" % (str((message.subject, message.headers)).encode(), message.data)
                    found.update(text for text in texts if text.encode() in seen)
    return sorted(found)


def in_files(fleet: Fleet, texts: Sequence[str]) -> list[str]:
    """Files of the deployment that hold one of the texts: logs, streams, caches; not the pages of PostgreSQL."""
    found = []
    for path in fleet.directory.rglob("*"):
        inside = path.relative_to(fleet.directory).parts
        pages = inside[0] == "postgres" and not path.name.endswith(".log")
        if path.is_file() and not pages:
            data = path.read_bytes()
            found += [f"{path.name}: {text}" for text in texts if text.encode() in data]
    return found


async def erased(client: AsyncClient, life: Life, how: str) -> Outcome:
    """Erase the object's secrets in one of the ways that there are."""
    head = life.head
    about: Any = {"scope_id": head.scope_id, "object_id": head.object_id, "policy_basis": "asked"}
    if how == "delete":
        return await client.delete(**about, expected_version_id=head.version_id)
    if how == "redact":
        target: Any = {"whole": True}
        return await client.redact(**about, expected_version_id=head.version_id, redaction_target=target)
    if how == "transition":
        return await client.transition(
            **about, expected_version_id=head.version_id, dimension="availability", target_state="redacted"
        )
    if how == "atomic batch":
        item: Any = {**about, "expected_version_id": head.version_id, "redaction_target": {"whole": True}}
        items: Any = [{"operation": "redact", **item}]
        batch = await client.batch(scope_id=head.scope_id, items=items, atomic=True)
        assert isinstance(batch.results[0], Outcome), batch.results[0]
        return batch.results[0]
    paths: Any = {"paths": ["/deep/list/1", f"/{SECRETS[1]}"]}
    if how == "paths":
        return await client.redact(
            **about, expected_version_id=head.version_id, redaction_target=paths, provenance=PUBLIC
        )
    assert how == "chosen versions"
    ids = [version.version_id for version in life.versions]
    return await client.redact(
        **about, expected_version_id=head.version_id, redaction_target=paths, version_ids=ids, provenance=PUBLIC
    )


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
