"""An old version comes back as a new one: update with restore_version_id."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from services.write.tests.test_faults import waiting_backends
from services.write.tests.writer import PROVENANCE, Document, Writer, claim


@pytest.fixture
def writer(shared: Writer) -> Writer:
    """A scope of its own is all that a test here needs."""
    return shared


def restore(writer: Writer, of: Document, version: Document, **more: Any) -> Document:
    """An update that restores a version after that answer."""
    return writer.change(of, restore_version_id=version["version_id"], provenance=PROVENANCE, **more)


async def test_content_and_schema_come_back(writer: Writer) -> None:
    first = await writer.create({"n": 1.50, "nul": "\x00"}, schema_id="https://a.example/1")
    second = await writer.update(first, "two", schema_id="https://a.example/2", valid_from="2026-01-01T00:00:00Z")
    third = await writer.ok("update", restore(writer, second, first))
    envelope = third["envelope"]
    assert third["sequence"] == 3
    assert (envelope["canonical_content"], envelope["schema_id"]) == ({"n": 1.50, "nul": "\x00"}, "https://a.example/1")
    assert envelope["valid_from"] == "2026-01-01T00:00:00.000000Z"
    assert envelope["provenance"]["transformation_parent"] == first["version_id"]
    event = (await writer.ledger())[-1].event
    assert event["event_type"] == "object_updated"
    contents = await writer.admin.fetch(
        "SELECT s.content, p.content AS stored FROM core.version_span s JOIN core.version_private p "
        "ON p.scope_key = s.scope_key AND p.ledger_seq = s.from_seq WHERE s.scope_key = $1 ORDER BY s.from_seq",
        await writer.scope_key(),
    )
    assert tuple(contents[0]) == tuple(contents[2])
    without = await writer.update(third, "x")
    plain = await writer.create("plain")
    plain2 = await writer.update(plain, "more", schema_id="https://a.example/2")
    assert "schema_id" not in (await writer.ok("update", restore(writer, plain2, plain)))["envelope"]
    own = {"activity": "restored", "transformation_parent": "urn:elsewhere"}
    again = await writer.ok("update", restore(writer, without, second) | {"provenance": own})
    assert again["envelope"]["canonical_content"] == "two"
    assert again["envelope"]["provenance"]["transformation_parent"] == "urn:elsewhere"
    await writer.check_scope()


async def test_the_current_version_can_be_named(writer: Writer) -> None:
    made = await writer.create("one")
    again = await writer.ok("update", restore(writer, made, made))
    assert (again["sequence"], again["envelope"]["canonical_content"]) == (2, "one")


async def test_only_versions_of_the_object_itself(writer: Writer) -> None:
    made, other = await writer.create("one"), await writer.create("other")
    elsewhere = await writer.ok("create", claim(await writer.new_scope(), "there"))
    edge = await writer.relate(made, other)
    errors = [
        await writer.refused("update", restore(writer, made, version))
        for version in (other, elsewhere, edge, {"version_id": "ver:missing"})
    ]
    for error in errors:
        assert (error["code"], error["details"]) == ("object_not_found", {"field": "restore_version_id"})
        assert {**error, "operation_id": ""} == {**errors[0], "operation_id": ""}


async def test_content_or_a_version_to_take_it_from(writer: Writer) -> None:
    made = await writer.create("one")
    error = await writer.refused("update", restore(writer, made, made, canonical_content=None))
    assert (error["code"], error["details"]) == ("invalid_request", {"field": "restore_version_id"})


async def test_what_is_erased_stays_erased(writer: Writer) -> None:
    first = await writer.create({"keep": 1, "secret": 2})
    second = await writer.update(first, {"keep": 1, "secret": 3})
    third = await writer.update(second, {"keep": 1})
    chosen = writer.change(
        third, redaction_target={"whole": True}, version_ids=[first["version_id"]], policy_basis="asked"
    )
    fourth = await writer.ok("redact", chosen)
    error = await writer.refused("update", restore(writer, fourth, first))
    assert (error["code"], error["details"]) == ("object_redacted", {"field": "restore_version_id"})
    fifth = await writer.ok("update", restore(writer, fourth, second))
    assert fifth["envelope"]["canonical_content"] == {"keep": 1, "secret": 3}
    gone = await writer.ok(
        "redact", writer.change(fifth, redaction_target={"paths": ["/secret"]}, policy_basis="asked")
    )
    assert (await writer.refused("update", restore(writer, gone, second)))["code"] == "object_redacted"
    back = await writer.ok("update", restore(writer, gone, gone))
    assert back["envelope"]["canonical_content"] == gone["envelope"]["canonical_content"]
    deleted = await writer.delete(back)
    assert (await writer.refused("update", restore(writer, deleted, second)))["code"] == "object_deleted"
    await writer.check_scope()


async def test_a_redaction_of_parts_is_not_undone_by_a_version_that_has_them(writer: Writer) -> None:
    first = await writer.create({"keep": 1, "secret": 2})
    second = await writer.update(first, {"keep": 2, "secret": 2})
    third = await writer.ok(
        "redact",
        writer.change(
            second,
            redaction_target={"paths": ["/secret"]},
            version_ids=[second["version_id"]],
            policy_basis="asked",
        ),
    )
    assert third["envelope"]["availability_state"] == "partially_redacted"
    assert (await writer.refused("update", restore(writer, third, first)))["code"] == "object_redacted"


async def test_one_batch_erases_and_does_not_restore(writer: Writer) -> None:
    first = await writer.create("SECRET")
    second = await writer.update(first, "next")
    items = [
        {
            "operation": "redact",
            **writer.change(
                second, redaction_target={"whole": True}, version_ids=[first["version_id"]], policy_basis="asked"
            ),
        }
    ]
    redacted = (await writer.ok("batch", {"scope_id": writer.scope, "items": items}))["results"][0]
    assert (await writer.refused("update", restore(writer, redacted, first)))["code"] == "object_redacted"


async def test_a_version_erased_between_prefetch_and_lock_is_not_restored(
    writers: tuple[Writer, Writer], hold: Any
) -> None:
    """Both wait for the lock in one group or two: the restore never brings back what the redaction took."""
    writer = writers[0]
    first = await writer.create("SECRET")
    second = await writer.update(first, "next")
    redaction = writer.change(
        second, redaction_target={"whole": True}, version_ids=[first["version_id"]], policy_basis="asked"
    )
    async with hold(await writer.scope_key()):
        redacting = asyncio.create_task(writers[0].call("redact", redaction))
        await waiting_backends(writer, 1)
        restoring = asyncio.create_task(writers[1].call("update", restore(writer, second, first)))
        await waiting_backends(writer, 2)
    redacted = await redacting
    assert redacted.status == 200
    assert orjson.loads((await restoring).body)["error"]["code"] == "version_conflict"
    rest = restore(writer, orjson.loads(redacted.body), first)
    assert (await writer.refused("update", rest))["code"] == "object_redacted"


async def test_a_restore_is_repeated_and_bound_to_its_source_event(writer: Writer) -> None:
    first = await writer.create("one")
    second = await writer.update(first, "two")
    document = restore(writer, second, first, source_event={"source": "s", "id": "1"})
    answer = await writer.call("update", document, key="k")
    assert (await writer.call("update", document, key="k")).body == answer.body
    other = {**document, "restore_version_id": second["version_id"]}
    assert (await writer.refused("update", other, key="k"))["code"] == "duplicate_operation"
    assert (await writer.refused("update", other))["code"] == "duplicate_operation"
