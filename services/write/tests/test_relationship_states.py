"""States of relationships, and races for them."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import orjson
import pytest

from services.write.tests.test_faults import waiting_backends
from services.write.tests.test_states import BY_POLICY, OPEN
from services.write.tests.writer import PROVENANCE, Document, Writer, edge, move


@pytest.fixture
def writer(shared: Writer) -> Writer:
    """A scope of its own is all that a test here needs."""
    return shared


EDGES = [
    (dimension, current, target) for dimension in OPEN for current in OPEN[dimension] for target in OPEN[dimension]
]


@pytest.mark.parametrize("dimension", ["lifecycle", "validation"])
async def test_every_edge_of_a_relationship(writer: Writer, dimension: str) -> None:
    """A relationship moves as an object does: each open edge makes a version, each other one is refused."""
    for current, target in itertools.product(OPEN[dimension], OPEN[dimension]):
        ends = await writer.create(1), await writer.create(2)
        states: Document = {f"{dimension}_state": current}
        made = await writer.relate(*ends, **states)
        if target in OPEN[dimension][current]:
            moved = await writer.ok("transition", move(writer, made, dimension, target))
            assert moved["envelope"][f"{dimension}_state"] == target
            event = (await writer.ledger())[-1].event
            assert (event["event_type"], event["relationship_id"]) == (
                f"{dimension}_transitioned",
                made["relationship_id"],
            )
            assert (event["payload"]["from"], event["payload"]["to"]) == (current, target)
            assert event["payload"]["relationship_type"] == "supports"
            continue
        error = await writer.refused("transition", move(writer, made, dimension, target))
        expected = "needs_policy" if (dimension, current, target) in BY_POLICY else "no_such_edge"
        assert (error["code"], error["details"]["reason"]) == ("invalid_state_transition", expected)
    await writer.check_scope()


async def test_states_of_other_dimensions_are_refused(writer: Writer) -> None:
    made = await writer.relate(await writer.create(1), await writer.create(2))
    for dimension, targets in OPEN.items():
        for other in OPEN:
            for target in OPEN[other]:
                if other == dimension or target in targets:
                    continue
                if dimension == "availability" and target in ("redacted", "partially_redacted"):
                    continue
                error = await writer.refused("transition", move(writer, made, dimension, target))
                assert error["code"] == "invalid_state_transition", (dimension, target)
    assert await writer.count("core.version_span", "kind = 'r'") == 1


async def test_retention_keeps_a_relationship(writer: Writer) -> None:
    made = await writer.relate(await writer.create(1), await writer.create(2))
    held = await writer.ok("transition", move(writer, made, "retention", "legal_hold"))
    assert (await writer.refused("delete", writer.change(held, policy_basis="p")))["code"] == "legal_hold"
    released = await writer.ok("transition", move(writer, held, "retention", "pending_deletion"))
    change = writer.change(released, canonical_content=1, provenance=PROVENANCE)
    assert (await writer.refused("relate", change))["code"] == "retention_restriction"
    deleted = await writer.ok("transition", move(writer, released, "availability", "deleted"))
    assert deleted["envelope"]["availability_state"] == "deleted"
    for dimension, target in (("lifecycle", "archived"), ("availability", "deleted")):
        assert (await writer.refused("transition", move(writer, deleted, dimension, target)))[
            "code"
        ] == "object_deleted"
    await writer.check_scope()


async def test_twenty_clients_with_one_expected_version_have_one_winner(writers: tuple[Writer, Writer]) -> None:
    writer = writers[0]
    made = await writer.relate(await writer.create(1), await writer.create(2))
    answers = await asyncio.gather(
        *(
            writers[n % 2].call("relate", writer.change(made, canonical_content=n, provenance=PROVENANCE))
            for n in range(20)
        )
    )
    assert sorted(answer.status for answer in answers) == [200] + [409] * 19
    won = next(orjson.loads(answer.body) for answer in answers if answer.status == 200)
    for answer in answers:
        if answer.status == 409:
            error = orjson.loads(answer.body)["error"]
            assert (error["code"], error["details"]["current_version_id"]) == ("version_conflict", won["version_id"])
    await writer.check_scope()


async def test_twenty_clients_with_the_same_edge_have_one_winner(writers: tuple[Writer, Writer]) -> None:
    writer = writers[0]
    one, two = await writer.create(1), await writer.create(2)
    answers = await asyncio.gather(*(writers[n % 2].call("relate", edge(one, two)) for n in range(20)))
    assert sorted(answer.status for answer in answers) == [201] + [409] * 19
    codes = {orjson.loads(answer.body)["error"]["code"] for answer in answers if answer.status == 409}
    assert codes == {"relationship_conflict"}
    assert await writer.count("core.object_head", "kind = 'r'") == 1
    await writer.check_scope()


async def test_an_end_deleted_between_prefetch_and_lock_is_seen(writers: tuple[Writer, Writer], hold: Any) -> None:
    writer = writers[0]
    one, two = await writer.create(1), await writer.create(2)
    async with hold(await writer.scope_key()):
        deleting = asyncio.create_task(writers[0].call("delete", writer.change(two, policy_basis="p")))
        await waiting_backends(writer, 1)
        relating = asyncio.create_task(writers[1].call("relate", edge(one, two)))
        await waiting_backends(writer, 2)
    assert (await deleting).status == 200
    answer = await relating
    assert orjson.loads(answer.body)["error"]["code"] == "object_deleted"
    await writer.check_scope()
