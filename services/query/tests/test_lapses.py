"""What has outlived its time is hidden from default retrieval at once: no sweeper runs in any of these tests (M045)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio

from pamspec_common.calls import Answer
from services.query.tests.door import Door
from services.query.tests.writing import PROVENANCE, SCOPE, Writer

NOTES: dict[str, Any] = {"kind": "structured", "trust": "working"}


class Garden:
    """A scope with a policy, and what is found in it."""

    def __init__(self, writer: Writer, door: Door) -> None:
        self.writer, self.door = writer, door
        self._version = 0

    async def govern(self, **retention: Any) -> None:
        """Give the scope retention rules."""
        await self.writer.ok(
            "update_scope",
            policy={"retention": retention},
            expected_policy_version=self._version,
            policy_basis="test",
        )
        self._version += 1

    async def found(self, query: dict[str, Any] = NOTES, **more: Any) -> set[str]:
        """The objects of a query."""
        answer = await self.door.ok("query", scope_id=SCOPE, query=query, **more)
        return {item["envelope"]["object_id"] for item in answer["items"]}

    async def until_hidden(self, object_id: str) -> None:
        """Wait until an object is not found any more."""
        async with asyncio.timeout(60):
            while object_id in await self.found():
                await asyncio.sleep(0.05)


@pytest_asyncio.fixture
async def garden(writer: Writer, door: Door) -> AsyncIterator[Garden]:
    """The scope of one test."""
    yield Garden(writer, door)


async def test_what_outlived_its_time_is_found_by_nobody_who_did_not_ask_for_it(garden: Garden) -> None:
    """By query in any order, by count, by the hint; by its id, by its states and in the past it is there."""
    writer = garden.writer
    before = await writer.create("before the policy", object_id="obj:before")
    changed = await writer.create("version 1", object_id="obj:changed")
    await writer.create("of another type", object_id="obj:other", object_type="observation")
    await writer.change("update", changed, canonical_content="version 2", provenance=PROVENANCE)
    assert await garden.found() == {"obj:before", "obj:changed", "obj:other"}
    position = int((await garden.door("query", scope_id=SCOPE, query=NOTES)).headers["Pamspec-As-Of-Sequence"])
    await garden.govern(default={"ttl_seconds": 1}, by_type={"observation": {"ttl_seconds": 10**9}})
    await garden.until_hidden("obj:changed")
    assert await garden.found() == {"obj:other"}
    assert await garden.found(ordering={"by": [{"field": "committed_at"}]}) == {"obj:other"}
    filtered = {**NOTES, "filters": {"object_type": ["claim"]}}
    assert await garden.found(filtered) == set()
    counted = await garden.door.ok("query", scope_id=SCOPE, query=NOTES, count="exact")
    assert counted["count"] == {"exact": True, "value": 1}
    assert "hint" not in await garden.door.ok("query", scope_id=SCOPE, query=filtered)

    assert await garden.found({"kind": "structured", "trust": "all"}) == {"obj:before", "obj:changed", "obj:other"}
    named = {**NOTES, "filters": {"retention_state": ["retained", "expired"]}}
    assert await garden.found(named) == {"obj:before", "obj:changed", "obj:other"}
    past = {**NOTES, "as_of": {"ledger_sequence": position}}
    assert await garden.found(past) == {"obj:before", "obj:changed", "obj:other"}
    read: Answer = await garden.door("read", scope_id=SCOPE, object_id="obj:before")
    assert read.status == 200
    assert before["envelope"]["retention_state"] == "retained"


async def test_a_longer_time_brings_it_back_and_no_rule_hides_nothing(garden: Garden) -> None:
    await garden.writer.create("old", object_id="obj:old")
    await garden.govern(default={"ttl_seconds": 1})
    await garden.until_hidden("obj:old")
    await garden.govern(default={"ttl_seconds": 10**9})
    assert await garden.found() == {"obj:old"}
    await garden.govern(default={"ttl_seconds": 1}, by_type={"claim": {}})
    assert await garden.found() == {"obj:old"}


@pytest.mark.parametrize("counts", [True, False])
async def test_the_end_of_validity_hides_where_the_policy_says_so(garden: Garden, counts: bool) -> None:
    yesterday, tomorrow = (datetime.now(UTC) + timedelta(days=days) for days in (-1, 1))
    await garden.writer.create("ended", object_id="obj:ended", valid_until=yesterday.isoformat())
    await garden.writer.create("valid", object_id="obj:valid", valid_until=tomorrow.isoformat())
    await garden.writer.create("endless", object_id="obj:endless")
    await garden.govern(default={"valid_until": counts, "ttl_seconds": 10**9})
    hidden = {"obj:ended"} if counts else set()
    assert await garden.found() == {"obj:ended", "obj:valid", "obj:endless"} - hidden
