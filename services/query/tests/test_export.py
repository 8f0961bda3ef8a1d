"""export: what a file holds, at one position, and what it costs while its client takes its time."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from pamspec_cli.servers.databases import Database
from pamspec_common.asgi import ClientGone
from pamspec_common.ledger import entry_hash, genesis, keyed_digest, version_digest
from pamspec_common.principal import Principal
from pamspec_query.handlers import export as handler
from pamspec_query.handlers.export import PAGE_ROWS
from services.query.tests.door import Conn, Door, limited
from services.query.tests.exporting import Taking, exported, taken, without_manifest
from services.query.tests.indexed import SPACE, vectors
from services.query.tests.indexed import index as indexed
from services.query.tests.seeds import TENANT, Scope
from services.query.tests.test_verify import SCOPE, seeded


def lines_of(body: bytes) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in body.splitlines()]


async def test_a_file_holds_the_whole_chain(seeding: Conn, door: Door) -> None:
    scope = await seeded(seeding)
    body = await exported(door, SCOPE)
    manifest, root, *entries, end = body.splitlines()
    told = orjson.loads(manifest)
    assert told["watermark"] == {"ledger_epoch": 1, "sequence": 9}
    assert told["embeddings"] == {"requested": "none", "included": False, "spaces": []}
    assert orjson.loads(root)["ledger_id"] == scope.ledger_id.hex()
    previous = genesis(scope.ledger_id)
    for line, row in zip(entries, scope.ledger, strict=True):
        event = row[6]
        assert event in line, "the event's bytes stand in its line"
        previous = entry_hash(previous, event)
        assert orjson.loads(line)["entry_hash"] == previous.hex()
    assert orjson.loads(end)["head_hash"] == previous.hex()
    by_sequence = {orjson.loads(line)["event"]["sequence"]: line for line in entries}
    for version in scope.versions:
        line = by_sequence[version.ledger_seq]
        assert version.metadata in line
        assert orjson.loads(line)["event"]["payload"]["version_digest"] == version_digest(version.metadata)
        part = orjson.loads(line)["version"]
        if version.content is None and version.private is None:
            assert part.keys() == {"operation_hash", "metadata"}, "what was erased is not there"
            continue
        salt = bytes.fromhex(part["salt"])
        assert orjson.loads(version.metadata)["private_digest"] == keyed_digest(salt, "private", version.private or b"")
        if version.content is not None:
            assert b'"content":' + version.content in line


async def test_two_exports_differ_in_their_manifest_alone(seeding: Conn, door: Door) -> None:
    await seeded(seeding)
    first, second = await exported(door, SCOPE), await exported(door, SCOPE, embeddings="include")
    assert without_manifest(first) == without_manifest(second)
    assert orjson.loads(second.partition(b"\n")[0])["embeddings"]["requested"] == "include"


async def test_the_manifest_names_spaces_and_how_much_they_hold(seeding: Conn, door: Door) -> None:
    """P78: descriptors as they were registered, of the spaces with vectors of the scope, where they are asked for."""
    scope = Scope(SCOPE)
    scope.put("obj:a", {"text": "rain"})
    scope.put("obj:b", {"text": "snow"})
    await scope.flush(seeding)
    await indexed(seeding, scope)
    await vectors(seeding, scope, {"a": [1, 0, 0], "b": [0, 1, 0]})
    await vectors(seeding, scope, {}, embedding_space_id="space:elsewhere")
    for asked in ("reference", "include"):
        told = lines_of(await exported(door, SCOPE, embeddings=asked))[0]["embeddings"]
        assert told == {
            "requested": asked,
            "included": False,
            "spaces": [SPACE],
            "counts": [{"embedding_space_id": "space:axes", "objects": 2, "vectors": 2}],
        }
    assert lines_of(await exported(door, SCOPE))[0]["embeddings"]["spaces"] == []


async def test_an_empty_scope_has_an_export(seeding: Conn, door: Door) -> None:
    scope = Scope("workspace:empty")
    await scope.flush(seeding)
    end = lines_of(await exported(door, "workspace:empty"))[-1]
    assert (end["entries"], end["head_hash"]) == (0, genesis(scope.ledger_id).hex())


async def test_any_content_comes_as_it_is_stored(seeding: Conn, door: Door) -> None:
    contents = [b"null", b"0.10", b"1e5", b'"a\\u0000b\\nc"', '"\u2028é"'.encode(), b"[" + b"9" * 900 + b"]", b"{}"]
    scope = Scope(SCOPE)
    for content in contents:
        scope.put(None, raw=content)
    await scope.flush(seeding)
    lines = (await exported(door, SCOPE)).splitlines()[2:-1]
    for line, content in zip(lines, contents, strict=True):
        assert b'"content":' + content + b"}" in line


async def test_pages_end_by_rows_and_by_bytes(seeding: Conn, door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    scope = Scope(SCOPE)
    for index in range(PAGE_ROWS * 2 + 7):
        scope.put(f"obj:{index % 50}", "x" * (200_000 if index % 100 == 0 else 10))
    await scope.flush(seeding)
    many = await taken(door, scope_id=SCOPE)
    monkeypatch.setattr(handler, "PAGE_BYTES", 1024**3)
    few = await taken(door, scope_id=SCOPE)
    assert without_manifest(bytes(many.body)) == without_manifest(bytes(few.body))
    assert few.pieces == 3 + 4, "manifest, scope, three pages, end and the empty last one"
    assert many.pieces > few.pieces


async def test_the_position_is_that_of_the_beginning(seeding: Conn, door: Door) -> None:
    scope = await seeded(seeding)
    taking = Taking(door.service, door.principal, orjson.dumps({"scope_id": SCOPE}))
    taking.go.clear()
    await taking.waiting.wait()
    for index in range(5):
        scope.put("obj:a", index)
    await scope.flush(seeding)
    taking.go.set()
    await taking.task
    assert taking.headers[b"pamspec-as-of-sequence"] == b"9"
    assert lines_of(bytes(taking.body))[-1]["sequence"] == 9


async def test_what_is_erased_while_an_export_runs_is_explained_by_its_file(
    seeding: Conn, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file goes on up to the entry that says why content is missing, and no further."""
    monkeypatch.setattr(handler, "PAGE_ROWS", 2)
    scope = Scope(SCOPE)
    for name in ("a", "b", "c", "d"):
        scope.put(f"obj:{name}", f"secret of {name}")
    await scope.flush(seeding)
    taking = Taking(door.service, door.principal, orjson.dumps({"scope_id": SCOPE}))
    taking.go.clear()
    await taking.waiting.wait()
    scope.put("obj:e", "later")
    scope.put("obj:d", availability_state="deleted", note="why")
    scope.put("obj:e", "later still")
    await scope.flush(seeding)
    taking.go.set()
    await taking.task
    found = lines_of(bytes(taking.body))
    assert found[0]["watermark"]["sequence"] == 4
    assert found[-1]["sequence"] == 6
    assert found[-2]["event"]["event_type"] == "object_deleted"
    assert b"secret of d" not in taking.body
    assert b"secret of a" in taking.body


