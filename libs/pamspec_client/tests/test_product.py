"""The client against the whole product: every operation, content without loss, and all four channels."""

import asyncio
from typing import Any, cast

import pytest

from libs.conftest import Product
from libs.pamspec_client.tests.product_objects import claim
from pamspec_client import (
    AccessDenied,
    AsyncClient,
    Client,
    DuplicateOperation,
    InvalidRequest,
    InvalidStateTransition,
    ObjectDeleted,
    ObjectNotFound,
    ObjectRedacted,
    Outcome,
    Promotion,
    RawJson,
    RelationshipConflict,
    ScopeNotFound,
    SnapshotNotFound,
    VersionConflict,
)
from pamspec_client.requests import BatchItem


async def test_the_life_of_an_object(agent_client: AsyncClient, scope: str) -> None:
    client = agent_client
    made = await client.create(**claim(scope, {"n": 1}, lifecycle_state="candidate"))
    assert made.object_id is not None
    changed = await client.update(
        scope_id=scope,
        object_id=made.object_id,
        expected_version_id=made.version_id,
        canonical_content={"n": 2},
        provenance={"activity": "correction"},
    )
    moved = await client.transition(
        scope_id=scope,
        object_id=made.object_id,
        expected_version_id=changed.version_id,
        dimension="lifecycle",
        target_state="active",
        policy_basis="reviewed",
    )
    assert (moved.sequence, moved.envelope.lifecycle_state, moved.envelope.content) == (3, "active", {"n": 2})
    first = await client.read(scope_id=scope, object_id=made.object_id, version_id=made.version_id)
    assert first.content == {"n": 1}
    assert await client.read_fields(["version_id"], scope_id=scope, object_id=made.object_id) == {
        "version_id": moved.version_id
    }
    past = await client.read(
        scope_id=scope, object_id=made.object_id, as_of={"ledger_sequence": changed.ledger_sequence}
    )
    assert past.version_id == changed.version_id
    gone = await client.delete(
        scope_id=scope, object_id=made.object_id, expected_version_id=moved.version_id, policy_basis="asked for"
    )
    assert gone.erasure_id is not None
    with pytest.raises(ObjectDeleted):
        await client.read(scope_id=scope, object_id=made.object_id)
    page = await client.inspect_history(scope_id=scope, object_id=made.object_id)
    assert [event.event_type for event in page.events] == [
        "object_created",
        "object_updated",
        "lifecycle_transitioned",
        "object_deleted",
    ]
    assert [version.content for version in page.versions] == [{"tombstone": True}] * 4


async def test_content_is_erased_and_stays_so(agent_client: AsyncClient, scope: str) -> None:
    client = agent_client
    made = await client.create(
        **claim(scope, RawJson('{"n": 1.10, "name": "Ada", "list": [1, 2]}'), idempotency_key="k")
    )
    assert made.object_id is not None
    left = await client.redact(
        scope_id=scope,
        object_id=made.object_id,
        expected_version_id=made.version_id,
        policy_basis="asked",
        redaction_target={"paths": ["/name", "/list/0"]},
    )
    assert left.envelope.content_bytes == b'{"n":1.10,"list":[2]}'
    assert (left.envelope.availability_state, left.erasure_id is not None) == ("partially_redacted", True)
    with pytest.raises(ObjectRedacted):
        await client.read(scope_id=scope, object_id=made.object_id, version_id=made.version_id)
    with pytest.raises(ObjectRedacted):
        await client.create(**claim(scope, "whatever", idempotency_key="k"))
    gone = await client.batch(
        scope_id=scope,
        items=[
            {
                "operation": "redact",
                "object_id": made.object_id,
                "expected_version_id": left.version_id,
                "policy_basis": "asked",
                "redaction_target": {"whole": True},
            }
        ],
    )
    erased = gone.results[0]
    assert isinstance(erased, Outcome)
    assert erased.envelope.content == {"tombstone": True}
    with pytest.raises(ObjectRedacted):
        await client.read(scope_id=scope, object_id=made.object_id)


@pytest.mark.parametrize(
    "content",
    [
        None,
        -(10**400),
        0.1 + 0.2,
        5e-324,
        1.7976931348623157e308,
        "\u0000 \u2028 🜁 \\u0000",
        {"": {"a": [2**63, 2**64, -(2**70)]}},
    ],
    ids=["null", "400 digits", "float", "least", "largest", "letters", "beyond 64 bits"],
)
async def test_content_comes_back_as_the_same_value(agent_client: AsyncClient, scope: str, content: object) -> None:
    made = await agent_client.create(**claim(scope, content))
    assert made.envelope.content == content
    assert made.object_id is not None
    read = await agent_client.read(scope_id=scope, object_id=made.object_id)
    assert read.content == content
    assert type(read.content) is type(content)


