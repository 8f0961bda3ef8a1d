"""The same writes over two doors and two write processes: one outcome each, whatever is lost on the way."""

import asyncio
from collections.abc import Iterator

import aiohttp

from pamspec_client import Outcome, VersionConflict
from pamspec_client.requests import CreateItem
from tests.integration.checks import whole
from tests.integration.harness import PATIENCE, SECOND_DOOR, Fleet
from tests.integration.load import make_scopes
from tests.integration.wires import AnswerLosingWire


async def test_of_updates_that_follow_one_version_one_wins_wherever_it_is_decided(fleet: Fleet) -> None:
    """M020."""
    clients = [fleet.client(), fleet.client(SECOND_DOOR)]
    (scope_id,) = await make_scopes(clients[0], "one-scope", 1)
    current = await clients[0].create(
        scope_id=scope_id, object_type="claim", canonical_content=0, provenance={"activity": "test"}
    )
    for number in range(25):
        tries = [
            clients[index % 2].update(
                scope_id=scope_id,
                object_id=str(current.object_id),
                expected_version_id=current.version_id,
                canonical_content={"round": number, "by": index},
                provenance={"activity": "test"},
            )
            for index in range(8)
        ]
        outcomes = await asyncio.gather(*tries, return_exceptions=True)
        won = [outcome for outcome in outcomes if isinstance(outcome, Outcome)]
        lost = [outcome for outcome in outcomes if isinstance(outcome, VersionConflict)]
        assert (len(won), len(lost)) == (1, 7), outcomes
        assert {error.details["current_version_id"] for error in lost} == {won[0].version_id}
        assert won[0].sequence == current.sequence + 1
        current = won[0]
    await whole(fleet, [scope_id])


async def test_crossing_sets_of_scopes_do_not_deadlock(fleet: Fleet) -> None:
    clients = [fleet.client(), fleet.client(SECOND_DOOR)]
    scopes = await make_scopes(clients[0], "crossing", 6)

    async def cross(number: int) -> None:
        order = scopes if number % 2 else scopes[::-1]
        start = number % len(scopes)
        chosen = (order * 2)[start : start + 4]
        items: list[CreateItem] = [_item(scope_id, number) for scope_id in chosen]
        outcome = await clients[number % 2].batch(scope_id=chosen[0], items=[*items], atomic=bool(number % 3))
        assert all(isinstance(result, Outcome) for result in outcome.results), outcome.results

    async with asyncio.timeout(30):
        await asyncio.gather(*(cross(number) for number in range(240)))
    found = await whole(fleet, scopes)
    assert sum(len(found.created[scope_id]) for scope_id in scopes) == 240 * 4
    assert "deadlock detected" not in fleet.postgres.process.log.read_text(encoding="utf-8")


def _item(scope_id: str, number: int) -> CreateItem:
    return {
        "operation": "create",
        "scope_id": scope_id,
        "object_type": "observation",
        "canonical_content": number,
        "provenance": {"activity": "test"},
    }


async def test_fifty_equal_creates_have_fifty_equal_answers(fleet: Fleet) -> None:
    """M017."""
    (scope_id,) = await make_scopes(fleet.client(), "fifty", 1)
    document = {
        "scope_id": scope_id,
        "object_type": "observation",
        "canonical_content": {"text": "once"},
        "provenance": {"activity": "test"},
        "idempotency_key": "the-same",
    }
    async with aiohttp.ClientSession(headers=fleet.headers) as session:

        async def send(number: int) -> tuple[int, bytes, str | None]:
            door = fleet["gateway" if number % 2 else SECOND_DOOR]
            async with session.post(f"{door.url}/v1/create", json=document) as answer:
                return answer.status, await answer.read(), answer.headers.get("Idempotency-Replayed")

        answers = await asyncio.gather(*(send(number) for number in range(50)))
    assert {status for status, _, _ in answers} == {201}
    assert len({body for _, body, _ in answers}) == 1
    assert [replayed for _, _, replayed in answers].count("true") == 49
    found = await whole(fleet, [scope_id])
    assert len(found.created[scope_id]) == 1


async def test_a_killed_write_under_repeated_keys_makes_no_duplicate(fleet: Fleet) -> None:
    """M019: 50 connections, each key three times, one of two write processes killed half-way."""
    clients = [fleet.client(), fleet.client(SECOND_DOOR)]
    (scope_id,) = await make_scopes(clients[0], "repeated", 1)
    keys = [f"key-{number}" for number in range(400)]
    answers: dict[str, set[tuple[str, str]]] = {key: set() for key in keys}
    half = asyncio.Event()

    async def send(connection: int, work: Iterator[tuple[int, str]]) -> None:
        for copy, key in work:
            outcome = await clients[(connection + copy) % 2].create(
                scope_id=scope_id,
                object_type="observation",
                canonical_content={"key": key},
                provenance={"activity": "test"},
                idempotency_key=key,
            )
            answers[key].add((str(outcome.object_id), outcome.event_id))
            if key == keys[200]:
                half.set()

    work = iter([(copy, key) for key in keys for copy in range(3)])
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for connection in range(50):
            group.create_task(send(connection, work))
        await half.wait()
        fleet.kill("write-2")
        await fleet["write-2"].start()
    assert all(len(found) == 1 for found in answers.values()), "every copy has the answer of the first"
    found = await whole(fleet, [scope_id])
    assert len(found.created[scope_id]) == len(keys)


async def test_a_lost_answer_is_given_again_to_the_retry(fleet: Fleet) -> None:
    """M028: the write is committed, its answer dropped on the way, three times over."""
    (scope_id,) = await make_scopes(fleet.client(), "lost-answer", 1)
    async with AnswerLosingWire.to(fleet["gateway"].url, losses=3) as wire:
        client = fleet.client(url=wire.url, retry=PATIENCE)
        outcome = await client.create(
            scope_id=scope_id,
            object_type="observation",
            canonical_content={"text": "once"},
            provenance={"activity": "test"},
        )
        assert wire.lost == 3
    assert outcome.replayed
    found = await whole(fleet, [scope_id])
    assert [entry.event_id for entry in found.created[scope_id]] == [outcome.event_id]
    operation = await fleet.client().get_operation(scope_id=scope_id, operation_id=outcome.operation_id)
    assert isinstance(operation.outcome, Outcome)
    assert operation.outcome.raw == outcome.raw