async def test_a_client_that_takes_nothing_holds_no_connection_and_no_snapshot(
    seeding: Conn, database: Database, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handler, "PAGE_ROWS", 1)
    await seeded(seeding)
    taking = [Taking(door.service, door.principal, orjson.dumps({"scope_id": SCOPE})) for _ in range(12)]
    for one in taking:
        one.go.clear()
        await one.waiting.wait()
    for _ in range(3):
        for one in taking:
            await one.step()
    async with asyncio.timeout(60):
        while {("idle", None)} != await _sessions(seeding, database.name):
            await asyncio.sleep(0.02)
    assert (await door.ok("verify_ledger", scope_id=SCOPE))["ok"] is True
    for one in taking:
        one.go.set()
        await one.task
        assert lines_of(bytes(one.body))[-1]["entries"] == 9


async def _sessions(seeding: Conn, database: str) -> set[tuple[str, Any]]:
    """What the sessions of the query service are doing, and which rows they keep from being cleaned up."""
    rows = await seeding.fetch(
        "SELECT state, backend_xmin FROM pg_stat_activity WHERE application_name = 'pamspec-query' AND datname = $1",
        database,
    )
    return {(row["state"], row["backend_xmin"]) for row in rows}


async def test_a_client_that_leaves_ends_its_export(seeding: Conn, door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler, "PAGE_ROWS", 1)
    await seeded(seeding)
    taking = Taking(door.service, door.principal, orjson.dumps({"scope_id": SCOPE}))
    taking.go.clear()
    await taking.waiting.wait()
    await taking.step()
    taking.leave.set()
    taking.go.set()
    with pytest.raises(ClientGone):
        await taking.task
    assert taking.pieces < 9


