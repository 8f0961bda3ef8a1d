"""Calls: content without loss, names minted once, retries, errors, pages and monotonic reads."""

import asyncio
import json
import time

import aiohttp
import pytest

from libs.pamspec_client.tests.conftest import FAST
from libs.pamspec_client.tests.scripted_gateway import SCOPE, ScriptedGateway, error, outcome
from pamspec_client import (
    AsyncClient,
    Client,
    InvalidObject,
    InvalidRequest,
    NoAnswer,
    Outcome,
    ProtocolError,
    RawJson,
    RetryPolicy,
    ServiceUnavailable,
    VersionConflict,
)
from pamspec_client.models import BatchOutcome, Operation
from pamspec_client.transport import Transport


async def create(client: AsyncClient, content: object = "x") -> Outcome:
    return await client.create(
        scope_id=SCOPE, object_type="claim", canonical_content=content, provenance={"activity": "test"}
    )


@pytest.mark.parametrize(
    "content",
    [
        None,
        True,
        2**53 + 1,
        -(10**999),
        0.1 + 0.2,
        5e-324,
        'escaped \u0000, quote ", slash \\, \u2028, 🜁',
        {"": [], "deep": [[[[{"a": None}]]]]},
        [],
    ],
    ids=["null", "true", "beyond 53 bits", "999 digits", "float", "least", "letters", "deep", "empty"],
)
async def test_content_comes_back_as_the_same_value(client: AsyncClient, content: object) -> None:
    answer = await create(client, content)
    assert answer.envelope.content == content
    assert type(answer.envelope.content) is type(content)


async def test_raw_content_keeps_its_number_tokens(client: AsyncClient, gateway: ScriptedGateway) -> None:
    answer = await create(client, RawJson(b'{"n":1.10e2}'))
    assert gateway.requests[-1][1]["canonical_content"] == {"n": 110.0}
    assert answer.envelope.content_bytes == b'{"n": 110.0}'


@pytest.mark.parametrize("content", [float("nan"), {"a": float("inf")}, {1: "a"}, object(), {"a": {b"k": 1}}])
async def test_what_json_cannot_hold_is_refused_before_it_is_sent(
    client: AsyncClient, gateway: ScriptedGateway, content: object
) -> None:
    with pytest.raises((ValueError, TypeError)):
        await create(client, content)
    assert gateway.requests == []


async def test_a_lone_surrogate_reaches_the_service_as_its_escape(
    client: AsyncClient, gateway: ScriptedGateway
) -> None:
    gateway.faults.refuse = [error("invalid_request", 400)]
    with pytest.raises(InvalidRequest):
        await create(client, "a\ud800")
    assert gateway.requests[-1][1]["canonical_content"] == "a\ud800"


async def test_unknown_members_of_answers_stay(client: AsyncClient) -> None:
    envelope = (await create(client)).envelope
    assert envelope.extra == {"later_member": {"kept": True}}
    assert dict(envelope.actor)["later_member"] == 1


async def test_a_write_whose_answer_was_lost_is_carried_out_once(client: AsyncClient, gateway: ScriptedGateway) -> None:
    gateway.faults.drop_after_commit = 3
    answer = await create(client)
    sent = [document for operation, document in gateway.requests if operation == "create"]
    assert len(sent) == 4
    assert len({(document["operation_id"], document["idempotency_key"]) for document in sent}) == 1
    assert gateway.executions == 1
    assert answer.replayed


async def test_two_calls_have_two_names(client: AsyncClient, gateway: ScriptedGateway) -> None:
    await create(client)
    await create(client)
    assert len({document["idempotency_key"] for _, document in gateway.requests}) == 2
    assert gateway.executions == 2


async def test_an_operation_id_of_the_caller_acts_as_the_key(client: AsyncClient, gateway: ScriptedGateway) -> None:
    await client.create(
        scope_id=SCOPE, object_type="claim", canonical_content=1, provenance={"activity": "t"}, operation_id="op:mine"
    )
    assert gateway.requests[-1][1]["operation_id"] == "op:mine"
    assert "idempotency_key" not in gateway.requests[-1][1]


