"""Every example document of the draft against a running product: what it shows is reached, what it forbids is refused.

PAMSPEC_SPEC names the folder with the draft's schemas and documents; where it is unset there are none to show.
"""

import json
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from pamspec_common import contracts
from tests.integration.harness import Fleet
from tests.integration.plain_http import Answer, Document, Http, in_own_scope, key_with_role

FOLDER = os.environ.get("PAMSPEC_SPEC")
BASIS = {"policy_basis": "test"}
STATES = ("lifecycle", "validation", "retention")
GIVEN = (
    *("object_id", "object_type", "canonical_content", "provenance", "observed_at", "asserted_at", "integrity"),
    *("quality_signals", "relationship_refs", "schema_id", "lifecycle_state", "validation_state"),
)
"""Members of an object that its writer chooses."""
NOT_YET: dict[str, str] = {}
"""Documents of operations that are not offered yet, by the operation that they need."""


def documents(kind: str) -> dict[str, Any]:
    """The draft's documents by name."""
    return (
        {path.stem: json.loads(path.read_text()) for path in sorted(Path(FOLDER).glob(f"{kind}/*"))} if FOLDER else {}
    )


VALID, INVALID = documents("vectors-valid"), documents("vectors-invalid")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shared(shared_fleet: Fleet) -> AsyncIterator[Http]:
    await shared_fleet.ready()
    async with in_own_scope(shared_fleet) as http:
        yield http


@pytest_asyncio.fixture(loop_scope="session")
async def http(shared: Http) -> Http:
    """A scope for one document, whose ids stand in several."""
    http = replace(shared, scope=f"{shared.scope}-{secrets.token_hex(4)}")
    await done(http, "create_scope", {"scope_kind": "workspace"})
    return http


async def done(http: Http, operation: str, document: Document) -> Document:
    """The answer of an operation that must succeed."""
    answer = await http.call(operation, document)
    assert answer.code is None, (operation, answer.document)
    return answer.document


def create_of(vector: Mapping[str, Any], **changed: Any) -> Document:
    """The create that the draft's object would come from; its grant, which does not exist yet, is left out."""
    actor = {name: value for name, value in vector["actor"].items() if name != "delegation_id"}
    return {name: vector[name] for name in GIVEN if name in vector} | {"actor": actor} | changed


def following(of: Document, **more: Any) -> Document:
    """What names an object and the version that a change follows."""
    return {"object_id": of["object_id"], "expected_version_id": of["version_id"], **BASIS, **more}


def comparable(value: Any) -> Any:
    """The value with every time as an instant, since the draft's are written with other precisions."""
    if isinstance(value, dict):
        return {name: comparable(member) for name, member in value.items()}
    if isinstance(value, list):
        return [comparable(member) for member in value]
    if isinstance(value, str) and value[:2] == "20" and value.endswith("Z"):
        return datetime.fromisoformat(value)
    return value


async def object_is_kept(http: Http, vector: Document) -> None:
    """What the writer chose is answered by a read as it was."""
    made = await done(http, "create", create_of(vector))
    found = (await done(http, "read", {"object_id": made["object_id"]}))["envelope"]
    check_kept(found, create_of(vector))


def check_kept(found: Document, given: Document) -> None:
    """The envelope has every member that the writer chose; of provenance, time and actor are the service's own."""
    provenance = found["provenance"]
    authored = {name: value for name, value in given["provenance"].items() if name not in ("recorded_at", "actor")}
    assert comparable({name: provenance[name] for name in authored}) == comparable(authored)
    assert provenance["actor"]["actor_id"] == given["actor"]["actor_id"]
    assert provenance["recorded_at"] == found["recorded_at"]
    other = {name: value for name, value in given.items() if name != "provenance"}
    assert comparable({name: found.get(name) for name in other}) == comparable(other)


