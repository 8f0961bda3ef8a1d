"""Somebody who may work here asks, by every operation, for what is elsewhere, and is answered as if it were not there.

The guest may do anything in the garden and nothing in the vault of the same tenant; the foreigner administers another
tenant, in which there is a garden too. Each names ids of the vault in every place where an operation takes an id, of
their own scope and of the vault itself (P172, P183, S7, S15; PAMSPEC 15.2 to 15.4 and 15.7).
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.security.people import GARDEN, NOTHING, SECRET, VAULT, Answer, Caller, Document, Hidden, People, number

WHO = ["guest", "foreigner"]
P = {"provenance": {"activity": "t"}}
BASIS = {"policy_basis": "t"}


def attempts(at: Hidden, here: str, own: Document) -> dict[str, tuple[str, Document]]:
    """Every way to name something hidden; `own` is an object of the caller's in the scope `here`."""
    mine = {"expected_version_id": own["version_id"]}
    theirs = {"expected_version_id": at.version}
    named = {"field": "object_id", "op": "eq", "value": at.object}
    joined: Document = {"relationship_type": "supports", "directionality": "directed", **P}
    page = {"query": {"kind": "structured", "trust": "all"}, "pagination": {"limit": 5}}
    tries: list[tuple[str, Document]] = [
        ("read", {"scope_id": here, "object_id": at.object}),
        ("read", {"scope_id": here, "object_id": at.object, "version_id": at.version}),
        ("read", {"scope_id": here, "object_id": own["object_id"], "version_id": at.version}),
        ("read", {"scope_id": here, "object_id": own["object_id"], "snapshot_id": at.snapshot}),
        ("read", {"scope_id": here, "relationship_id": at.relationship}),
        ("update", {"scope_id": here, "object_id": at.object, **theirs, "canonical_content": 1, **P}),
        ("update", {"scope_id": here, "object_id": own["object_id"], **mine, "restore_version_id": at.version, **P}),
        *[
            ("transition", {
                "scope_id": here, which: id_, "expected_version_id": at.version, "dimension": dimension,
                "target_state": state, **BASIS,
            })
            for which, id_ in (("object_id", at.object), ("relationship_id", at.relationship))
            for dimension, state in (("lifecycle", "archived"), ("validation", "rejected"), ("retention", "legal_hold"))
        ],
        ("relate", {"scope_id": here, "source_object_id": own["object_id"], "target_object_id": at.object, **joined}),
        ("relate", {"scope_id": here, "source_object_id": at.object, "target_object_id": own["object_id"], **joined}),
        ("relate", {"scope_id": here, "relationship_id": at.relationship, **theirs, "directionality": "directed", **P}),
        ("relate", {
            "scope_id": here, "source_object_id": own["object_id"], "target_object_id": at.object,
            "target_scope_id": at.scope, **joined, **BASIS,
        }),
        ("redact", {"scope_id": here, "object_id": at.object, **theirs, "redaction_target": {"whole": True}, **BASIS}),
        ("delete", {"scope_id": here, "object_id": at.object, "expected_version_id": at.version, **BASIS}),
        ("delete", {"scope_id": here, "relationship_id": at.relationship, "expected_version_id": at.version, **BASIS}),
        ("promote", {
            "scope_id": here, "source_object_id": at.scratch, "expected_version_id": at.scratch_version,
            "target_object_type": "claim", "target_canonical_content": 1, **P,
        }),
        ("batch", {"scope_id": here, "items": [
            {"operation": "delete", "object_id": at.object, "expected_version_id": at.version, **BASIS}]}),
        ("inspect_history", {"scope_id": here, "object_id": at.object}),
        ("inspect_history", {"scope_id": here, "relationship_id": at.relationship}),
        ("inspect_history", {"scope_id": here, "object_id": own["object_id"], "snapshot_id": at.snapshot}),
        ("query", {"scope_id": here, "snapshot_id": at.snapshot, **page}),
        ("query", {"scope_id": here, **page, "traverse": {"from": [at.object], "direction": "both", "depth": 3}}),
        ("query", {"scope_id": here, "query": {"kind": "structured", "trust": "all", "where": named}}),
        ("assemble", {"scope_id": here, "query": {"kind": "structured", "trust": "all", "where": named}}),
        ("list_snapshots", {"snapshot_id": at.snapshot}),
        ("compare_snapshots", {"base_snapshot_id": at.snapshot, "other_snapshot_id": at.snapshot}),
        ("seal_snapshot", {"scope_id": here, "included_object_ids": [at.object]}),
        ("poll", {"subscription_id": at.subscription}),
        ("poll", {"subscription_id": at.subscription, "after_sequence": 0}),
        ("ack", {"subscription_id": at.subscription, "sequence": 1}),
        ("reset", {"subscription_id": at.subscription, "after_sequence": 0}),
        ("unsubscribe", {"subscription_id": at.subscription}),
        ("list_subscriptions", {"subscription_id": at.subscription}),
        ("get_operation", {"scope_id": here, "operation_id": at.operation}),
        ("release_hold", {"scope_id": here, "hold_id": at.hold, **BASIS}),
        ("get_schema", {"scope_id": here, "schema_id": at.schema}),
    ]  # fmt: skip
    there = {"scope_id": at.scope}
    tries += [
        ("create", {**there, "object_type": "claim", "canonical_content": 1, **P}),
        *[
            (operation, there)
            for operation in (
                "get_scope", "list_snapshots", "list_subscriptions", "list_holds", "list_schemas", "verify_ledger",
                "list_policy_versions", "get_checkpoint", "export", "seal_snapshot", "subscribe", "inspect_history",
                "list_role_bindings", "list_administration", "get_access_rules",
            )
        ],
        ("read", {**there, "object_id": at.object}),
        ("query", {**there, **page}),
        ("assemble", {**there, "query": page["query"]}),
        ("query", {**there, "query": {"kind": "structured", "trust": "all"}, "snapshot_id": at.snapshot}),
        ("prove_ledger", {**there, "sequence": 1}),
        ("get_operation", {**there, "operation_id": at.operation}),
        ("place_hold", {**there, **BASIS}),
        ("bind_role", {**there, "actor_id": "agent:guest", "role": "admin", **BASIS}),
        ("set_access_rules", {**there, "rules": "", "expected_rules_version": 0, **BASIS}),
        ("update_scope", {**there, "policy": {}, "expected_policy_version": 0, **BASIS}),
        ("delete", {**there, "object_id": at.object, "expected_version_id": at.version, **BASIS}),
        ("batch", {**there, "items": [{"operation": "create", "object_type": "claim", "canonical_content": 1, **P}]}),
    ]  # fmt: skip
    return {f"{place} {operation}": (operation, document) for place, (operation, document) in enumerate(tries)}