async def test_an_unavailable_service_is_tried_again_after_its_retry_after(
    client: AsyncClient, gateway: ScriptedGateway
) -> None:
    gateway.faults.refuse = [error("service_unavailable", 503, **{"Retry-After": "1"})]
    started = time.monotonic()
    await create(client)
    assert 1.0 <= time.monotonic() - started < 20
    assert gateway.executions == 1


async def test_a_service_that_stays_unavailable_is_told_in_the_end(
    client: AsyncClient, gateway: ScriptedGateway
) -> None:
    gateway.faults.refuse = [error("service_unavailable", 503) for _ in range(FAST.attempts)]
    with pytest.raises(ServiceUnavailable):
        await create(client)
    assert len(gateway.requests) == FAST.attempts


async def test_a_long_retry_after_is_not_waited_for(client: AsyncClient, gateway: ScriptedGateway) -> None:
    gateway.faults.refuse = [error("service_unavailable", 503, **{"Retry-After": "3600"})]
    with pytest.raises(ServiceUnavailable) as caught:
        await create(client)
    assert caught.value.retry_after_s == 3600


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [("version_conflict", 409, VersionConflict), ("invalid_request", 400, InvalidRequest)],
)
async def test_other_refusals_are_never_tried_again(
    client: AsyncClient, gateway: ScriptedGateway, code: str, status: int, kind: type[Exception]
) -> None:
    gateway.faults.refuse = [error(code, status)]
    with pytest.raises(kind):
        await create(client)
    assert len(gateway.requests) == 1


async def test_without_any_answer_the_error_names_the_operation(gateway: ScriptedGateway, client: AsyncClient) -> None:
    gateway.faults.drop_after_commit = FAST.attempts
    with pytest.raises(NoAnswer) as caught:
        await create(client)
    assert caught.value.operation == "create"
    assert caught.value.operation_id == gateway.requests[0][1]["operation_id"]
    assert caught.value.idempotency_key == gateway.requests[0][1]["idempotency_key"]
    assert gateway.executions == 1


async def test_a_page_of_a_proxy_is_no_answer_of_the_service(client: AsyncClient, gateway: ScriptedGateway) -> None:
    gateway.faults.refuse = [aiohttp.web.Response(status=status, text="bad gateway") for status in (502, 500)]
    await create(client)
    assert len(gateway.requests) == 3
    gateway.faults.refuse = [aiohttp.web.Response(status=404, text="nothing here")]
    with pytest.raises(ProtocolError):
        await create(client)


async def test_pages_are_walked_to_the_end(client: AsyncClient, gateway: ScriptedGateway) -> None:
    items = [item async for item in client.query_items(scope_id=SCOPE, query={"kind": "structured"}, page_size=3)]
    assert [item.envelope.content for item in items] == list(range(7))
    assert [request["pagination"] for _, request in gateway.requests] == [
        {"limit": 3},
        {"limit": 3, "cursor": "3"},
        {"limit": 3, "cursor": "6"},
    ]


async def test_reads_of_a_session_carry_the_highest_position_seen(gateway: ScriptedGateway) -> None:
    async with AsyncClient(gateway.url, "key", session=True, retry=FAST) as client:
        await client.read(scope_id=SCOPE, object_id="obj:1")
        for _ in range(3):
            await create(client)
        await client.read(scope_id=SCOPE, object_id="obj:1")
        await client.read(scope_id="workspace:other", object_id="obj:1")
        await client.assemble(scope_id=SCOPE, query={"kind": "structured"})
    (context,) = [document for operation, document in gateway.requests if operation == "assemble"]
    assert (context["ledger_epoch"], context["min_sequence"]) == (1, 3)
    reads = [document for operation, document in gateway.requests if operation == "read"]
    assert "min_sequence" not in reads[0]
    assert (reads[1]["ledger_epoch"], reads[1]["min_sequence"]) == (1, 3)
    assert "min_sequence" not in reads[2]