async def states_are_reached(http: Http, vector: Document) -> None:
    """All four states of the draft's object, each by its own operation."""
    secret = {"statement": "hidden", "visible_fields": ["title"]}
    start = {"lifecycle_state": "active", "validation_state": "unverified", "canonical_content": secret}
    at = await done(http, "create", create_of(vector, **start))
    for dimension in STATES:
        target = vector[f"{dimension}_state"]
        if at["envelope"][f"{dimension}_state"] != target and (dimension, target) != ("retention", "pending_deletion"):
            at = await done(http, "transition", following(at, dimension=dimension, target_state=target))
    availability = vector["availability_state"]
    if availability == "partially_redacted":
        at = await done(http, "redact", following(at, redaction_target={"paths": ["/statement"]}))
    elif availability == "redacted":
        at = await done(http, "redact", following(at, redaction_target={"whole": True}))
    elif vector["retention_state"] == "pending_deletion":
        at = await done(http, "transition", following(at, dimension="retention", target_state="pending_deletion"))
    if availability == "deleted":
        at = await done(http, "delete", following(at))
    names = [f"{dimension}_state" for dimension in (*STATES, "availability")]
    assert {name: at["envelope"][name] for name in names} == {name: vector[name] for name in names}
    if availability in ("redacted", "deleted"):
        assert at["envelope"]["canonical_content"] == vector["canonical_content"]
    if availability != "available":
        assert "hidden" not in json.dumps(await events(http, at["object_id"]))


async def events(http: Http, object_id: str) -> list[Document]:
    """An object's entries."""
    return list((await done(http, "inspect_history", {"object_id": object_id}))["events"])


async def update_is_kept(http: Http, vector: Document) -> None:
    """The second version of an object has the draft's content and sequence; the first stays."""
    first = await done(http, "create", create_of(vector, canonical_content={"decision": "none"}))
    update = {name: value for name, value in create_of(vector).items() if not name.endswith(("_state", "_type"))}
    second = await done(http, "update", update | {"expected_version_id": first["version_id"]})
    envelope = second["envelope"]
    assert (envelope["canonical_content"], envelope["sequence"]) == (vector["canonical_content"], vector["sequence"])
    old = await done(http, "read", {"object_id": first["object_id"], "version_id": first["version_id"]})
    assert old["envelope"] == first["envelope"]


async def transition_is_told(http: Http, vector: Document) -> None:
    """A transition leaves the draft's event: type, object and both states."""
    dimension = vector["event_type"].removesuffix("_transitioned")
    claim = {**http.made({"n": 1}), "object_id": vector["object_id"], "object_type": "task"}
    start = {f"{dimension}_state": vector["payload"]["from"]}
    at = await done(http, "create", claim | start)
    await done(http, "transition", following(at, dimension=dimension, target_state=vector["payload"]["to"]))
    told = (await events(http, vector["object_id"]))[-1]
    for name in ("event_type", "object_id"):
        assert told[name] == vector[name]
    assert vector["payload"].items() <= told["payload"].items()


async def repetition_is_one(http: Http, vector: Document) -> None:
    """A create with the draft's operation_id, sent twice, is one object, one event and one answer."""
    create = {**http.made({"n": 1}), "object_id": vector["object_id"], "operation_id": vector["operation_id"]}
    first, second = await http.call("create", create), await http.call("create", create)
    assert (first.status, first.body) == (201, second.body)
    assert second.headers["Idempotency-Replayed"] == "true"
    (told,) = await events(http, vector["object_id"])
    assert {name: told[name] for name in ("event_type", "operation_id", "sequence")} == {
        name: vector[name] for name in ("event_type", "operation_id", "sequence")
    }


async def relationship_is_kept(http: Http, vector: Document) -> None:
    """The draft's relationship between two objects of the draft's ids."""
    for name in ("source_object_id", "target_object_id"):
        await done(http, "create", {**http.made({"n": 1}), "object_id": vector[name]})
    given = relate_of(vector)
    made = await done(http, "relate", given)
    check_kept(made["envelope"], given)


def relate_of(vector: Mapping[str, Any]) -> Document:
    """The relate that the draft's relationship would come from."""
    own = "relationship_type source_object_id target_object_id directionality canonical_content actor provenance"
    return {name: vector[name] for name in own.split()}


