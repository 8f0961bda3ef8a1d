"""Every event type and every error code of the contracts, each reached on a running product by a case of its name."""

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from pamspec_cli import development
from pamspec_common import contracts, strict_json
from pamspec_common.calls import Call
from pamspec_common.peers import RemotePeer
from pamspec_common.principal import TokenSigner, service_principal
from tests.integration.harness import Fleet
from tests.integration.plain_http import Answer, Document, Http, in_own_scope, key_with_role

PROVENANCE = {"activity": "test"}
BASIS = {"policy_basis": "test"}
DELEGATE = {"actor_id": "agent:delegate", "actor_kind": "agent"}
STRUCTURED = {"query": {"kind": "structured"}}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def http(shared_fleet: Fleet) -> AsyncIterator[Http]:
    await shared_fleet.ready()
    async with in_own_scope(shared_fleet) as http:
        yield http


async def made(http: Http, operation: str, document: Document) -> Document:
    """The answer of an operation that must succeed."""
    answer = await http.call(operation, document)
    assert answer.code is None, answer
    return answer.document


def on(of: Document, **more: Any) -> Document:
    """What names an object or relationship and the version that a change follows."""
    member = "object_id" if "object_id" in of else "relationship_id"
    return {member: of[member], "expected_version_id": of["version_id"], **more}


def edge(source: Document, target: Document, **more: Any) -> Document:
    """The document of a relate."""
    return {
        "source_object_id": source["object_id"],
        "target_object_id": target["object_id"],
        "relationship_type": "supports",
        "directionality": "directed",
        "provenance": PROVENANCE,
        **more,
    }


async def moved(http: Http, of: Document, dimension: str, target: str, **more: Any) -> Document:
    """The answer of a transition."""
    return await made(http, "transition", on(of, dimension=dimension, target_state=target, **BASIS, **more))


async def related(http: Http) -> Document:
    """A new relationship, with the members that its next version repeats."""
    ends = edge(await http.claim({"n": 1}), await http.claim({"n": 2}))
    return {**(await made(http, "relate", ends)), "ends": ends}


async def working_memory(http: Http) -> Document:
    """A new working memory."""
    content = {"task_ref": "task:1", "purpose": "plan", "content": {"steps": []}}
    return await made(
        http, "create", {"object_type": "working_memory", "canonical_content": content, "provenance": PROVENANCE}
    )


async def promoted(http: Http) -> Document:
    """The answer of a promote."""
    source = await working_memory(http)
    return await made(
        http,
        "promote",
        {
            "source_object_id": source["object_id"],
            "expected_version_id": source["version_id"],
            "target_object_type": "task",
            "target_canonical_content": {"title": "dig"},
            "provenance": PROVENANCE,
        },
    )


async def granted(http: Http) -> Document:
    """A grant to the principal's own delegate."""
    terms = {
        "granted_operations": ["create"],
        "not_before": "2001-01-01T00:00:00Z",
        "not_after": "2099-01-01T00:00:00Z",
    }
    return await made(http, "grant_delegation", {"delegated_actor": DELEGATE, **terms, **BASIS})


async def revoked(http: Http) -> Document:
    """A grant that ended."""
    of = await granted(http)
    return await made(http, "revoke_delegation", {"delegation_id": of["delegation_id"], **BASIS})


async def exercised(http: Http) -> Document:
    """A create under a grant."""
    of = await granted(http)
    return await http.claim({"n": 1}, actor=DELEGATE, delegation_id=of["delegation_id"])


async def invoked(http: Http) -> Document:
    """A new tool invocation."""
    content = {"tool_name": "search", "arguments": {}}
    return await made(
        http, "create", {"object_type": "tool_invocation", "canonical_content": content, "provenance": PROVENANCE}
    )


async def completed(http: Http) -> Document:
    """A new tool result."""
    of = await invoked(http)
    content = {
        "invocation_object_id": of["object_id"],
        "invocation_version_id": of["version_id"],
        "outcome": "success",
        "completed_at": "2026-03-01T09:30:00Z",
    }
    return await made(
        http, "create", {"object_type": "tool_result", "canonical_content": content, "provenance": PROVENANCE}
    )


async def erased(http: Http, operation: str) -> Document:
    """The answer of a redact or delete of a new claim."""
    target = {"redaction_target": {"whole": True}} if operation == "redact" else {}
    return await made(http, operation, on(await http.claim({"secret": 1}), **BASIS, **target))


async def recorded(http: Http, event_type: str, payload: Document, **about: Any) -> Document:
    """An entry that only a service may ask for, over the internal door of the write service."""
    kid, key = next(iter(http.fleet.deployment.token_keys.items()))
    token = TokenSigner(kid, key.encode()).sign(service_principal("indexing", development.TENANT_ID))
    document = {"scope_id": http.scope, "event_type": event_type, "payload": payload, **about}
    write = RemotePeer(http.fleet.peers, http.fleet["write"].url)
    answer = await write.call(Call("record_event", token, strict_json.dumps(document)))
    assert answer.status == 200, answer.body
    return dict(strict_json.loads(answer.body))