async def test_a_session_learns_once_that_a_restore_ended_its_epoch(gateway: ScriptedGateway) -> None:
    async with AsyncClient(gateway.url, "key", session=True, retry=FAST) as client:
        await create(client)
        gateway.epoch = 2
        with pytest.raises(InvalidRequest) as caught:
            await client.read(scope_id=SCOPE, object_id="obj:1")
        assert caught.value.reason == "position_outdated"
        await client.read(scope_id=SCOPE, object_id="obj:1")
        await client.read(scope_id=SCOPE, object_id="obj:1")
    assert gateway.requests[-1][1]["ledger_epoch"] == 2


def test_pauses_grow_and_stay_below_their_bound() -> None:
    policy = RetryPolicy(base_s=0.1, cap_s=1.0)
    for tries, bound in [(1, 0.1), (2, 0.2), (4, 0.8), (5, 1.0), (50, 1.0)]:
        assert all(0 <= policy.pause_s(tries) <= bound for _ in range(200))
    assert 2.0 <= policy.pause_s(1, 2.0) <= 2.1


async def test_a_closed_client_says_so(client: AsyncClient) -> None:
    await client.aclose()
    await client.aclose()
    with pytest.raises(RuntimeError):
        await create(client)


def test_a_new_transport_opens_nothing() -> None:
    assert Transport("http://127.0.0.1:1", None, FAST, 1.0).base_url == "http://127.0.0.1:1"


async def test_the_synchronous_client_is_the_asynchronous_one(gateway: ScriptedGateway) -> None:
    gateway.append(3)

    def work() -> tuple[list[object], list[int]]:
        with Client(gateway.url, "key", retry=FAST) as client:
            created = client.create(
                scope_id=SCOPE, object_type="claim", canonical_content=[2**70], provenance={"activity": "t"}
            )
            pages = client.query_items(scope_id=SCOPE, query={"kind": "structured"}, page_size=2)
            sequences = []
            for event in client.follow("sub:one"):
                sequences.append(event.sequence)
                if len(sequences) == 4:
                    break
            with pytest.raises(InvalidRequest):
                client.reset(subscription_id="sub:one", after_sequence=0)
            return [created.envelope.content, *[item.envelope.content for item in pages]], sequences

    contents, sequences = await asyncio.to_thread(work)
    assert contents == [[2**70], 0, 1, 2, 3, 4, 5, 6]
    assert sequences == [1, 2, 3, 4]


def test_a_closed_synchronous_client_says_so() -> None:
    client = Client("http://127.0.0.1:1", "key")
    client.close()
    with pytest.raises(RuntimeError):
        client.get_scope(scope_id=SCOPE)


def test_errors_of_a_batch_stand_among_its_outcomes() -> None:
    good = json.dumps(outcome(1, {"canonical_content": 1}))
    bad = '{"error":{"code":"version_conflict","message":"m","retryable":true,"operation_id":"op:1","details":{}}}'
    answer = BatchOutcome.of(f'{{"operation_id":"op:1","results":[{good},{bad}]}}'.encode())
    first, second = answer.results
    assert isinstance(first, Outcome)
    assert isinstance(second, VersionConflict)


@pytest.mark.parametrize("state", ["committed", "failed", "unknown"])
def test_what_became_of_an_operation(state: str) -> None:
    first = {
        "committed": json.dumps(outcome(1, {"canonical_content": 2**80})),
        "failed": '{"error":{"code":"invalid_object","message":"m","retryable":false,"operation_id":"o","details":{}}}',
        "unknown": "null",
    }[state]
    found = Operation.of(f'{{"state":"{state}","operation_id":"op:1","outcome":{first}}}'.encode()).outcome
    if state == "committed":
        assert isinstance(found, Outcome)
        assert found.envelope.content == 2**80
    else:
        assert isinstance(found, InvalidObject) if state == "failed" else found is None