async def test_more_at_once_than_allowed_are_refused(seeding: Conn, database: Database) -> None:
    await seeded(seeding)
    async with limited(
        database, Principal(TENANT, "agent:reader", "agent", roles=frozenset({"admin"})), exports_at_once=1
    ) as door:
        first = Taking(door.service, door.principal, orjson.dumps({"scope_id": SCOPE}))
        first.go.clear()
        await first.waiting.wait()
        second = await taken(door, scope_id=SCOPE)
        assert second.status == 503
        assert orjson.loads(bytes(second.body))["error"]["code"] == "service_unavailable"
        first.go.set()
        await first.task
        assert (await taken(door, scope_id=SCOPE)).status == 200


async def test_a_store_that_does_not_answer_ends_an_export_with_a_failure(
    seeding: Conn, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handler, "PAGE_ROWS", 1)
    await seeded(seeding)
    taking = Taking(door.service, door.principal, orjson.dumps({"scope_id": SCOPE}))
    taking.go.clear()
    await taking.waiting.wait()
    async with seeding.transaction():
        await seeding.execute("LOCK TABLE core.ledger IN ACCESS EXCLUSIVE MODE")
        taking.go.set()
        await taking.task
    last = lines_of(bytes(taking.body))[-1]
    assert last["kind"] == "failure"
    assert last["error"]["code"] == "service_unavailable"


@pytest.mark.parametrize(
    ("document", "status", "code"),
    [
        ({"scope_id": "workspace:none"}, 404, "scope_not_found"),
        ({}, 400, "invalid_request"),
        ({"scope_id": SCOPE, "embeddings": "some"}, 400, "invalid_request"),
        ({"scope_id": SCOPE, "format": "tar"}, 400, "invalid_request"),
        ({"scope_id": SCOPE, "min_sequence": 10}, 503, "service_unavailable"),
        ({"scope_id": SCOPE, "ledger_epoch": 2}, 400, "invalid_request"),
        ({"scope_id": SCOPE, "actor": {"actor_id": "agent:other", "actor_kind": "agent"}}, 403, "access_denied"),
    ],
)
async def test_what_is_refused(seeding: Conn, door: Door, document: dict[str, Any], status: int, code: str) -> None:
    await seeded(seeding)
    found = await taken(door, **document)
    assert (found.status, orjson.loads(bytes(found.body))["error"]["code"]) == (status, code)


async def test_a_scope_of_another_tenant_is_not_there(seeding: Conn, door: Door) -> None:
    await Scope("workspace:theirs", tenant_id="tenant:other").flush(seeding)
    found = await taken(door, scope_id="workspace:theirs")
    assert orjson.loads(bytes(found.body))["error"]["code"] == "scope_not_found"


async def test_nobody_exports_without_a_signed_principal(seeding: Conn, door: Door) -> None:
    await seeded(seeding)
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b'{"scope_id":"workspace:a"}'}

    async def send(message: Any) -> None:
        sent.append(message)

    assert door.service.app is not None
    await door.service.app({"type": "http", "method": "POST", "path": "/v1/export", "headers": []}, receive, send)
    assert sent[0]["status"] == 401
