"""Files that must not be taken: each refusal names the line, and nothing remains, in any table."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import msgspec
import orjson
import pytest

from pamspec_common.ledger import entry_hash, genesis, keyed_digest, version_digest
from pamspec_common.strict_json import canonical, dumps
from pamspec_common.transfer import EntryLine, decode_line, encode_line, manifest_digest
from services.write.tests.test_import import NAME, SECOND, lived, store
from services.write.tests.transfer import Store, rebuilt, without_manifest
from services.write.tests.writer import Writer

__all__ = ["store"]

Lines = list[bytes]
FIRST = 2
"""The index of the first entry."""


async def small(store: Store) -> Lines:
    """A file of one object with three versions of which one is erased, and its lines."""
    writer = store.writer
    made = await writer.create("content", object_id="obj:x", source_event={"source": "mail", "id": "m-1"})
    other = await writer.create("of another", object_id="obj:y")
    await writer.update(other, "of another, later")
    await writer.delete(made)
    return (await store.export(NAME)).splitlines()


def swapped(lines: Lines) -> None:
    lines[FIRST], lines[FIRST + 1] = lines[FIRST + 1], lines[FIRST]


def other_ledger(lines: Lines) -> None:
    lines[1] = re.sub(rb'd":"[0-9a-f]{32}"', b'd":"%b"' % (b"0" * 32), lines[1])


def edit(index: int, old: bytes, new: bytes) -> Callable[[Lines], None]:
    def change(lines: Lines) -> None:
        assert old in lines[index]
        lines[index] = lines[index].replace(old, new)

    return change


def manifest(**members: Any) -> Callable[[Lines], None]:
    def change(lines: Lines) -> None:
        document = orjson.loads(lines[0]) | members
        unsigned = orjson.dumps(document)
        document["digest"] = manifest_digest(unsigned)
        lines[0] = orjson.dumps(document)

    return change


PLAIN: dict[str, tuple[int, Callable[[Lines], None]]] = {
    "empty": (1, lambda lines: lines.clear()),
    "cut behind the manifest": (2, lambda lines: lines.__delitem__(slice(1, None))),
    "cut in the entries": (5, lambda lines: lines.__delitem__(slice(4, None))),
    "cut before its end": (7, lambda lines: lines.__delitem__(-1)),
    "cut within a line": (4, lambda lines: lines.__setitem__(slice(3, None), [lines[3][:-20]])),
    "an entry twice": (4, lambda lines: lines.insert(FIRST, lines[FIRST])),
    "an entry missing": (3, lambda lines: lines.__delitem__(FIRST)),
    "the last entry missing": (6, lambda lines: lines.__delitem__(-2)),
    "entries swapped": (3, swapped),
    "the scope twice": (3, lambda lines: lines.insert(1, lines[1])),
    "the manifest twice": (2, lambda lines: lines.insert(0, lines[0])),
    "the end twice": (8, lambda lines: lines.append(lines[-1])),
    "an empty line": (3, lambda lines: lines.insert(FIRST, b"")),
    "two files": (8, lambda lines: lines.extend(lines[:])),
    "edited content": (4, edit(3, b'"of another"', b'"of an other"')),
    "edited content of a later version": (5, edit(4, b"later", b"LATER")),
    "edited metadata": (4, edit(3, b'"active","object_id"', b'"archived","object_id"')),
    "edited event": (4, edit(3, b'"event_type":"object_created"', b'"event_type":"object_updated"')),
    "edited provenance": (4, edit(3, b'"activity":"test"', b'"activity":"TEST"')),
    "edited salt": (4, edit(3, b'"salt":"', b'"salt":"00')),
    "edited hash": (3, edit(2, b'"entry_hash":"', b'"entry_hash":"0')),
    "edited operation": (7, edit(3, b'"operation":"create"', b'"operation":"update"')),
    "another operation id": (4, edit(3, b'"operation_id":"op:', b'"operation_id":"op:0')),
    "edited ledger id": (3, other_ledger),
    "white space": (4, edit(3, b'"event":{', b'"event": {')),
    "another order of members": (4, edit(3, b'{"kind":"entry",', b'{"kind":"entry" ,')),
    "an unknown member": (4, edit(3, b'{"kind":"entry",', b'{"kind":"entry","colour":1,')),
    "a member twice": (4, edit(3, b'{"kind":"entry",', b'{"kind":"entry","entry_hash":"x",')),
    "an unknown kind": (4, edit(3, b'{"kind":"entry",', b'{"kind":"vector",')),
    "a failure": (4, lambda lines: lines.__setitem__(3, dumps({"kind": "failure", "error": {}}))),
    "not JSON": (2, lambda lines: lines.__setitem__(1, b"scope")),
    "not UTF-8": (4, lambda lines: lines.__setitem__(3, b"\xff\xfe")),
    "another digest": (7, edit(-1, b'"digest":"sha256:', b'"digest":"sha256:' + b"0" * 64 + b'","x":"')),
    "other counts": (7, edit(-1, b'"versions":4', b'"versions":5')),
    "an edited manifest": (1, edit(0, b'"exported_by":"', b'"exported_by":"x')),
    "a newer format": (1, manifest(format_version=2)),
    "another format": (1, manifest(format="tar")),
    "another model": (1, manifest(spec_version="9.9")),
    "embeddings": (1, manifest(embeddings={"requested": "include", "included": True, "spaces": []})),
    "another scope in the manifest": (2, manifest(scope_id="workspace:other")),
    "another epoch in the manifest": (2, manifest(watermark={"ledger_epoch": 2, "sequence": 5})),
    "a position beyond the end": (7, manifest(watermark={"ledger_epoch": 1, "sequence": 9})),
}  # fmt: skip


@pytest.mark.parametrize("name", PLAIN)
async def test_a_bad_file_names_its_line_and_leaves_nothing(store: Store, name: str) -> None:
    line, change = PLAIN[name]
    lines = await small(store)
    good = b"\n".join(lines) + b"\n"
    change(lines)
    traces = await store.traces()
    body = b"".join(line + b"\n" for line in lines)
    error = await store.refused(body if name != "cut within a line" else body[:-1])
    assert error["code"] == "invalid_request"
    assert error["details"]["line"] == line, error
    assert f"Line {line}: " in error["message"]
    assert "secret" not in error["message"]
    assert await store.traces() == traces
    await store.imported(good)
    assert without_manifest(await store.export(NAME, by=store.other)) == without_manifest(good)


async def test_a_newer_format_says_so(store: Store) -> None:
    lines = await small(store)
    manifest(format_version=2)(lines)
    message = (await store.refused(b"\n".join(lines) + b"\n"))["message"]
    assert "format version 2" in message
    newer = orjson.loads(lines[0]) | {"format_version": 3, "compression": "zstd"}
    message = (await store.refused(orjson.dumps(newer) + b"\n"))["message"]
    assert "format version 3" in message


def all_of(*changes: Any) -> None:
    """Several changes, made where they stand."""


Change = Callable[[dict[str, Any], dict[str, Any]], None]
"""Changes an event and a line's other members, which are then hashed anew."""


