"""Small values that everything rests on: errors, ids, instants, the arithmetic of the ledger, and envelopes."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import uuid
from datetime import UTC, datetime, timedelta, timezone

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pamspec_common import contracts, ids, instants, ledger
from pamspec_common.calls import refusal
from pamspec_common.envelope import TOMBSTONE, envelope_bytes, note, project
from pamspec_common.errors import TREE, InternalError, InvalidRequest, PamspecError, ServiceUnavailable, Unauthenticated
from pamspec_common.strict_json import Fragment, dumps


def test_the_tree_has_the_codes_of_the_contract() -> None:
    known = contracts.errors()
    assert {error.code for error in TREE} == set(known)
    assert len(TREE) == len(known) == 19
    tree: list[type[PamspecError]] = [*TREE, Unauthenticated]
    for error in tree:
        entry = known[error.code]
        assert error.status == entry.status or str(error.status) in {str(status) for status in entry.also}
        if entry.retryable != "depends":
            assert error.retryable is entry.retryable


@pytest.mark.parametrize("kind", [*TREE, Unauthenticated])
def test_every_error_says_what_to_do_and_keeps_the_contract(kind: type[PamspecError]) -> None:
    document = orjson.loads(kind(details={"limit": 1}, policy_rule_id="rule:1").body("op:1"))
    contracts.check("error", document)
    error = document["error"]
    assert error["message"] == (kind.__doc__ or "").strip()
    assert error["message"].endswith(".")
    assert (error["operation_id"], error["details"], error["policy_rule_id"]) == ("op:1", {"limit": 1}, "rule:1")


def test_an_error_becomes_an_answer() -> None:
    answer = refusal(ServiceUnavailable("Later.", retry_after=7), "op:1")
    assert (answer.status, answer.headers) == (503, {"Retry-After": "7"})
    assert orjson.loads(answer.body)["error"]["retryable"] is True
    assert refusal(InvalidRequest(status=413)).status == 413
    assert b'"operation_id":"op:' in refusal(InvalidRequest()).body
    assert refusal(InternalError(retryable=True)).headers == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("obj:1", True),
        ("urn:isbn:0/1.2_3-4+5", True),
        ("A+.-:x", True),
        ("a:" + "b" * 253, True),
        ("a:" + "b" * 254, False),
        ("", False),
        ("obj:", False),
        (":1", False),
        ("1a:b", False),
        ("obj", False),
        ("obj:1\n", False),
        ("obj:1 ", False),
        (" obj:1", False),
        ("obj:\u00e9", False),
        ("obj:a%b", False),
        ("obj:\x00", False),
    ],
)
def test_identifiers(text: str, expected: bool) -> None:
    assert ids.is_id(text) is expected
    assert contracts.validator("common#/$defs/bounded_id").is_valid(text) is expected


@given(st.text())
def test_identifiers_are_those_of_the_contract(text: str) -> None:
    assert ids.is_id(text) == contracts.validator("common#/$defs/bounded_id").is_valid(text)


def test_nothing_else_is_an_identifier() -> None:
    assert not any(ids.is_id(value) for value in (None, 1, b"obj:1", ["obj:1"]))


def test_minted_ids_are_new_and_in_the_order_of_time() -> None:
    minted = [ids.mint("obj") for _ in range(5000)]
    assert len(set(minted)) == len(minted)
    parsed = [uuid.UUID(text.removeprefix("obj:")) for text in minted]
    assert {value.version for value in parsed} == {7}
    assert {value.variant for value in parsed} == {uuid.RFC_4122}
    times = [value.int >> 80 for value in parsed]
    assert times == sorted(times)
    assert all(map(ids.is_id, minted))


def test_a_child_process_draws_other_ids() -> None:
    ids.mint("obj"), ids.salt()
    reader, sender = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(sender, (ids.uuid7()[14:] + ids.salt().hex()).encode())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(reader, 200).decode()
    assert theirs[:22] != ids.uuid7()[14:]
    assert theirs[22:] != ids.salt().hex()
    os.close(reader)
    os.close(sender)


def test_salts_are_whole_and_new() -> None:
    salts = [ids.salt() for _ in range(3000)]
    assert len(set(salts)) == len(salts)
    assert {len(salt) for salt in salts} == {32}


def test_subject_tokens_stand_for_tenant_and_id() -> None:
    tokens = {ids.subject_token(*pair) for pair in [("a",), ("a", "b"), ("ab",), ("", "ab"), ("a", "B"), ("é", "ü")]}
    assert len(tokens) == 6
    assert all(re.fullmatch("[a-z2-7]{26}", token) for token in tokens)
    assert ids.subject_token("a", "b") == ids.subject_token("a", "b")


@given(st.lists(st.text(), max_size=4), st.lists(st.text(), max_size=4))
def test_hashes_of_tuples_meet_only_when_the_tuples_are_equal(one: list[str], other: list[str]) -> None:
    assert (ids.short_hash(*one) == ids.short_hash(*other)) == (one == other)


@given(st.datetimes(timezones=st.timezones()))
def test_instants_come_back(instant: datetime) -> None:
    try:
        expected = instant.astimezone(UTC)
    except OverflowError:
        return
    text = instants.wire(instant)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", text)
    assert instants.parse(text) == expected
    assert contracts.validator("common#/$defs/timestamp").is_valid(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-01-01",
        "2026-01-01T00:00:00",
        "2026-01-01T23:59:60Z",
        "2026-02-30T00:00:00Z",
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59-01:00",
        "1767225600",
        "10000-01-01T00:00:00Z",
    ],
)
def test_what_is_no_instant(text: str) -> None:
    with pytest.raises(ValueError, match="RFC 3339"):
        instants.parse(text)


def test_the_wire_form_is_utc() -> None:
    there = datetime(2026, 1, 1, 5, 30, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    assert instants.wire(there) == "2026-01-01T00:00:00.000000Z"
    assert instants.wire(datetime(5, 1, 1, tzinfo=UTC)) == "0005-01-01T00:00:00.000000Z"


def test_the_chain_and_the_digests_are_as_documented() -> None:
    first = ledger.genesis(b"i" * 16)
    assert first == hashlib.sha256(b"pamspec-ledger-1" + b"i" * 16).digest()
    assert ledger.entry_hash(first, b"{}") == hashlib.sha256(b"\x00" + first + b"{}").digest()
    assert ledger.version_digest(b"{}") == "sha256:" + hashlib.sha256(b"{}").hexdigest()
    for salt in (b"", b"salt", b"s" * 32, b"s" * 64):
        keyed = hmac.new(salt, b"content\x00value", "sha256").hexdigest()
        assert ledger.keyed_digest(salt, "content", b"value") == "hmac-sha256:" + keyed
    with pytest.raises(ValueError, match="salt"):
        ledger.Keyed(b"s" * 65)
    assert ledger.keyed_digest(b"salt", "private", b"value") != ledger.keyed_digest(b"salt", "content", b"value")


METADATA = dumps(
    {
        "object_id": "obj:1",
        "actor": {"actor_id": "agent:a"},
        "provenance": {"activity": "erased"},
        "content_digest": "x",
        "private_digest": "y",
    }
)
PRIVATE = dumps(
    {
        "actor": {"actor_id": "agent:a", "display_name": "A"},
        "provenance": {"activity": "heard"},
        "integrity": {"digest": "d"},
        "note": {"policy_basis": "asked"},
    }
)


def test_an_envelope_is_whole_until_it_is_erased() -> None:
    whole = envelope_bytes(METADATA, b'{"n":1.50}', PRIVATE)
    assert whole == (
        b'{"actor":{"actor_id":"agent:a","display_name":"A"},"canonical_content":{"n":1.50},'
        b'"integrity":{"digest":"d"},"object_id":"obj:1","provenance":{"activity":"heard"}}'
    )
    erased = envelope_bytes(METADATA, None, None)
    assert erased == (
        b'{"actor":{"actor_id":"agent:a"},"canonical_content":' + TOMBSTONE + b',"object_id":"obj:1",'
        b'"provenance":{"activity":"erased"}}'
    )
    assert note(PRIVATE) == {"policy_basis": "asked"}
    assert note(None) is None


def test_a_projection_names_what_it_has() -> None:
    found = project(
        METADATA, b"1e400", PRIVATE, ["canonical_content", "object_id", "schema_id", "note", "content_digest"]
    )
    assert found == b'{"canonical_content":1e400,"object_id":"obj:1"}'


def test_fragments_keep_their_bytes() -> None:
    assert dumps({"b": Fragment(b'{"z":1,"a":1.0}'), "a": 1}) == b'{"a":1,"b":{"z":1,"a":1.0}}'
