"""Content comes back as the same value, whatever it is; what cannot be kept is refused by name, and never a 500."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pamspec_write.documents.parts import MAX_CONTENT
from services.write.tests.requests_of_contract import CREATE, DELETE, TRANSITION, UPDATE
from services.write.tests.writer import AGENT, BACKEND, PROVENANCE, Document, Writer, claim


@pytest.fixture
def writer(shared: Writer) -> Writer:
    """A scope of its own is all that a test here needs."""
    return shared


BODY = b'{"scope_id":"%s","object_type":"claim","provenance":{"activity":"t"},"canonical_content":%s}'

# Texts whose bytes must come back but for white space between tokens.
KEPT = [
    b"null",
    b"false",
    b'""',
    b"[]",
    b"{}",
    b"-0",
    b"0.10",
    b"1E+2",
    b"1e-400",
    b"9007199254740993",
    b"-" + b"9" * 1000,
    b"0." + b"1" * 20_000,
    b"0." + b"1" * 15_500 + b"e-50",
    b"0." + b"0" * 14_990 + b"1e-99",
    b"1" * 300,
    b"1.7976931348623157e308",
    b'"a\\u0000b"',
    b'{"\\u0000":1,"a":{"b\\u0000":["\\u0000"]}}',
    b'"\\\\u0000"',
    b'"\\ud83d\\ude00\\u001f\\u001e"',
    '"今日は 😀 \u2028"'.encode(),
    b'"\\/\\b\\f\\n\\r\\t\\""',
    b'{"b":1,"a":2,"":3}',
    b"[" * 127 + b"]" * 127,
    b'{"a":' * 60 + b"[" * 60 + b"]" * 60 + b"}" * 60,
]


@pytest.mark.parametrize("content", KEPT, ids=lambda content: f"{content[:24]!r}")
async def test_content_comes_back_as_it_was_written(writer: Writer, content: bytes) -> None:
    answer = await writer.call("create", BODY % (writer.scope.encode(), content))
    assert answer.status == 201, answer.body[:500]
    assert b'"canonical_content":' + content + b',"committed_at"' in answer.body
    stored = await writer.only("content", "core.version_private")
    assert stored == content
    projected = json.loads(await writer.only("content", "core.object_head"))
    if b"\\u0000" not in content and b"." not in content and b"e" not in content.lower():
        assert projected == json.loads(content)
    made = json.loads(answer.body)
    moved = writer.change(made, dimension="lifecycle", target_state="archived", policy_basis="p")
    carried = await writer.call("transition", moved)
    assert b'"canonical_content":' + content + b',"committed_at"' in carried.body
    await writer.check_scope()


async def test_white_space_between_tokens_goes(writer: Writer) -> None:
    answer = await writer.call("create", BODY % (writer.scope.encode(), b' { "a" :\n [ 1.0 , "x  y" ] } '))
    assert b'"canonical_content":{"a":[1.0,"x  y"]},' in answer.body


@pytest.mark.parametrize(
    "content",
    [
        b"1e400",
        b"-1e400",
        b"1" * 250 + b"e99",
        b"1" * 250 + b".5e+99",
        b"1" * 1001,
        b"1" * 5000,
        b"NaN",
        b"Infinity",
        b'"\\ud800"',
        b'"\\udc00\\ud800"',
        b'"\xff"',
        b'"a\nb"',
        b'{"a":1,"a":2}',
        b'{"a":1,"\\u0061":2}',
        b"[" * 128 + b"]" * 128,
        b"[" * 5000 + b"]" * 5000,
        b"[" * 100_000,
        b"",
        b"nul",
        b"'a'",
    ],
    ids=lambda content: f"{content[:24]!r}",
)
async def test_what_is_no_strict_json_is_refused(writer: Writer, content: bytes) -> None:
    error = await writer.refused("create", BODY % (writer.scope.encode(), content))
    assert error["code"] == "invalid_request"
    assert error["operation_id"].startswith("op:")


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b'"create"', b"{}", b"{} {}", b"\x00", b'{"scope_id":1}'])
async def test_a_body_is_one_operation_document(writer: Writer, body: bytes) -> None:
    for operation in ("create", "update", "transition", "delete", "batch", "get_operation", "create_scope"):
        assert (await writer.refused(operation, body))["code"] == "invalid_request"


@pytest.mark.parametrize("size", [2001, 65_537, MAX_CONTENT])
async def test_content_is_stored_whole_up_to_its_limit(writer: Writer, size: int) -> None:
    made = await writer.create("x" * (size - 2))
    assert len(made["envelope"]["canonical_content"]) == size - 2
    assert await writer.only("length(content)", "core.version_private") == size


async def test_content_beyond_its_limit_names_it(writer: Writer) -> None:
    document = claim(writer.scope, "x" * (MAX_CONTENT - 1))
    assert (await writer.call("create", document)).status == 413
    error = await writer.refused("create", document)
    assert (error["code"], error["details"]["limit"], error["details"]["size"]) == (
        "invalid_request",
        MAX_CONTENT,
        MAX_CONTENT + 1,
    )
    assert str(MAX_CONTENT) in error["message"]


async def test_an_envelope_has_its_limit_whatever_fills_it(writer: Writer) -> None:
    large = {"activity": "x", "source_ref": "y" * 300_000}
    made = await writer.create("x" * 900_000)
    for document in (
        writer.change(made, provenance=large, canonical_content="x" * 1_020_000),
        writer.change(made, provenance={"activity": "z" * 1_400_000}),
    ):
        error = await writer.refused("update", document)
        assert (error["code"], error["details"]["limit"]) == ("invalid_request", 1_310_720)
    gone = writer.change(made, policy_basis="p", provenance={"activity": "z" * 1_400_000})
    assert (await writer.refused("delete", gone))["code"] == "invalid_request"
    await writer.update(made, "still there")
    await writer.check_scope()


async def test_everything_that_a_create_may_say_is_kept(writer: Writer) -> None:
    await writer.ok("create_scope", {"scope_id": "scope:evaluation", "scope_kind": "evaluation"})
    writer.scopes.append("scope:evaluation")
    sent = {**CREATE, "scope_id": "scope:evaluation"}
    del sent["delegation_id"]
    made = await writer.ok("create", sent, by=BACKEND)
    envelope = made["envelope"]
    for name in (
        "schema_id",
        "observed_at",
        "valid_until",
        "integrity",
        "relationship_refs",
        "actor",
        "validation_state",
    ):
        assert envelope[name] == sent[name], name
    assert envelope["quality_signals"] == sent["quality_signals"]
    assert envelope["provenance"]["evidence_refs"] == [*sent["provenance"]["evidence_refs"], "evaluation-run:run:1"]
    assert envelope["provenance"]["actor"] == envelope["actor"]
    assert envelope["provenance"]["recorded_at"] == envelope["committed_at"]
    event = (await writer.ledger("scope:evaluation"))[0].event
    assert event["payload"]["authenticated_as"] == BACKEND.actor_id
    assert event["actor"] == {
        "actor_id": "agent:a",
        "actor_kind": "agent",
        "on_behalf_of_actor_id": "human:b",
    }
    changed = await writer.ok("update", writer.change(made, provenance=PROVENANCE, quality_signals={}), by=BACKEND)
    for name in ("schema_id", "observed_at", "valid_until", "integrity", "relationship_refs", "canonical_content"):
        assert changed["envelope"][name] == envelope[name], name
    assert changed["envelope"]["quality_signals"] == {}
    await writer.check_scope("scope:evaluation")


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "2026-03-01T05:30:00.5+05:30"])
async def test_times_to_the_ends_of_the_calendar(writer: Writer, at: str) -> None:
    made = await writer.create(valid_from=at, observed_at=at, provenance={"activity": "a", "observed_at": at})
    expected = "2026-03-01T00:00:00.500000Z" if "+" in at else at.replace("00Z", "00.000000Z")
    assert made["envelope"]["valid_from"] == made["envelope"]["provenance"]["observed_at"] == expected
    stored = await writer.only("to_char(valid_from AT TIME ZONE 'UTC', 'YYYY AD')", "core.object_head")
    assert stored == f"{expected[:4]} AD"


@pytest.mark.parametrize("object_type", ["com.example.a.b", "urn:x", "https://types.example.com/a b", "x:"])
async def test_extension_types_need_a_schema(writer: Writer, object_type: str) -> None:
    document = claim(writer.scope, object_type=object_type)
    assert (await writer.refused("create", document))["code"] == "invalid_object"
    made = await writer.ok("create", {**document, "schema_id": "urn:schema:1"})
    assert made["envelope"]["object_type"] == object_type


@pytest.mark.parametrize(
    "object_type", ["", "relationship", "Claim", "a.b", "x:\x1fy", "x:\x00", "x:\n", "t:" + "x" * 254]
)
async def test_other_words_are_no_types(writer: Writer, object_type: str) -> None:
    document = claim(writer.scope, object_type=object_type, schema_id="urn:schema:1")
    assert (await writer.refused("create", document))["code"] == "invalid_object"


async def test_odd_content_fails_no_neighbour_of_its_group(writer: Writer) -> None:
    contents = [b'"good"', b'{"t":"a\\u0000b"}', b"9" * 1000, b'{"\\u0000":{"x":1e-5000}}', b'"also good"']
    answers = await asyncio.gather(
        *(writer.call("create", BODY % (writer.scope.encode(), content)) for content in contents),
        writer.call("create", claim(writer.scope, object_type="x:\x1fy", schema_id="urn:s")),
    )
    assert [answer.status for answer in answers] == [201] * 5 + [422]
    items = b",".join(BODY.replace(b"{", b'{"operation":"create",', 1) % (writer.scope.encode(), c) for c in contents)
    stale = b'{"operation":"delete","object_id":"obj:x","expected_version_id":"ver:x","policy_basis":"p"}'
    batch = b'{"scope_id":"%s","items":[%s,%s]}' % (writer.scope.encode(), items, stale)
    assert (await writer.call("batch", batch, key="k")).status == 200
    assert (await writer.call("batch", batch, key="k")).headers["Idempotency-Replayed"] == "true"
    found = {"scope_id": writer.scope, "operation": "batch", "idempotency_key": "k"}
    assert (await writer.call("get_operation", found)).status == 200
    await writer.check_scope()


async def test_nobody_acts_for_another_without_the_right(writer: Writer) -> None:
    other = {"actor_id": "agent:other", "actor_kind": "agent"}
    assert (await writer.refused("create", claim(writer.scope, actor=other)))["code"] == "access_denied"
    foreign = claim(writer.scope, provenance={"activity": "a", "actor": other})
    assert (await writer.refused("create", foreign))["code"] == "access_denied"
    batch = {"scope_id": writer.scope, "actor": other, "items": [{"operation": "create", **claim(writer.scope)}]}
    assert (await writer.refused("batch", batch))["code"] == "access_denied"
    granted = claim(writer.scope, delegation_id="dlg:1")
    assert (await writer.refused("create", granted))["code"] == "object_not_found"
    inverted = {**other, "attestation": {"not_before": "2026-01-02T00:00:00Z", "not_after": "2026-01-01T00:00:00Z"}}
    document = claim(writer.scope, actor=inverted)
    assert (await writer.refused("create", document, by=BACKEND))["code"] == "policy_denied"


@pytest.mark.parametrize("field", ["scope_id", "object_id", "actor", "created_by"])
async def test_identity_is_not_changed_by_an_update(writer: Writer, field: str) -> None:
    made = await writer.create()
    other: Any = {"actor_id": "agent:x", "actor_kind": "agent"} if field == "actor" else "scope:elsewhere"
    document = {**writer.change(made, canonical_content=1, provenance=PROVENANCE), field: other}
    error = await writer.refused("update", document)
    assert error["code"] in ("invalid_request", "scope_not_found", "object_not_found", "access_denied")
    assert await writer.count("core.version") == 1


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(blacklist_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(blacklist_categories=["Cs"]), max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=json_values)
async def test_any_value_comes_back(writer: Writer, value: Any) -> None:
    body = json.dumps({**claim(writer.scope), "canonical_content": value}).encode()
    answer = await writer.call("create", body)
    assert answer.status == 201
    assert json.loads(answer.body)["envelope"]["canonical_content"] == value


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), value=json_values)
async def test_no_value_anywhere_is_an_internal_error(writer: Writer, data: st.DataObject, value: Any) -> None:
    """Any member of any request replaced by any value: an answer by the contract, and never a 500."""
    operation, base = data.draw(
        st.sampled_from([("create", CREATE), ("update", UPDATE), ("transition", TRANSITION), ("delete", DELETE)])
    )
    document: Document = {name: part for name, part in base.items() if name != "delegation_id"}
    document["scope_id"] = writer.scope
    document |= {"operation_id": f"op:{data.draw(st.uuids())}", "idempotency_key": str(data.draw(st.uuids()))}
    name = data.draw(st.sampled_from(sorted(document)))
    part = document[name]
    if isinstance(part, dict) and part and data.draw(st.booleans()):
        document[name] = {**part, data.draw(st.sampled_from(sorted(part))): value}
    else:
        document[name] = value
    answer = await writer.call(
        operation, json.dumps(document).encode(), by=data.draw(st.sampled_from([AGENT, BACKEND]))
    )
    assert answer.status < 500, answer.body