def forged(lines: Lines, index: int, change: Change) -> bytes:
    """A file whose hashes, digests and counts all hold, and which was never written by this service."""
    scope = orjson.loads(lines[1])
    previous = genesis(bytes.fromhex(scope["ledger_id"]))
    found = list(lines)
    for at in range(FIRST, len(lines) - 1):
        line = json.loads(lines[at])
        if at == index:
            change(line["event"], line)
        version = line.get("version")
        if version is not None:
            _digest(version)
            line["event"]["payload"]["version_digest"] = version_digest(canonical(version["metadata"]))
        event = dumps(line["event"])
        previous = entry_hash(previous, event)
        found[at] = _line(line, event, previous)
    end = orjson.loads(found[-1])
    end["head_hash"] = previous.hex()
    found[-1] = orjson.dumps(end)
    return rebuilt(found)


def _digest(version: dict[str, Any]) -> None:
    metadata, salt = version["metadata"], version.get("salt")
    for part in ("content", "private"):
        if part in version and salt is not None:
            metadata[f"{part}_digest"] = keyed_digest(bytes.fromhex(salt), part, canonical(version[part]))


def _line(line: dict[str, Any], event: bytes, hash_: bytes) -> bytes:
    decoded = decode_line(dumps(line))
    assert isinstance(decoded, EntryLine)
    decoded.event, decoded.entry_hash = msgspec.Raw(event), hash_.hex()
    if decoded.version is not None:
        decoded.version.metadata = msgspec.Raw(canonical(line["version"]["metadata"]))
        for part in ("private", "content"):
            if part in line["version"]:
                setattr(decoded.version, part, msgspec.Raw(canonical(line["version"][part])))
    return encode_line(decoded)[:-1]