def grant_of(vector: Mapping[str, Any]) -> Document:
    """The grant that the draft's delegation would come from; it is its grantor's, for whom the principal speaks."""
    own = "granted_operations granted_object_types policy_basis not_before not_after revocable usage_limit"
    parties = ("granting_actor", "delegated_actor", "validation_state", "provenance")
    names = [name for name in (*own.split(), *parties) if name in vector]
    return {name: vector[name] for name in names} | {"actor": vector["granting_actor"]}


async def grant_is_kept(http: Http, vector: Document) -> None:
    """The draft's delegation, granted and read."""
    given = grant_of(vector)
    made = await done(http, "grant_delegation", given)
    assert made["remaining_uses"] == vector["usage_limit"]
    found = (await done(http, "read", {"delegation_id": made["delegation_id"]}))["envelope"]
    assert found == made["envelope"]
    check_kept(found, given)
    assert found.keys() == vector.keys()


async def as_grant(http: Http, instance: Document) -> Answer:
    """The grant that the document would come from."""
    return await http.call("grant_delegation", grant_of(instance))


async def result_is_kept(http: Http, vector: Document) -> None:
    """The draft's tool result, after the invocation that it names."""
    content = vector["canonical_content"]
    invocation = {"tool_name": "web_search", "arguments": {}}
    made = await done(
        http,
        "create",
        {**http.made(invocation), "object_type": "tool_invocation", "object_id": content["invocation_object_id"]},
    )
    await object_is_kept(http, vector | {"canonical_content": content | {"invocation_version_id": made["version_id"]}})


async def snapshot_is_sealed(http: Http, vector: Document) -> None:
    """A snapshot of the draft's id, clock, seed and run, made of its objects; spaces of vectors do not exist yet."""
    for object_id in vector["included_object_ids"]:
        await done(http, "create", {**http.made({"n": 1}), "object_id": object_id})
    names = ("included_object_ids", "deterministic_clock", "deterministic_rng_seed", "evaluation_run_id")
    snapshot_id = f"{vector['snapshot_id']}-{secrets.token_hex(4)}"
    sealed = await done(http, "seal_snapshot", {"snapshot_id": snapshot_id} | {name: vector[name] for name in names})
    descriptor = sealed.get("snapshot", sealed)
    assert descriptor["sealed"] is True
    for name in names:
        found, due = comparable(descriptor[name]), comparable(vector[name])
        assert (sorted(found) == sorted(due)) if isinstance(due, list) else (found == due)


async def query_is_answered(http: Http, vector: Document) -> None:
    """The draft's structured query, as it stands, finds the trusted claim."""
    made = await http.claim({"n": 1})
    answer = await done(http, "query", {name: value for name, value in vector.items() if name != "scope_id"})
    assert [item["envelope"]["version_id"] for item in answer["items"]] == [made["version_id"]]


async def query_needs_its_space(http: Http, vector: Document) -> None:
    """The draft's semantic query is understood; its space is not described here, and it is told so."""
    answer = await http.call("query", {name: value for name, value in vector.items() if name != "scope_id"})
    assert answer.code == "embedding_space_mismatch"


async def event_is_of_its_kind(http: Http, vector: Document) -> None:
    """An event without a version: its contract has none either; test_every_event_and_error reaches it."""
    assert contracts.events()[vector["event_type"]].version == "absent"
    assert "version_id" not in vector


Shown = Callable[[Http, Document], Awaitable[None]]
SHOWN: dict[str, Shown] = {
    "access-denial-event-only": event_is_of_its_kind,
    "attested-agent-actor": object_is_kept,
    "claim-creation": object_is_kept,
    "claim-with-quality-signals": object_is_kept,
    "decision-update": update_is_kept,
    "delegation": grant_is_kept,
    "deletion-tombstone": states_are_reached,
    "derived-index-event-only": event_is_of_its_kind,
    "evaluation-snapshot": snapshot_is_sealed,
    "expiration": states_are_reached,
    "idempotent-repeated-create": repetition_is_one,
    "lifecycle-transition": transition_is_told,
    "object-history": transition_is_told,
    "partial-redaction": states_are_reached,
    "pending-deletion": states_are_reached,
    "redaction-with-tombstone": states_are_reached,
    "relationship-creation": relationship_is_kept,
    "retention-transition": transition_is_told,
    "scalar-canonical-content": object_is_kept,
    "semantic-query-with-embedding-space": query_needs_its_space,
    "structured-query": query_is_answered,
    "tool-invocation": object_is_kept,
    "tool-result": result_is_kept,
    "validation-transition": transition_is_told,
    "working-memory": object_is_kept,
}