async def test_raw_content_keeps_its_number_tokens(agent_client: AsyncClient, scope: str) -> None:
    made = await agent_client.create(**claim(scope, RawJson('{"a": 1.10, "b": 1E2, "c": -0.0}')))
    assert made.envelope.content_bytes == b'{"a":1.10,"b":1E2,"c":-0.0}'


async def test_refusals_come_as_classes_with_their_details(agent_client: AsyncClient, scope: str) -> None:
    client = agent_client
    with pytest.raises(ScopeNotFound):
        await client.create(**claim("workspace:nowhere"))
    with pytest.raises(ObjectNotFound):
        await client.read(scope_id=scope, object_id="obj:nothing")
    made = await client.create(**claim(scope, idempotency_key="key-1"))
    again = await client.create(**claim(scope, idempotency_key="key-1"))
    assert (again.raw, again.replayed, made.replayed) == (made.raw, True, False)
    with pytest.raises(DuplicateOperation):
        await client.create(**claim(scope, "y", idempotency_key="key-1"))
    assert made.object_id is not None
    changed = await client.update(
        scope_id=scope,
        object_id=made.object_id,
        expected_version_id=made.version_id,
        canonical_content="z",
        provenance={"activity": "test"},
    )
    with pytest.raises(VersionConflict) as caught:
        await client.update(
            scope_id=scope,
            object_id=made.object_id,
            expected_version_id=made.version_id,
            canonical_content="w",
            provenance={"activity": "test"},
        )
    assert caught.value.current_version_id == changed.version_id
    with pytest.raises(InvalidStateTransition):
        await client.transition(
            scope_id=scope,
            object_id=made.object_id,
            expected_version_id=changed.version_id,
            dimension="lifecycle",
            target_state="scratch",
            policy_basis="none",
        )
    with pytest.raises(InvalidRequest):
        await client.create(**claim(scope, "a\ud800"))


async def test_operations_can_be_looked_up(agent_client: AsyncClient, scope: str) -> None:
    made = await agent_client.create(**claim(scope, [1], operation_id="op:mine"))
    found = await agent_client.get_operation(scope_id=scope, operation_id="op:mine")
    assert found.state == "committed"
    assert isinstance(found.outcome, Outcome)
    assert found.outcome.version_id == made.version_id
    unknown = await agent_client.get_operation(scope_id=scope, operation_id="op:never")
    assert (unknown.state, unknown.outcome) == ("unknown", None)


async def test_a_batch_answers_item_by_item(agent_client: AsyncClient, scope: str) -> None:
    answer = await agent_client.batch(
        scope_id=scope,
        items=[
            {"operation": "create", "object_type": "claim", "canonical_content": 1, "provenance": {"activity": "t"}},
            {
                "operation": "update",
                "object_id": "obj:nothing",
                "expected_version_id": "ver:nothing",
                "canonical_content": 2,
                "provenance": {"activity": "t"},
            },
            {
                "operation": "create",
                "object_type": "claim",
                "canonical_content": RawJson("[2e0]"),
                "provenance": {"activity": "t"},
            },
        ],
    )
    first, second, third = answer.results
    assert isinstance(first, Outcome)
    assert isinstance(second, ObjectNotFound)
    assert isinstance(third, Outcome)
    assert third.envelope.content_bytes == b"[2e0]"