FORGED: dict[str, tuple[int, Change]] = {
    "an unknown event type": (3, lambda event, line: event.update(event_type="object_watered")),
    "an unknown member of an event": (3, lambda event, line: event.update(colour="red")),
    "content in a payload": (3, lambda event, line: event["payload"].update(content="hidden")),
    "a float in a payload": (3, lambda event, line: event["payload"].update(version_sequence=1.5)),
    "a null in a payload": (3, lambda event, line: event["payload"].update(created=None)),
    "a name of a person in an event": (3, lambda event, line: event["actor"].update(display_name="Tess")),
    "another scope": (3, lambda event, line: event.update(scope_id="workspace:other")),
    "an id that is none": (3, lambda event, line: event.update(event_id="x\n")),
    "a time that is none": (3, lambda event, line: event.update(recorded_at="2026-13-01T00:00:00.000000Z")),
    "a time before the one in front": (4, lambda event, line: event.update(recorded_at="2020-01-01T00:00:00.000000Z")),
    "no version": (3, lambda event, line: all_of(line.pop("version"), line.pop("operation"))),
    "a state of its own": (3, lambda event, line: line["version"]["metadata"].update(lifecycle_state="archived")),
    "an unknown state": (3, lambda event, line: all_of(event["payload"].update(lifecycle_state="asleep"),
                                                line["version"]["metadata"].update(lifecycle_state="asleep"))),
    "an unknown member of metadata": (3, lambda event, line: line["version"]["metadata"].update(colour="red")),
    "content in metadata": (3, lambda event, line: line["version"]["metadata"].update(canonical_content="hidden")),
    "a version of another object": (3, lambda event, line: line["version"]["metadata"].update(object_id="obj:z")),
    "a version id that stands twice": (4, lambda event, line: all_of(event.update(version_id=FORGED_ID[0]),
                                       line["version"]["metadata"].update(version_id=FORGED_ID[0]))),
    "a version that does not follow": (4, lambda event, line: all_of(event["payload"].update(version_sequence=7),
                                       line["version"]["metadata"].update(sequence=7))),
    "an unknown private member": (3, lambda event, line: line["version"]["private"].update(colour="red")),
    "erased in part": (3, lambda event, line: line["version"].pop("private")),
    "content gone without a word": (3, lambda event, line: all_of([line["version"].pop(name)
                                    for name in ("private", "content", "salt")])),
    "a control character in a type": (3, lambda event, line: all_of(event["payload"].update(object_type="a\x1fb"),
                                      line["version"]["metadata"].update(object_type="a\x1fb"))),
    "an operation behind the end": (3, lambda event, line: line["operation"].update(last_sequence=99)),
    "an operation of somebody else": (3, lambda event, line: line["operation"].update(actor_id="agent:other")),
    "an event id that stands twice": (4, lambda event, line: event.update(event_id=FORGED_ID[1])),
    "a time far ahead": (5, lambda event, line: event.update(recorded_at="9999-12-31T23:59:59.999999Z")),
}  # fmt: skip
FORGED_ID: list[str] = ["", ""]
LATE = {"an operation behind the end": 7, "a time far ahead": 6}


@pytest.mark.parametrize("name", FORGED)
async def test_a_forged_file_whose_hashes_hold_is_refused_too(store: Store, name: str) -> None:
    index, change = FORGED[name]
    lines = await small(store)
    earlier = orjson.loads(lines[3])
    FORGED_ID[:] = [earlier["event"]["version_id"], earlier["event"]["event_id"]]
    traces = await store.traces()
    error = await store.refused(forged(lines, index, change))
    assert error["code"] == "invalid_request", error
    assert error["details"]["line"] == LATE.get(name, index + 1), error
    assert await store.traces() == traces


async def test_the_forger_forges_nothing_by_itself(store: Store) -> None:
    lines = await small(store)
    await store.imported(forged(lines, 3, lambda event, line: None))
    assert await store.rows(NAME, SECOND) == await store.rows(NAME, "tenant:test")


async def test_a_line_without_end_is_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = await small(store)

    def pieces() -> Any:
        yield lines[0] + b"\n"
        for _ in range(20):
            yield b"x" * 1024 * 1024

    answer = await store.import_(pieces())
    assert orjson.loads(answer.body)["error"]["details"]["line"] == 2


async def test_bad_policies_schemas_and_snapshots(store: Store) -> None:
    await lived(store.writer)
    lines = (await store.export(NAME)).splitlines()
    at = next(index for index, line in enumerate(lines) if line.startswith(b'{"kind":"policy"'))
    sealed = next(index for index, line in enumerate(lines) if line.startswith(b'{"kind":"snapshot"'))
    for change in (
        edit(at, b'"policy_version":1', b'"policy_version":2'),
        edit(at, b'"deny"', b'"colour"'),
        edit(at + 1, b'"type":"object"', b'"type":"colour"'),
        edit(sealed, b'"sealed":true', b'"sealed":false'),
        lambda found: found.insert(at + 1, found[at]),
        lambda found: found.insert(at, found[at + 1]),
    ):
        bent = list(lines)
        change(bent)
        traces = await store.traces()
        error = await store.refused(rebuilt(bent))
        assert error["details"]["line"] in (at + 1, at + 2, sealed + 1), error
        assert await store.traces() == traces


async def test_a_policy_of_its_own_makes_a_scope_not_empty(store: Store, writer: Writer) -> None:
    lines = await small(store)
    policy = {"object_types": {"deny": ["org.example.mine"]}}
    await writer.ok("create_scope", {"scope_id": NAME, "policy": policy}, by=store.other)
    error = await store.refused(b"\n".join(lines) + b"\n")
    assert error["code"] == "duplicate_operation"
