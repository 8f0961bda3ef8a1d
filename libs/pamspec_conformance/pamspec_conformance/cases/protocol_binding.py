"""PROTOCOL-BINDING (18.10): what a document means is the same on every way to the service."""

from __future__ import annotations

import json
from typing import Any

from pamspec_conformance import shapes
from pamspec_conformance.binding import Reply
from pamspec_conformance.case import CaseList
from pamspec_conformance.trial import PROVENANCE, Trial

LIST = CaseList("PROTOCOL-BINDING")
case = LIST.case
STATUSES = {
    "invalid_request": 400,
    "invalid_object": 422,
    "object_not_found": 404,
    "scope_not_found": 404,
    "version_conflict": 409,
    "duplicate_operation": 409,
    "invalid_state_transition": 409,
    "object_deleted": 410,
    "legal_hold": 423,
}


def _claim(content: Any = 1) -> dict[str, Any]:
    return {"object_type": "claim", "canonical_content": content, "provenance": PROVENANCE}


@case("P225", "P166")
async def an_operation_id_is_kept(t: Trial) -> None:
    """A client's operation_id comes back in answer, event and refusal; without one the service names one."""
    operation_id = f"op:{t.key().removeprefix('key:')}"
    made = await t.ok("create", **_claim(), operation_id=operation_id)
    t.same(made["operation_id"], operation_id, "the operation_id of the answer")
    t.same((await t.events())[0]["operation_id"], operation_id, "the operation_id of the event")
    other = f"{operation_id}-2"
    refusal = await t.refused("object_not_found", "read", object_id="obj:none", operation_id=other)
    t.same(refusal.operation_id, other, "the operation_id of a refusal")
    t.check(shapes.is_id((await t.claim())["operation_id"]), "no operation_id was minted")


@case("P225", "P166", "P168")
async def a_key_means_the_same_in_document_and_binding(t: Trial) -> None:
    """An idempotency key beside the document and in it are the same key."""
    key = t.key()
    first = await t.ok("create", key=key, **_claim())
    again = await t.ok("create", **_claim(), idempotency_key=key)
    t.same(again.reply.body, first.reply.body, "the answer of the repetition")
    await t.refused("duplicate_operation", "create", **_claim(2), idempotency_key=key)


@case("P225", "P108")
async def keys_belong_to_operation_and_scope(t: Trial) -> None:
    """The same key in another scope, or with another operation, is another key."""
    key, elsewhere = t.key(), await t.new_scope()
    first = await t.ok("create", key=key, **_claim())
    other = await t.ok("create", key=key, **_claim(), scope_id=elsewhere)
    t.check(other["object_id"] != first["object_id"], "two scopes share a key")
    changed = await t.update(first, {"n": 2}, idempotency_key=key)
    t.same(changed["sequence"], 2, "the update under the same key")


@case("P225", "P159")
async def replays_say_so(t: Trial) -> None:
    """A repetition is marked beside the body, never in it."""
    key = t.key()
    first = await t.ok("create", key=key, **_claim())
    again = await t.ok("create", key=key, **_claim())
    t.same((first.reply.replayed, again.reply.replayed), (False, True), "the marks")
    t.same(again.reply.ledger_sequence, first.reply.ledger_sequence, "the position beside the body")


@case("P168", "P225")
async def an_outcome_can_be_looked_up(t: Trial) -> None:
    """A look-up answers an operation's outcome, a refused one's error, and that an unknown one is final."""
    made = await t.ok("create", **_claim())
    found = await t.ok("get_operation", operation_id=made["operation_id"])
    t.same((found["state"], found["outcome"]), ("committed", dict(made)), "the look-up of a commit")
    refusal = await t.refused(
        "object_not_found", "delete", object_id="obj:none", expected_version_id="ver:0", policy_basis="x"
    )
    found = await t.ok("get_operation", operation_id=refusal.operation_id)
    t.same((found["state"], found["outcome"]["error"]["code"]), ("failed", "object_not_found"), "of a refusal")
    late = f"op:{t.key().removeprefix('key:')}"
    t.same((await t.ok("get_operation", operation_id=late))["state"], "unknown", "the look-up of nothing")
    await t.refused("duplicate_operation", "create", **_claim(), operation_id=late)


@case("P225", "P154")
async def numbers_and_names_pass_unchanged(t: Trial) -> None:
    """Members that look like the protocol's own, and large numbers, pass through content unchanged."""
    content = {"operation_id": "op:x", "error": {"code": "internal_error"}, "big": 10**40, "scope_id": "workspace:x"}
    made = await t.ok("create", **_claim(content))
    t.same((await t.read(made["object_id"]))["canonical_content"], content, "the content")