async def as_create(http: Http, instance: Document) -> Answer:
    """The create that the document would come from."""
    return await http.call("create", create_of(instance))


def as_content(object_type: str) -> Callable[[Http, Document], Awaitable[Answer]]:
    """A create with the document as content."""

    async def send(http: Http, instance: Document) -> Answer:
        return await http.call("create", http.made(instance) | {"object_type": object_type})

    return send


def as_transition(dimension: str) -> Callable[[Http, Document], Awaitable[Answer]]:
    """A transition from the document's first state to its second."""

    async def send(http: Http, instance: Document) -> Answer:
        at = await done(http, "create", http.made({"n": 1}) | {"validation_state": "unverified"})
        if at["envelope"][f"{dimension}_state"] != instance["from"]:
            at = await done(http, "transition", following(at, dimension=dimension, target_state=instance["from"]))
        return await http.call("transition", following(at, dimension=dimension, target_state=instance["to"]))

    return send


async def without_scope(http: Http, instance: Document) -> Answer:
    """A create that names no scope."""
    return await http.call("create", create_of(instance) | {"scope_id": None})


async def across(http: Http, instance: Document) -> Answer:
    """The document's relationship into another scope, which no policy allows."""
    other = f"{http.scope}-other"
    await done(http, "create_scope", {"scope_id": other, "scope_kind": "workspace"})
    for name, scope_id in (("source_object_id", http.scope), ("target_object_id", other)):
        await done(http, "create", {**http.made({"n": 1}), "object_id": instance[name], "scope_id": scope_id})
    return await http.call("relate", relate_of(instance) | {"target_scope_id": other})


async def of_held(http: Http, instance: Document) -> Answer:
    """A delete of what is on legal hold."""
    at = await http.claim({"n": 1}, object_id=instance["details"]["object_id"])
    held = await done(http, "transition", following(at, dimension="retention", target_state="legal_hold"))
    return await http.call("delete", following(held))


async def of_used_key(http: Http, instance: Document) -> Answer:
    """The document's key with other content."""
    key = instance["details"]["idempotency_key"]
    await http.call("create", http.made({"n": 1}), key=key)
    return await http.call("create", http.made({"n": 2}), key=key)


async def of_old_version(http: Http, instance: Document) -> Answer:
    """An update that follows a version which is no longer the current one."""
    at = await http.claim({"n": 1})
    await http.update(at, {"n": 2})
    return await http.update(at, {"n": 3})


async def of_sealed(http: Http, instance: Document) -> Answer:
    """Another membership for a snapshot that is sealed."""
    snapshot_id = f"{instance['snapshot_id']}-{secrets.token_hex(4)}"
    ids = instance["included_object_ids"]
    for object_id in ids:
        await http.claim({"n": 1}, object_id=object_id)
    await done(http, "seal_snapshot", {"snapshot_id": snapshot_id, "included_object_ids": ids[:-1]})
    return await http.call("seal_snapshot", {"snapshot_id": snapshot_id, "included_object_ids": ids})


async def of_no_working_memory(http: Http, instance: Document) -> Answer:
    """The document's promote of a claim."""
    at = await http.claim({"n": 1}, object_id=instance["source_object_id"])
    sent = {name: value for name, value in instance.items() if name != "scope_id"}
    return await http.call("promote", sent | {"expected_version_id": at["version_id"]})


async def of_own_version_id(http: Http, instance: Document) -> Answer:
    """A version's id is never the writer's to choose, so that none can be used twice."""
    return await http.call("create", create_of(instance["second"]) | {"version_id": instance["first"]["version_id"]})


async def by_space(http: Http, instance: Document) -> Answer:
    """A query in a space that the scope does not have."""
    space = {"embedding_space_id": instance["right_space"]}
    return await http.call("query", {"query": {"kind": "semantic", "text": "n"}, **space})


