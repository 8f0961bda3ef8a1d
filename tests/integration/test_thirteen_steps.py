"""The thirteen steps of a deletion over processes: what was forgotten is nowhere and never comes back (S21, P184).

1 write, 2 settle, 3 found, 4 forget, 5 absent, 6 the source again, 7 unless newly asserted, 8 every job, 9 re-index,
10 restart, 11 absent, 12 each derived store by its name, 13 the audit has the event and not the value. Beside each
absence stands a sibling that is still found by the same way.
"""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import pytest

from pamspec_client import AsyncClient, ObjectDeleted
from pamspec_common.surfaces import PAGE_BYTES, SURFACES
from tests.integration.checks import whole
from tests.integration.erasing import in_files, in_stream, in_tables
from tests.integration.harness import Fleet, until

SECRET, SIBLING = "SECRET-417 heron", "SIBLING-418 kestrel"
PATIENCE_S = 60.0

pytestmark = pytest.mark.timeout(600)


async def created(client: AsyncClient, scope: str, text: str, number: int) -> Any:
    """An object of a source event, which is its author's own."""
    return await client.create(
        scope_id=scope,
        object_type="claim",
        canonical_content={"text": text},
        provenance={"activity": "told", "source_ref": f"mail:{text}"},
        source_event={"source": "mail", "id": f"{scope}-{number}"},
        idempotency_key=f"{scope}-{number}",
    )


async def found(fleet: Fleet, scope: str, text: str) -> dict[str, bool]:
    """By each way to find something: whether this text is in the answer."""
    asked: dict[str, tuple[str, dict[str, Any]]] = {
        "structured": ("query", {"query": {"kind": "structured", "trust": "all"}}),
        "export": ("export", {}),
        "lexical": (
            "query",
            {"query": {"kind": "hybrid", "modes": ["lexical"], "text": text, "trust": "all"}},
        ),
    }
    answers: dict[str, bool] = {}
    async with aiohttp.ClientSession() as session:
        for name, (operation, document) in asked.items():
            body = json.dumps({"scope_id": scope, **document})
            url = f"{fleet['gateway'].url}/v1/{operation}"
            async with session.post(url, data=body, headers=fleet.headers) as answer:
                content = await answer.read()
                if answer.status == 200:
                    answers[name] = text.encode() in content
    return answers


async def absent(fleet: Fleet, scope: str) -> None:
    """No way finds the secret, and each that works finds the sibling."""

    gone: dict[str, bool] = {}
    there: dict[str, bool] = {}

    async def so() -> bool:
        gone.update(await found(fleet, scope, SECRET))
        there.update(await found(fleet, scope, SIBLING))
        return len(gone) >= 2 and not any(gone.values()) and all(there.values())

    try:
        await until(so, PATIENCE_S, "the forgotten one is absent and its sibling found", every_s=0.2)
    except AssertionError as error:
        error.add_note(f"forgotten: {gone}; sibling: {there}")
        raise


async def settled(client: AsyncClient, erasure_id: str) -> Any:
    """The receipt, once it is verified that no answer shows what was erased."""
    receipt: Any = None

    async def so() -> bool:
        nonlocal receipt
        receipt = await client.get_erasure(erasure_id)
        return receipt.absent_at is not None

    try:
        await until(so, PATIENCE_S, "every surface is verified", every_s=0.2)
    except AssertionError as error:
        error.add_note(f"open: {[one for one in receipt.surfaces if one.state == 'open']}")
        raise
    return receipt


