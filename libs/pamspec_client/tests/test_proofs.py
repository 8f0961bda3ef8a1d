"""Proofs of a running service, checked by the client alone."""

from __future__ import annotations

import asyncio
import itertools
import os
from pathlib import Path

import msgspec
import pytest

from libs.conftest import Product
from pamspec_client import AsyncClient, Client
from pamspec_client.models import Event
from pamspec_client.proofs import Checkpoint, Proof

_numbers = itertools.count(1)


async def written(client: AsyncClient, count: int, scope_id: str | None = None) -> tuple[str, Checkpoint]:
    """A scope with so many more entries, all of them signed."""
    name = scope_id or f"workspace:proofs-{next(_numbers)}"
    if scope_id is None:
        await client.create_scope(scope_id=name, scope_kind="workspace")
    size = 0
    for number in range(count):
        made = await client.create(
            scope_id=name, object_type="claim", canonical_content=number, provenance={"activity": "test"}
        )
        size = made.ledger_sequence
    async with asyncio.timeout(60):
        while True:
            found = (await client.get_checkpoint(scope_id=name)).checkpoint
            if found is not None and found.size == size:
                return name, found
            await asyncio.sleep(0.02)


async def events(client: AsyncClient, scope_id: str) -> list[Event]:
    opened = await client.subscribe(scope_id=scope_id, after_sequence=0)
    page = await client.poll(subscription_id=opened.subscription_id, after_sequence=0, max=1000)
    await client.unsubscribe(subscription_id=opened.subscription_id)
    return [event for event in page.events if event.event_type == "object_created"]


async def test_every_delivered_event_is_proved(agent_client: AsyncClient) -> None:
    scope_id, checkpoint = await written(agent_client, 11)
    keys = (await agent_client.get_checkpoint(scope_id=scope_id)).public_keys
    assert checkpoint.is_signed_by(keys)
    delivered = await events(agent_client, scope_id)
    assert len(delivered) == 11
    for event in delivered:
        proof = await agent_client.prove_ledger(scope_id=scope_id, sequence=event.sequence)
        assert proof.checkpoint.is_signed_by(keys)
        assert proof.includes(event.raw)
        assert not proof.includes(event.raw + b" ")
        assert not proof.includes(delivered[event.sequence % 11].raw)


async def test_an_earlier_checkpoint_is_extended(agent_client: AsyncClient) -> None:
    scope_id, first = await written(agent_client, 5)
    for more in (1, 2, 6):
        _, later = await written(agent_client, more, scope_id)
        proof = await agent_client.prove_ledger(scope_id=scope_id, from_size=first.size)
        assert proof.checkpoint.root == later.root
        assert proof.extends(first)
        assert not proof.extends(later)
        assert not proof.extends(msgspec.structs.replace(first, root="sha256:" + os.urandom(32).hex()))
        assert not proof.extends(msgspec.structs.replace(first, ledger_id="0" * 32))
        assert not proof.includes(b"{}")


async def test_what_is_changed_is_not_signed(agent_client: AsyncClient) -> None:
    scope_id, checkpoint = await written(agent_client, 1)
    keys = (await agent_client.get_checkpoint(scope_id=scope_id)).public_keys
    changed = Checkpoint.of(checkpoint.raw.replace(b'"size":1', b'"size":2'))
    assert changed.size == 2
    assert not changed.is_signed_by(keys)
    assert not checkpoint.is_signed_by({})
    proof = await agent_client.prove_ledger(scope_id=scope_id, sequence=1)
    assert isinstance(Proof.of(proof.raw), Proof)


async def test_the_synchronous_client_verifies(product: Product, agent_client: AsyncClient) -> None:
    scope_id, checkpoint = await written(agent_client, 2)

    def work() -> None:
        with Client(product.url, product.key) as client:
            found = client.verify_ledger(scope_id=scope_id)
            assert (found.ok, found.entries, found.problems) == (True, 2, [])
            assert found.anchors[0]["status"] == "ok"
            assert client.get_checkpoint(scope_id=scope_id).checkpoint is not None
            assert client.prove_ledger(scope_id=scope_id, sequence=2, from_size=1).inclusion is not None

    await asyncio.to_thread(work)
    assert checkpoint.size == 2


async def test_the_example_of_the_documentation_works_as_printed(
    product: Product, agent_client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await agent_client.create_scope(scope_id="workspace:default", scope_kind="workspace")
    page = (Path(__file__).parents[3] / "docs/architecture/proofs.md").read_text()
    example = page.split("```python\n")[1].split("```")[0]
    monkeypatch.setenv("PAMSPEC_URL", product.url)
    monkeypatch.setenv("PAMSPEC_API_KEY", product.key)
    printed: list[tuple[object, ...]] = []
    await asyncio.to_thread(exec, example, {"print": lambda *values: printed.append(values)})
    ((size, signed, included),) = printed
    assert isinstance(size, int)
    assert (signed, included) == (True, True)