async def of_no_space(http: Http, instance: Document) -> Answer:
    """A vector that names no space."""
    made = await http.claim({"n": 1})
    about = {"object_id": made["object_id"], "version_id": made["version_id"]}
    return await http.call("put_vectors", {"vectors": [{**about, "vector": instance["vector"]}]})


async def by_contributor(http: Http, instance: Document) -> Answer:
    """A promotion of lifecycle by somebody whose role does not move it."""
    at = await http.claim({"n": 1}, lifecycle_state="candidate")
    change = following(at, dimension="lifecycle", target_state=instance["details"]["to"])
    return await http.call("transition", change, bearer=await key_with_role(http.fleet, "contributor"))


async def as_snapshot(http: Http, instance: Document) -> Answer:
    """A snapshot that is not to be sealed."""
    return await http.call("seal_snapshot", {"snapshot_id": instance["snapshot_id"], "sealed": False})


async def as_subscription(http: Http, instance: Document) -> Answer:
    """The document's subscription."""
    delivery = {"delivery": instance["delivery"]} if "delivery" in instance else {}
    return await http.call("subscribe", {"after_sequence": instance.get("start_sequence", 0), **delivery})


REFUSED: dict[str, Callable[[Http, Document], Awaitable[Answer]]] = {
    "attestation-window-inverted": as_create,
    "comparison-across-incompatible-spaces": by_space,
    "cross-scope-relationship-without-policy": across,
    "delegation-unknown-operation": as_grant,
    "delegation-window-inverted": as_grant,
    "deletion-blocked-by-legal-hold": of_held,
    "duplicate-operation-different-content": of_used_key,
    "evaluation-snapshot-membership-mutated": of_sealed,
    "evaluation-snapshot-unsealed": as_snapshot,
    "invalid-cross-dimensional-transition": as_transition("lifecycle"),
    "invalid-lifecycle-transition": as_transition("lifecycle"),
    "invalid-validation-transition": as_transition("validation"),
    "missing-provenance": as_create,
    "missing-scope": without_scope,
    "promote-of-non-working-memory": of_no_working_memory,
    "quality-signals-out-of-range": as_create,
    "reused-immutable-version-identifier": of_own_version_id,
    "silent-overwrite-attempt": of_old_version,
    "stale-expected-version": of_old_version,
    "subscription-delivery-invalid-backpressure": as_subscription,
    "subscription-negative-start-sequence": as_subscription,
    "tool-invocation-missing-tool-name": as_content("tool_invocation"),
    "tool-result-without-invocation": as_content("tool_result"),
    "unauthorized-lifecycle-promotion": by_contributor,
    "vector-without-embedding-space": of_no_space,
    "working-memory-missing-task-ref": as_content("working_memory"),
}
OTHERWISE = {
    "missing-provenance": {"invalid_request"},
    "missing-scope": {"invalid_request"},
    "reused-immutable-version-identifier": {"invalid_request"},
}
"""What the draft calls a failure of the schema, or of a document that no request can bring: the request is refused."""


def test_no_document_is_forgotten() -> None:
    """Every document of the draft has a case or is not yet; what is not yet has no operation."""
    assert VALID.keys() | INVALID.keys() <= SHOWN.keys() | REFUSED.keys() | NOT_YET.keys()
    assert not VALID or SHOWN.keys() | REFUSED.keys() | NOT_YET.keys() == VALID.keys() | INVALID.keys()
    assert not set(NOT_YET.values()) & contracts.operations().keys()


@pytest.mark.parametrize("name", [name for name in VALID if name not in NOT_YET] or ["none given"])
async def test_what_a_document_shows_is_reached(name: str, http: Http) -> None:
    if name in VALID:
        await SHOWN[name](http, VALID[name])


@pytest.mark.parametrize("name", [name for name in INVALID if name not in NOT_YET] or ["none given"])
async def test_what_a_document_forbids_is_refused(name: str, http: Http) -> None:
    if name in INVALID:
        case = INVALID[name]
        answer = await REFUSED[name](http, case["instance"])
        assert answer.code in OTHERWISE.get(name, {case["expected_failure"]}), answer.document
        contracts.check("error", answer.document)