async def test_the_thirteen_steps(fleet: Fleet) -> None:
    client, scope = fleet.client(), "workspace:thirteen"
    copy = f"{scope}-copy"
    for name in (scope, copy):
        await client.create_scope(scope_id=name)
    # 1-3: written, settled, found by every way that there is.
    secret = await created(client, scope, SECRET, 1)
    sibling = await created(client, scope, SIBLING, 2)
    twin = await client.create(
        scope_id=copy, object_type="claim", canonical_content={"text": SECRET},
        provenance={"activity": "copied", "source_ref": f"mail:{SECRET}"},
    )  # fmt: skip

    ways: dict[str, bool] = {}

    async def settled_in() -> bool:
        ways.update(await found(fleet, scope, SECRET))
        return all(ways.values()) and all((await found(fleet, scope, SIBLING)).values())

    try:
        await until(settled_in, PATIENCE_S, "both are found by every way", every_s=0.2)
    except AssertionError as error:
        error.add_note(f"found: {ways}")
        raise
    # 4: forgotten, with the copies in other scopes.
    erasures = []
    for name, made in ((scope, secret), (copy, twin)):
        subject: Any = {"source_ref": f"mail:{SECRET}"}
        request: Any = {"scope_id": name, "policy_basis": "asked", "subject": subject}
        shown = await client.forget(**request)
        assert shown.counts is not None
        assert (shown.counts.objects, shown.examples) == (1, [made.object_id])
        begun = await client.forget(**request, preview_token=shown.preview_token or "")
        erasures.append(begun.erasure_id or "")
    # 5-7: absent; the source again does not bring it back; only who asserts it anew does.
    receipts = [await settled(client, erasure) for erasure in erasures]
    await absent(fleet, scope)
    with pytest.raises(ObjectDeleted):
        await created(client, scope, SECRET, 1)
    again = await created(client, scope, SIBLING, 2)
    assert again.object_id == sibling.object_id
    await absent(fleet, scope)
    # 8-10: every job has run; what is derived is made again; everything is restarted.
    async with aiohttp.ClientSession() as session:
        for index_id in ("index:lexical",):
            body = json.dumps({"scope_id": scope, "index_id": index_id})
            url = f"{fleet['gateway'].url}/v1/rebuild_index"
            async with session.post(url, data=body, headers=fleet.headers) as answer:
                assert answer.status == 200, await answer.read()
    for instance in ("write", "query", "indexing", "retention_sweeper", "relay"):
        fleet.kill(instance)
        await fleet[instance].start()
    await fleet.ready(within_s=PATIENCE_S)
    # 11-12: absent still, also in each store that is derived, and in every file.
    await absent(fleet, scope)
    texts = [SECRET, SECRET.partition(" ")[0]]
    assert await in_tables(fleet, *texts) == {}
    assert set(await in_tables(fleet, SIBLING)) == {SIBLING}
    assert await in_stream(fleet, texts) == []
    assert in_files(fleet, texts) == []
    with pytest.raises(ObjectDeleted):
        await client.read(scope_id=scope, object_id=secret.object_id or "")
    assert (await client.read(scope_id=scope, object_id=sibling.object_id or "")).content == {"text": SIBLING}
    # 13: what happened stands in the ledger and in the receipt, surface by surface, without the value.
    reply = await client.call("inspect_history", {"scope_id": scope, "object_id": secret.object_id})
    assert [event["event_type"] for event in json.loads(reply.body)["events"]][-1] == "object_deleted"
    for receipt in receipts:
        assert [one.surface for one in receipt.surfaces] == list(SURFACES)
        states = {one.surface: one.state for one in receipt.surfaces}
        assert states["canonical_content"] == states["streams"] == states["idempotency_records"] == "closed"
        assert SECRET not in receipt.raw.decode()
    await whole(fleet, [scope, copy])
    # Who asserts it anew writes a new object: that is no resurrection.
    anew = await client.create(
        scope_id=scope, object_type="claim", canonical_content={"text": SECRET}, provenance={"activity": "told again"}
    )
    assert anew.object_id != secret.object_id
    assert (await client.read(scope_id=scope, object_id=anew.object_id or "")).content == {"text": SECRET}
    await client.delete(
        scope_id=scope,
        object_id=anew.object_id or "",
        expected_version_id=anew.version_id,
        policy_basis="the test ends",
    )


async def test_a_sweeper_that_is_killed_leaves_receipts_that_close(fleet: Fleet) -> None:
    """Wherever it dies, the next one begins anew, and every receipt comes to the same end."""
    client, scope = fleet.client(), "workspace:killed-sweeper"
    await client.create_scope(scope_id=scope)
    erasures = []
    for number in range(40):
        made = await created(client, scope, f"KILLED-{number} stork", number)
        gone = await client.delete(
            scope_id=scope, object_id=made.object_id or "", expected_version_id=made.version_id, policy_basis="asked"
        )
        erasures.append(gone.erasure_id or "")
        if number % 13 == 5:
            fleet.kill("retention_sweeper")
            await fleet["retention_sweeper"].start()
    ends = [await settled(client, erasure) for erasure in erasures]
    states = [{one.surface: one.state for one in receipt.surfaces if one.surface != PAGE_BYTES} for receipt in ends]
    assert all(one == states[0] for one in states)
    assert not [one for receipt in ends for one in receipt.surfaces if one.repairs]
