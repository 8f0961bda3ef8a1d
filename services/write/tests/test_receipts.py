"""Every erasure opens a receipt in its own transaction, with sealed needles and without a value (S21, C7)."""

from __future__ import annotations

from typing import Any

import pytest

from pamspec_common.needles import NeedleSeal, needles_of
from services.write.tests.writer import KEY, KID, Document, Writer

SECRET, PAST, KEPT = "SECRET-123 of Ann", "SECRET-000 of Ann", "kept: the depot opens at 6"


@pytest.fixture
def writer(shared: Writer) -> Writer:
    """A scope of its own is all that a test here needs."""
    return shared


async def receipts(writer: Writer) -> list[Any]:
    """The rows of the scope's erasures in ledger order."""
    return await writer.admin.fetch(
        "SELECT * FROM core.erasure WHERE scope_key = $1 ORDER BY position", await writer.scope_key()
    )


def opened(row: Any) -> list[str]:
    """What the scans of an erasure would look for."""
    found = NeedleSeal({KID: KEY}).open(row["needles"], row["seal_salt"])
    assert found is not None
    return found


def changed(of: Document, **more: Any) -> Document:
    return {
        "scope_id": of["scope_id"], "object_id": of["object_id"], "expected_version_id": of["version_id"],
        "policy_basis": "asked", **more,
    }  # fmt: skip


async def test_a_deletion_opens_a_receipt_in_its_transaction(writer: Writer) -> None:
    first = await writer.create({"text": PAST, "kind": KEPT}, provenance={"activity": "a", "source_ref": "mail:Ann.9"})
    second = await writer.update(first, {"text": SECRET, "kind": KEPT})
    gone = await writer.ok("delete", changed(second))
    (row,) = await receipts(writer)
    assert (row["erasure_id"], row["kind"], row["subject_id"]) == (gone["erasure_id"], b"d", first["object_id"])
    assert (row["erased_from"], row["erased_to"], row["closed_at"]) == ([1], [2], None)
    assert row["position"] == (await writer.ledger())[-1].sequence
    assert {SECRET, PAST, KEPT, "mail:Ann.9"} <= set(opened(row))
    whole = repr(dict(row))
    assert [text for text in (SECRET, PAST, KEPT) if text in whole] == []
    # Without the key of the services, or without the erasure's own salt, nothing opens.
    assert NeedleSeal({KID: b"another key"}).open(row["needles"], row["seal_salt"]) is None
    assert NeedleSeal({KID: KEY}).open(row["needles"], b"x" * 32) is None
    # A repetition is no second erasure, and a refusal is none.
    refused = await writer.refused("delete", changed(second), key="again")
    assert refused["code"] == "object_deleted"
    assert len(await receipts(writer)) == 1


async def test_needles_are_only_what_went(writer: Writer) -> None:
    made = await writer.create({"secret": SECRET, "rest": KEPT})
    target = {"paths": ["/secret"]}
    await writer.ok("redact", changed(made, redaction_target=target))
    (row,) = await receipts(writer)
    assert (row["kind"], row["erased_from"], row["erased_to"]) == (b"r", [1], [1])
    assert SECRET in opened(row)
    assert KEPT not in opened(row)


async def test_each_of_a_batch_has_its_receipt_and_one_that_fails_none(writer: Writer) -> None:
    one, two = await writer.create({"a": SECRET}), await writer.create({"a": PAST})
    items = [{"operation": "delete", **changed(one)}, {"operation": "delete", **changed(two)}]
    wrong = {**items[1], "expected_version_id": one["version_id"]}
    await writer.refused("batch", {"scope_id": writer.scope, "items": [items[0], wrong], "atomic": True})
    assert await receipts(writer) == []
    await writer.ok("batch", {"scope_id": writer.scope, "items": items, "atomic": True})
    rows = await receipts(writer)
    assert [row["subject_id"] for row in rows] == [one["object_id"], two["object_id"]]
    assert [SECRET in opened(row) for row in rows] == [True, False]


def test_needles_are_no_words_of_ours() -> None:
    values = [
        b'{"canonical_content":["lifecycle_state","2026-01-01T00:00:00Z","short","12345678901",',
        b'"Ann lives at 9"',
    ]
    assert needles_of(values, [b'{"provenance":{"activity":"observed","source_ref":"mailto:ann@home.example"}}']) == [
        "Ann lives at 9",
        "mailto:ann@home.example",
    ]
    assert needles_of([b'["Ann lives at 9"]'], [], b'{"text":"Ann lives at 9, they say"}') == []
    assert all(len(text) <= 64 for text in needles_of([b'["' + b"A long text " * 900 + b'"]'], []))
