"""Every operation of the write service answers by its contract, and the ledger tells what happened."""

from __future__ import annotations

import pytest

from services.write.tests.writer import PROVENANCE, Writer


@pytest.fixture
def writer(shared: Writer) -> Writer:
    """A scope of its own is all that a test here needs."""
    return shared


async def test_a_history_from_create_to_delete(writer: Writer) -> None:
    made = await writer.create({"text": "one"})
    changed = await writer.update(made, {"text": "two"})
    moved = await writer.ok(
        "transition", writer.change(changed, dimension="lifecycle", target_state="archived", policy_basis="old")
    )
    gone = await writer.delete(moved)
    assert [answer["sequence"] for answer in (made, changed, moved, gone)] == [1, 2, 3, 4]
    assert [answer["ledger_sequence"] for answer in (made, changed, moved, gone)] == [1, 2, 3, 4]
    assert moved["envelope"]["lifecycle_state"] == "archived"
    assert moved["envelope"]["canonical_content"] == {"text": "two"}
    assert gone["envelope"]["canonical_content"] == {"tombstone": True}
    events = [entry.event for entry in await writer.ledger()]
    assert [event["event_type"] for event in events] == [
        "object_created",
        "object_updated",
        "lifecycle_transitioned",
        "object_deleted",
    ]
    assert events[2]["payload"]["from"] == "active"
    await writer.check_scope()


async def test_only_provenance_changes(writer: Writer) -> None:
    made = await writer.create()
    await writer.ok("update", writer.change(made, provenance=PROVENANCE))
    assert [entry.event["event_type"] for entry in await writer.ledger()] == ["object_created", "provenance_updated"]