OWN = {"object_id": "obj:own", "version_id": "ver:own"}


def told(answer: Answer, at: Hidden) -> tuple[int, str, frozenset[str]]:
    """Status, body and headers of an answer, with the ids that the caller sent and those of the call taken out."""
    text = answer.body.decode()
    for name, value in at.names().items():
        text = text.replace(value, f"<{name}>")
    text = re.sub(r'"(op|sub|snap|ver|evt|prov|obj):[0-9a-f-]{36}', '"<minted>', text)
    text = re.sub(r'"\d{4}-\d\d-\d\dT[^"]*Z"|sha256:[0-9a-f]{64}', "<made>", text)
    text = re.sub(r'"(ledger_sequence_high_watermark|start_sequence|ledger_sequence)":\d+', "<position>", text)
    return answer.status, text, frozenset(answer.headers) - {"content-length"}


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("attempt", list(attempts(NOTHING, GARDEN, OWN)))
async def test_what_is_elsewhere_answers_as_what_is_nowhere(people: People, who: str, attempt: str) -> None:
    """By the same status, body and headers, whatever the operation; and the vault stays as it was (M011)."""
    caller: Caller = getattr(people, who)
    own = await caller.create(GARDEN)
    before = await people.owner.head(VAULT)
    answers = []
    for at in (people.hidden, NOTHING):
        operation, document = attempts(at, GARDEN, own)[attempt]
        answer = await caller.ask(operation, document)
        assert SECRET.encode() not in answer.body
        assert answer.status < 500, answer
        answers.append(told(answer, at))
    assert answers[0] == answers[1]
    assert not await people.owner.changes(VAULT, before)
    still = await people.owner.do("read", {"scope_id": VAULT, "object_id": people.hidden.object})
    assert still["envelope"]["version_id"] == people.hidden.version


@pytest.mark.parametrize("who", WHO)
async def test_a_subscription_tells_of_nothing_elsewhere(people: People, who: str) -> None:
    """A filter may name what is hidden, even before it changes; nothing ever matches."""
    caller: Caller = getattr(people, who)
    hidden = people.hidden
    opened = []
    for wanted in ({"object_id": hidden.object}, {"object_id": hidden.relationship}, {}):
        made = await caller.do("subscribe", {"scope_id": GARDEN, "filter": wanted, "include_content": True})
        opened.append(made["subscription_id"])
    joined = {
        "scope_id": VAULT, "source_object_id": hidden.scratch, "target_object_id": hidden.object,
        "relationship_type": f"joins-{number()}", "directionality": "directed", **P,
    }  # fmt: skip
    await people.owner.do("relate", joined)
    await caller.create(GARDEN)
    seen = [await caller.do("poll", {"subscription_id": one, "after_sequence": 0}) for one in opened]
    assert [len(one["events"]) > 0 for one in seen] == [False, False, True]
    for one in (hidden.object, hidden.scratch, SECRET):
        assert one not in str(seen)
    for one in opened:
        await caller.do("unsubscribe", {"subscription_id": one})