async def test_objects_are_joined_and_working_memory_is_promoted(agent_client: AsyncClient, scope: str) -> None:
    one, two = [await agent_client.create(**claim(scope, n)) for n in range(2)]
    assert one.object_id is not None
    assert two.object_id is not None
    joined: dict[str, Any] = {
        "scope_id": scope,
        "source_object_id": one.object_id,
        "target_object_id": two.object_id,
        "relationship_type": "informed_by",
        "directionality": "directed",
        "provenance": {"activity": "compared"},
    }
    made = await agent_client.relate(**joined, canonical_content={"weight": 1.50})
    assert made.relationship_id is not None
    found = await agent_client.read(scope_id=scope, relationship_id=made.relationship_id)
    assert (found.relationship_type, found.target_object_id) == ("informed_by", two.object_id)
    with pytest.raises(RelationshipConflict):
        await agent_client.relate(**joined)
    changed = await agent_client.relate(
        scope_id=scope,
        relationship_id=made.relationship_id,
        expected_version_id=made.version_id,
        canonical_content=None,
        provenance={"activity": "compared again"},
    )
    assert (changed.sequence, changed.envelope.content) == (2, None)
    memory = await agent_client.create(
        **claim(scope, {"task_ref": "task:1", "content": "think"}) | {"object_type": "working_memory"}
    )
    assert memory.object_id is not None
    promoted = await agent_client.promote(
        scope_id=scope,
        source_object_id=memory.object_id,
        expected_version_id=memory.version_id,
        target_object_type="decision",
        target_canonical_content=None,
        provenance={"activity": "decided"},
        operation_id="op:promote",
    )
    assert (promoted.object.envelope.object_type, promoted.object.envelope.content) == ("decision", None)
    assert (promoted.source.sequence, len(promoted.event_ids)) == (2, 4)
    again = (await agent_client.get_operation(scope_id=scope, operation_id="op:promote")).outcome
    assert isinstance(again, Promotion)
    assert again.raw == promoted.raw
    old = await agent_client.read(scope_id=scope, object_id=memory.object_id)
    assert (old.lifecycle_state, old.version_id) == ("superseded", promoted.source.version_id)
    back = await agent_client.update(
        scope_id=scope,
        object_id=memory.object_id,
        expected_version_id=old.version_id,
        restore_version_id=memory.version_id,
        provenance={"activity": "restored"},
    )
    assert back.envelope.content == memory.envelope.content
    joined.pop("scope_id")
    item = cast(BatchItem, {"operation": "relate", **joined, "relationship_type": "produced_by"})
    answer = await agent_client.batch(scope_id=scope, items=[item])
    assert isinstance(answer.results[0], Outcome)


async def test_queries_and_histories_are_walked_page_by_page(agent_client: AsyncClient, scope: str) -> None:
    client = agent_client
    for number in range(7):
        await client.create(**claim(scope, number))
    empty = await client.query(scope_id=scope, query={"kind": "structured"})
    assert empty.items == []
    assert empty.hint
    pages = client.query_items(scope_id=scope, query={"kind": "structured", "trust": "working"}, page_size=3)
    assert [item.envelope.content async for item in pages] == list(range(6, -1, -1))
    history = [page async for page in client.history_pages(scope_id=scope, after_sequence=0, page_size=3)]
    assert [event.sequence for page in history for event in page.events] == list(range(1, 8))


async def test_a_session_reads_its_own_writes(product: Product, agent_client: AsyncClient, scope: str) -> None:
    async with product.client(session=True) as client:
        for number in range(20):
            made = await client.create(**claim(scope, number))
            assert made.object_id is not None
            assert (await client.read(scope_id=scope, object_id=made.object_id)).content == number


async def test_a_snapshot_is_sealed_read_listed_and_compared(agent_client: AsyncClient, scope: str) -> None:
    client = agent_client
    first = await client.create(**claim(scope, 1))
    assert first.object_id is not None
    base = (await client.seal_snapshot(scope_id=scope, evaluation_run_id="run:client")).snapshot
    assert (base.ledger_sequence_high_watermark, base.included_object_ids) == (1, None)
    moved = await client.update(
        scope_id=scope,
        object_id=first.object_id,
        expected_version_id=first.version_id,
        canonical_content=2,
        provenance={"activity": "told"},
    )
    second = await client.create(**claim(scope, 3))
    assert second.object_id is not None
    other = (await client.seal_snapshot(scope_id=scope, included_object_ids=[first.object_id])).snapshot
    name = base.snapshot_id
    read = await client.read(scope_id=scope, snapshot_id=name, object_id=first.object_id)
    assert read.version_id == first.version_id
    found = await client.query(scope_id=scope, snapshot_id=name, query={"kind": "structured", "trust": "working"})
    assert [item.envelope.object_id for item in found.items] == [first.object_id]
    with pytest.raises(ObjectNotFound):
        await client.read(scope_id=scope, snapshot_id=name, object_id=second.object_id)
    with pytest.raises(SnapshotNotFound):
        await client.get_snapshot("snap:none")
    assert (await client.get_snapshot(name)).digest == base.digest
    listed = await client.list_snapshots(scope_id=scope)
    assert {entry.snapshot.snapshot_id for entry in listed.snapshots} == {name, other.snapshot_id}
    seen = await client.compare_snapshots(base_snapshot_id=name, other_snapshot_id=other.snapshot_id)
    (change,) = seen.changed
    assert (change.object_id, change.versions, change.other.version_id) == (first.object_id, 1, moved.version_id)
    assert (seen.added, seen.removed, seen.next_cursor) == ([], [], None)