async def embedding(http: Http) -> Document:
    """An entry about a vector of a claim."""
    of = await http.claim({"n": 1})
    payload = {"object_type": "claim", "embedding_space_id": "space:1", "index_id": "idx:1"}
    return await recorded(http, "embedding_generated", payload, object_id=of["object_id"], version_id=of["version_id"])


async def subscription(http: Http, *, close: bool) -> Document:
    """An open or closed subscription."""
    opened = await made(http, "subscribe", {"after_sequence": 0})
    if close:
        await made(http, "unsubscribe", {"subscription_id": opened["subscription"]["subscription_id"]})
    return opened


async def of_provenance(http: Http) -> Document:
    """An update of nothing but the provenance."""
    return await made(http, "update", on(await http.claim({"n": 1}), provenance={"activity": "corrected"}))


async def again_related(http: Http) -> Document:
    """The next version of a relationship."""
    of = await related(http)
    return await made(http, "relate", {**of["ends"], **on(of), "canonical_content": {"weight": 2}})


async def restored(http: Http) -> Document:
    """What a redaction took in part comes back by a transition that brings new content."""
    of = await http.claim({"a": 1, "b": 2})
    part = await made(http, "redact", on(of, redaction_target={"paths": ["/a"]}, **BASIS))
    return await moved(http, part, "availability", "available", canonical_content={"a": 3}, provenance=PROVENANCE)


async def updated(http: Http) -> Document:
    """An update of content."""
    return (await http.update(await http.claim({"n": 1}), {"n": 2})).document


async def claimed_and_moved(http: Http, dimension: str, target: str) -> Document:
    """A transition of a new claim."""
    return await moved(http, await http.claim({"n": 1}), dimension, target)


async def told_of_refusal(http: Http) -> Document:
    """An administrator's subscription tells of an operation that another principal was refused."""
    opened = await made(http, "subscribe", {"channel": "poll", "filter": {"event_classes": ["access_denied"]}})
    await refused_to_a_reader(http)
    page: Document = {"events": []}
    for _ in range(3):
        if not page["events"]:
            page = await made(http, "poll", {"subscription_id": opened["subscription_id"], "wait_ms": 30_000})
    (event,) = page["events"]
    assert (event["actor"]["actor_id"], event["payload"]["operation"]) == ("agent:reader", "create")
    return page


Reach = Callable[[Http], Awaitable[Document]]
EVENTS: dict[str, Reach] = {
    "object_created": lambda http: http.claim({"n": 1}),
    "object_updated": updated,
    "provenance_updated": of_provenance,
    "lifecycle_transitioned": lambda http: claimed_and_moved(http, "lifecycle", "archived"),
    "availability_transitioned": restored,
    "retention_transitioned": lambda http: claimed_and_moved(http, "retention", "expired"),
    "validation_transitioned": lambda http: claimed_and_moved(http, "validation", "disputed"),
    "relationship_created": related,
    "relationship_updated": again_related,
    "object_redacted": lambda http: erased(http, "redact"),
    "object_deleted": lambda http: erased(http, "delete"),
    "working_memory_promoted": promoted,
    "tool_invoked": invoked,
    "tool_completed": completed,
    "embedding_generated": embedding,
    "index_rebuilt": lambda http: recorded(http, "index_rebuilt", {"index_id": "idx:1", "watermark": 1}),
    "access_denied": told_of_refusal,
    "subscription_opened": lambda http: subscription(http, close=False),
    "subscription_closed": lambda http: subscription(http, close=True),
    "delegation_granted": granted,
    "delegation_revoked": revoked,
    "delegation_exercised": exercised,
}


def test_no_event_type_is_forgotten() -> None:
    """Each of the 22 has a case."""
    assert len(contracts.events()) == 22
    assert EVENTS.keys() == contracts.events().keys()


@pytest.mark.parametrize("event_type", EVENTS)
async def test_event_type_is_reached(event_type: str, http: Http) -> None:
    """The case leaves an entry of its type, which keeps the whole contract of that type, with its version beside it."""
    before = (await http.call("query", STRUCTURED)).position
    await EVENTS[event_type](http)
    history = await made(http, "inspect_history", {"after_sequence": before})
    found = [event for event in history["events"] if event["event_type"] == event_type]
    assert len(found) == 1, [event["event_type"] for event in history["events"]]
    contracts.check_event(found[0])
    needs = contracts.events()[event_type].version
    assert needs == "optional" or ("version_id" in found[0]) == (needs == "required")


async def refused_by_hold(http: Http) -> Answer:
    """A delete of what is on hold."""
    held = await claimed_and_moved(http, "retention", "legal_hold")
    return await http.call("delete", on(held, **BASIS))


async def refused_as_used(http: Http) -> Answer:
    """One key with two contents."""
    key = f"key:{secrets.token_hex(6)}"
    await http.call("create", http.made({"n": 1}), key=key)
    return await http.call("create", http.made({"n": 2}), key=key)