@case("P166", "P162")
async def a_batch_keeps_the_meaning_of_its_items(t: Trial) -> None:
    """Items of a batch are answered in order, each with what it would be answered alone; neighbours don't fail."""
    made = await t.claim()
    items = [
        {"operation": "create", **_claim(1)},
        {
            "operation": "update",
            "object_id": made["object_id"],
            "expected_version_id": "ver:0",
            "canonical_content": 1,
            "provenance": PROVENANCE,
        },
        {"operation": "create", **_claim(2)},
    ]
    answer = await t.ok("batch", items=items)
    results = answer["results"]
    t.same([result.get("error", {}).get("code") for result in results], [None, "version_conflict", None], "results")
    t.same([results[0]["ledger_sequence"], results[2]["ledger_sequence"]], [2, 3], "positions")


@case("P167", "P225", needs=("stranger",))
async def denials_look_like_absence(t: Trial) -> None:
    """What is hidden and what is missing are refused alike, and never answered in part."""
    made = await t.claim({"word": "secret-p4"})
    hidden = await t.send("read", by=t.stranger, scope_id=made["scope_id"], object_id=made["object_id"])
    missing = await t.send("read", by=t.stranger, scope_id=f"{made['scope_id']}-no", object_id=made["object_id"])
    t.refusal(hidden, "scope_not_found", "a hidden scope")
    for reply in (hidden, missing):
        t.check(b"secret-p4" not in reply.body, "the refusal holds content")
    one, other = (dict(reply.document["error"], operation_id="") for reply in (hidden, missing))
    t.same(one, other, "the two refusals")


@case("P225", "P166", needs=("http",))
async def codes_have_their_status(t: Trial) -> None:
    """Each error code travels with its HTTP status."""
    made, key = await t.claim(), t.key()
    gone = await t.delete(await t.claim())
    held = await t.transition(await t.claim(), "retention", "legal_hold")
    await t.ok("create", key=key, **_claim(1))
    replies = [
        await t.send("read", object_id="no id"),
        await t.send("create", **{**_claim(), "provenance": {}}),
        await t.send("read", object_id="obj:none"),
        await t.send("read", scope_id="workspace:none-such", object_id="obj:none"),
        await t.send("delete", object_id=made["object_id"], expected_version_id="ver:0", policy_basis="x"),
        await t.send("create", key=key, **_claim(2)),
        await t.send("transition", **t.on(made), **t.to("lifecycle", "scratch")),
        await t.send("read", object_id=gone["object_id"]),
        await t.send("delete", **t.on(held), policy_basis="x"),
    ]
    for reply, (code, status) in zip(replies, STATUSES.items(), strict=True):
        t.refusal(reply, code, code)
        t.same(reply.status, status, f"the status of {code}")
    t.same((await t.send("create", **_claim(3))).status, 201, "the status of create")


@case("P225", "P170", needs=("http",))
async def broken_requests_are_refused_in_the_envelope(t: Trial) -> None:
    """No JSON, doubled members, another media type, another method and unknown paths get the closed envelope."""
    scope_id = await t.scope()
    login = {**t.http.credentials, "Content-Type": "application/json"}
    twice = f'{{"scope_id": "{scope_id}", "object_id": "obj:a", "object_id": "obj:b"}}'
    for body in (b"", b"{", b"[]", b"null", b'"text"', twice.encode(), b'{"scope_id": NaN}', b"\xff"):
        reply = await t.http.request("POST", "/v1/read", body, login)
        t.refusal(reply, "invalid_request", f"read with the body {body!r}")
        t.check(reply.status == 400, f"status {reply.status} for the body {body!r}")
    text = {**t.http.credentials, "Content-Type": "text/plain"}
    t.refusal(await t.http.request("POST", "/v1/read", b"{}", text), "invalid_request", "another media type")
    t.refusal(await t.http.request("GET", "/v1/create", None, login), "invalid_request", "another method")
    t.refusal(await t.http.request("POST", "/v1/no_such_thing", b"{}", login), "invalid_request", "an unknown path")


@case("P225", "P174", needs=("http",))
async def credentials_are_required(t: Trial) -> None:
    """Without a key, or with a wrong one, every operation is access_denied with status 401."""
    scope_id = await t.scope()
    body = json.dumps({"scope_id": scope_id, "query": {"kind": "structured"}}).encode()
    plain = {"Content-Type": "application/json"}
    for headers in (plain, {**plain, "Authorization": "Bearer wrong-key-0123456789abcdef"}):
        reply: Reply = await t.http.request("POST", "/v1/query", body, headers)
        t.refusal(reply, "access_denied", "a query without credentials")
        t.same(reply.status, 401, "the status")


@case("P155", "P156", "P225", needs=("http",))
async def positions_travel_beside_the_body(t: Trial) -> None:
    """Positions of reads and writes stand in headers, so that equal answers have equal bodies."""
    made = await t.claim()
    t.same(made.reply.ledger_sequence, made["ledger_sequence"], "the position of the write")
    first = await t.send("read", object_id=made["object_id"])
    await t.claim()
    second = await t.send("read", object_id=made["object_id"])
    t.same(second.body, first.body, "the body after another write")
    t.check(first.as_of_sequence is not None and second.as_of_sequence is not None, "a read names no position")
    t.check((second.as_of_sequence or 0) > (first.as_of_sequence or 0), "the position of the read stands still")