async def test_a_context_for_a_model(agent_client: AsyncClient, scope: str) -> None:
    client = agent_client
    kept = [
        await client.create(
            scope_id=scope, object_type="claim", canonical_content=text, provenance={"activity": "told"}
        )
        for text in ("Bed 4 drains too slowly.", "Bed 4 drains well.")
    ]
    ids = [str(one.object_id) for one in kept]
    await client.relate(
        scope_id=scope,
        source_object_id=ids[1],
        target_object_id=ids[0],
        relationship_type="contradicts",
        directionality="directed",
        provenance={"activity": "told"},
    )
    found = await client.assemble(
        scope_id=scope, query={"kind": "structured", "trust": "working"}, budget={"max_tokens": 500}
    )
    assert [block.object_id for block in found.evidence] == ids[::-1]
    assert [end.label for end in found.conflicts[0].between] in (["E1", "E2"], ["E2", "E1"])
    assert found.budget.used_tokens <= found.budget.max_tokens == 500
    walk = await client.query(
        scope_id=scope,
        query={"kind": "structured", "trust": "working"},
        traverse={"from": [ids[1]], "paths": True},
    )
    assert walk.items[0].path == {
        "from": ids[1],
        "steps": [{"object_id": ids[0], "relationship_id": found.conflicts[0].relationship_id}],
    }


async def test_scopes_are_found_again(agent_client: AsyncClient, scope: str) -> None:
    assert (await agent_client.get_scope(scope_id=scope)).scope_kind == "workspace"
    seen: list[str] = []
    cursor = None
    while True:
        page = await agent_client.list_scopes(limit=5, cursor=cursor)
        seen += [found.scope_id for found in page.scopes]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert scope in seen
    assert seen == sorted(seen)


async def test_the_synchronous_client_does_the_same(product: Product, scope: str) -> None:
    def work() -> list[object]:
        with Client(product.url, product.key) as client:
            opened = client.subscribe(scope_id=scope, after_sequence=0, filter={"object_type": "claim"}, channel="sse")
            for number in range(3):
                client.create(**claim(scope, number))
            found: list[object] = []
            for event in client.follow(opened.subscription_id, channel="sse"):
                assert event.object_id is not None
                found.append(client.read(scope_id=scope, object_id=event.object_id).content)
                if len(found) == 3:
                    break
            return found

    assert await asyncio.to_thread(work) == [0, 1, 2]


async def test_authority_is_granted_checked_explained_listed_and_revoked(agent_client: AsyncClient, scope: str) -> None:
    helper: Any = {"actor_id": "agent:helper", "actor_kind": "agent"}
    made = await agent_client.create(**claim(scope))
    granted = await agent_client.grant_delegation(
        scope_id=scope,
        delegated_actor=helper,
        granted_operations=["read", "update"],
        granted_object_ids=[cast(str, made.object_id)],
        policy_basis="ticket 7",
        not_before="2001-01-01T00:00:00Z",
        not_after="2099-01-01T00:00:00Z",
        usage_limit=3,
    )
    grant = granted.delegation_id
    assert granted.envelope.delegation_id == grant
    asked: Any = {"delegation_id": grant, "operation": "read", "actor": helper, "object_id": made.object_id}
    assert (await agent_client.check_delegation(**asked, consume=False)).remaining_uses == 3
    assert (await agent_client.check_delegation(**asked)).remaining_uses == 2
    read = await agent_client.read(
        scope_id=scope, object_id=cast(str, made.object_id), delegation_id=grant, actor=helper
    )
    assert read.version_id == made.version_id
    told = await agent_client.explain_delegation(**asked)
    assert (told.permitted, told.remaining_uses, len(told.chain)) == (True, 1, 1)
    [entry] = (await agent_client.list_delegations(scope_id=scope)).delegations
    assert (entry.in_force, entry.remaining_uses, entry.terms["granted_operations"]) == (True, 1, ["read", "update"])
    await agent_client.revoke_delegation(delegation_id=grant, policy_basis="over")
    with pytest.raises(AccessDenied) as refused:
        await agent_client.check_delegation(**asked)
    assert refused.value.details["reason"] == "revoked"