async def refused_as_stale(http: Http) -> Answer:
    """An update of a version that has a follower."""
    of = await http.claim({"n": 1})
    await http.update(of, {"n": 2})
    return await http.update(of, {"n": 3})


async def refused_by_type(http: Http) -> Answer:
    """A type that the scope's policy keeps out."""
    scope_id = f"{http.scope}-types"
    policy = {"object_types": {"deny": ["claim"]}}
    await made(http, "create_scope", {"scope_id": scope_id, "scope_kind": "workspace", "policy": policy})
    return await http.call("create", {**http.made({"n": 1}), "scope_id": scope_id})


async def refused_across(http: Http) -> Answer:
    """A relationship into a scope where no policy opens the way."""
    scope_id = f"{http.scope}-across-{secrets.token_hex(3)}"
    await made(http, "create_scope", {"scope_id": scope_id, "scope_kind": "workspace"})
    there = await http.claim({"n": 1}, scope_id=scope_id)
    return await http.call("relate", edge(await http.claim({"n": 1}), there, target_scope_id=scope_id))


async def refused_as_edge(http: Http) -> Answer:
    """A target of another dimension."""
    of = await http.claim({"n": 1})
    return await http.call("transition", on(of, dimension="lifecycle", target_state="redacted", **BASIS))


async def refused_as_repeated(http: Http) -> Answer:
    """A second active relationship of one type between two objects."""
    of = await related(http)
    return await http.call("relate", of["ends"])


async def refused_as_removed(http: Http) -> Answer:
    """An update of what is about to be deleted."""
    leaving = await claimed_and_moved(http, "retention", "pending_deletion")
    return await http.update(leaving, {"n": 2})


async def refused_as_erased(http: Http, operation: str) -> Answer:
    """A read of what was redacted or deleted."""
    gone = await erased(http, operation)
    return await http.call("read", {"object_id": gone["object_id"]})


async def refused_to_a_reader(http: Http) -> Answer:
    """A create by a key whose only role is to read."""
    return await http.call("create", http.made({"n": 1}), bearer=await key_with_role(http.fleet, "reader"))


async def failed_on_damage(http: Http) -> Answer:
    """A stored version that no longer is JSON: the service says that it failed, and logs why."""
    of = await http.claim({"n": 1})
    async with http.fleet.database() as database:
        where = "FROM core.version WHERE version_id = $1"
        kept = await database.fetchval(f"SELECT metadata {where}", of["version_id"])
        change = "UPDATE core.version SET metadata = $2 WHERE version_id = $1"
        await database.execute("SET session_replication_role = replica")
        await database.execute(change, of["version_id"], b"{")
        try:
            return await http.update(of, {"n": 2})
        finally:
            await database.execute(change, of["version_id"], kept)
            assert http.fleet.surprises(), "why it failed is logged"


Refused = Callable[[Http], Awaitable[Answer]]
ERRORS: dict[str, Refused] = {
    "invalid_request": lambda http: http.call("create", {"colour": "blue"}),
    "invalid_object": lambda http: http.call(
        "create", {"object_type": "tool_invocation", "canonical_content": {"arguments": {}}, "provenance": PROVENANCE}
    ),
    "unsupported_object_type": refused_by_type,
    "object_not_found": lambda http: http.call("read", {"object_id": "obj:none"}),
    "scope_not_found": lambda http: http.call("query", {**STRUCTURED, "scope_id": "scope:none"}),
    "snapshot_not_found": lambda http: http.call("query", {**STRUCTURED, "snapshot_id": "snap:none"}),
    "access_denied": refused_to_a_reader,
    "policy_denied": refused_across,
    "version_conflict": refused_as_stale,
    "duplicate_operation": refused_as_used,
    "invalid_state_transition": refused_as_edge,
    "relationship_conflict": refused_as_repeated,
    "retention_restriction": refused_as_removed,
    "object_deleted": lambda http: refused_as_erased(http, "delete"),
    "object_redacted": lambda http: refused_as_erased(http, "redact"),
    "embedding_space_mismatch": lambda http: http.call(
        "query", {"query": {"kind": "semantic", "text": "n"}, "embedding_space_id": "space:none"}
    ),
    "legal_hold": refused_by_hold,
    "service_unavailable": lambda http: http.call("query", {**STRUCTURED, "min_sequence": 1_000_000}),
    "internal_error": failed_on_damage,
}


def test_no_error_code_is_forgotten() -> None:
    """Each of the 19 has a case."""
    assert len(contracts.errors()) == 19
    assert ERRORS.keys() == contracts.errors().keys()


@pytest.mark.parametrize("code", ERRORS)
async def test_error_code_is_reached(code: str, http: Http) -> None:
    """The case is refused with its code and status, in the closed envelope of errors."""
    answer = await ERRORS[code](http)
    assert (answer.code, answer.status) == (code, contracts.errors()[code].status), answer.document
    contracts.check("error", answer.document)