async def test_cursors_of_others_open_nothing(people: People) -> None:
    """Whoever they were made for: another principal, another scope, another tenant, another operation."""
    for _ in range(4):
        await people.owner.create(VAULT)
        await people.owner.create(GARDEN)
        await people.foreigner.create(GARDEN)
    page: Document = {"query": {"kind": "structured", "trust": "all"}, "pagination": {"limit": 1}}
    made = [
        await people.owner.do("query", {"scope_id": VAULT, **page}),
        await people.owner.do("query", {"scope_id": GARDEN, **page}),
        await people.foreigner.do("query", {"scope_id": GARDEN, **page}),
        await people.owner.do("inspect_history", {"scope_id": GARDEN, "after_sequence": 0, "pagination": {"limit": 1}}),
        await people.owner.do("list_scopes", {"pagination": {"limit": 1}}),
    ]
    for cursor in [one["next_cursor"] for one in made]:
        assert cursor
        for document in (
            {"scope_id": GARDEN, **page, "pagination": {"limit": 1, "cursor": cursor}},
            {"scope_id": GARDEN, **page, "pagination": {"limit": 1, "cursor": cursor[:-2]}},
        ):
            assert (await people.guest.ask("query", document)).code == "invalid_request"
        history = {"scope_id": GARDEN, "after_sequence": 0, "pagination": {"limit": 1, "cursor": cursor}}
        assert (await people.guest.ask("inspect_history", history)).code == "invalid_request"


async def test_keys_and_operations_of_others_are_not_repeated(people: People) -> None:
    """The same key, operation id and body of another principal are another operation (S16, S18)."""
    key = f"key-{number()}"
    body: Document = {
        "scope_id": GARDEN, "object_type": "claim", "canonical_content": {"n": number()}, "idempotency_key": key, **P,
    }  # fmt: skip
    first = await people.owner.do("create", body)
    for other in (people.guest, people.foreigner):
        again = await other.do("create", body)
        assert {first["object_id"], first["operation_id"]}.isdisjoint({again["object_id"], again["operation_id"]})
    asked = await people.guest.ask("get_operation", {"scope_id": GARDEN, "operation_id": first["operation_id"]})
    missing = await people.guest.ask("get_operation", {"scope_id": GARDEN, "operation_id": "op:of-nobody"})
    assert (asked.status, asked.document.get("state")) == (missing.status, missing.document.get("state"))
    assert first["object_id"] not in str(asked.document)


IDENTITY: list[Any] = [
    {"scope_id": VAULT}, {"tenant_id": "tenant:t"}, {"owner": "agent:a"}, {"created_by": "agent:a"},
    {"actor": {"actor_id": "agent:a", "actor_kind": "agent"}}, {"delegation_id": "dlg:none"},
    {"actor": {"actor_id": "agent:guest", "actor_kind": "agent", "on_behalf_of_actor_id": "agent:a"}},
    {"actor": {"actor_id": "agent:guest", "actor_kind": "agent", "delegation_id": "dlg:none"}},
    {"actor": {"actor_id": "agent:guest", "actor_kind": "human"}},
]  # fmt: skip


@pytest.mark.parametrize("claimed", IDENTITY)
async def test_nobody_becomes_somebody_else_by_saying_so(people: People, claimed: Document) -> None:
    """A body that names another actor, tenant, owner or grant is refused, and what it would have changed stays."""
    own = await people.guest.create(GARDEN)
    for operation, document in (
        (
            "update",
            {"object_id": own["object_id"], "expected_version_id": own["version_id"], "canonical_content": 1, **P},
        ),
        ("create", {"object_type": "claim", "canonical_content": 1, **P}),
        ("read", {"object_id": own["object_id"]}),
        ("query", {"query": {"kind": "structured"}}),
        ("subscribe", {}),
    ):
        answer = await people.guest.ask(operation, {"scope_id": GARDEN, **document, **claimed})
        assert 400 <= answer.status < 500, answer
        assert answer.code in ("invalid_request", "access_denied", "scope_not_found", "object_not_found")
    still = await people.guest.do("read", {"scope_id": GARDEN, "object_id": own["object_id"]})
    assert still["envelope"]["version_id"] == own["version_id"]
