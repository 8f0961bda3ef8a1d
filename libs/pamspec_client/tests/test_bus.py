"""The client over the bus of the whole product: one line, every method, and what it does about losses."""

import asyncio
import itertools
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import nats as nats_py
import pytest
import pytest_asyncio

from libs.conftest import Product
from libs.pamspec_client.tests.conftest import FAST
from pamspec_cli import development
from pamspec_cli.servers.process import free_port
from pamspec_client import (
    AccessDenied,
    AsyncClient,
    Client,
    ClientError,
    Event,
    InvalidRequest,
    NoAnswer,
    ObjectNotFound,
    Outcome,
    ServiceUnavailable,
    VersionConflict,
    connect,
)
from pamspec_client.bus import STATUS
from pamspec_common.ids import subject_token

_numbers = itertools.count(1)
WAIT_S = 60.0


@pytest_asyncio.fixture
async def memory(product: Product) -> AsyncIterator[AsyncClient]:
    """A client that knows the bus and its key alone."""
    async with connect(product.nats.url, product.key) as made:
        yield made


@pytest_asyncio.fixture
async def scope(memory: AsyncClient) -> str:
    made = await memory.create_scope(scope_id=f"workspace:bus-{next(_numbers)}", scope_kind="workspace")
    return made.scope_id


async def write(memory: AsyncClient, scope: str, content: object, **more: str) -> Outcome:
    return await memory.create(
        scope_id=scope,
        object_type="claim",
        canonical_content=content,
        provenance={"activity": "test"},
        idempotency_key=more.get("key", f"bus-{next(_numbers)}"),
    )


async def take(events: AsyncIterator[Event], count: int) -> list[object]:
    found: list[object] = []
    async with asyncio.timeout(WAIT_S):
        while len(found) < count:
            event = await anext(events)
            found.append(event.object_id)
    return found


async def test_what_is_written_is_read_and_refusals_are_classes(memory: AsyncClient, scope: str) -> None:
    made = await write(memory, scope, {"n": 1}, key="k")
    again = await write(memory, scope, {"n": 1}, key="k")
    assert (again.raw, made.replayed, again.replayed) == (made.raw, False, True)
    assert made.object_id is not None
    assert (await memory.read(scope_id=scope, object_id=made.object_id)).content == {"n": 1}
    with pytest.raises(ObjectNotFound):
        await memory.read(scope_id=scope, object_id="obj:nothing")
    with pytest.raises(VersionConflict):
        await memory.update(
            scope_id=scope,
            object_id=made.object_id,
            expected_version_id="ver:other",
            canonical_content=2,
            provenance={"activity": "test"},
        )
    found = await memory.query(scope_id=scope, query={"kind": "structured", "trust": "working"})
    assert [item.envelope.object_id for item in found.items] == [made.object_id]


async def test_many_calls_at_once_get_each_its_own_answer(memory: AsyncClient, scope: str) -> None:
    made = await asyncio.gather(*(write(memory, scope, number) for number in range(50)))
    assert [one.envelope.content for one in made] == list(range(50))


async def test_events_come_while_somebody_iterates_and_the_subscription_ends_then(
    memory: AsyncClient, scope: str
) -> None:
    made = [(await write(memory, scope, number)).object_id for number in range(3)]
    async with aclosing(memory.events(scope_id=scope, after_sequence=0, filter={"object_type": "claim"})) as events:
        assert await take(events, 3) == made
        more = (await write(memory, scope, 3)).object_id
        assert await take(events, 1) == [more]
        listed = await memory.list_subscriptions(scope_id=scope)
        assert [entry.closed for entry in listed.subscriptions] == [None]
    listed = await memory.list_subscriptions(scope_id=scope)
    assert None not in [entry.closed for entry in listed.subscriptions]


async def test_a_connection_that_is_lost_costs_a_follower_nothing(
    memory: AsyncClient, product: Product, scope: str
) -> None:
    opened = await memory.subscribe(scope_id=scope, after_sequence=0, channel="nats", filter={"object_type": "claim"})
    async with memory.follow(opened.subscription_id) as events:
        first = (await write(memory, scope, 1)).object_id
        assert await take(events, 1) == [first]
        for number in range(2, 5):
            assert memory.bus is not None
            connection = memory.bus._connection
            assert connection is not None
            await connection.client.close()
            made = (await write(memory, scope, number)).object_id
            assert await take(events, 1) == [made]
        assert events.duplicates >= 0
    entry = await memory.get_subscription(opened.subscription_id)
    assert entry.next_after_sequence >= 4


async def test_what_another_agent_sends_to_a_delivery_subject_is_no_event(
    memory: AsyncClient, product: Product, scope: str
) -> None:
    """The server carries an answer to whatever inbox its asker names; it has the header of an answer."""
    opened = await memory.subscribe(scope_id=scope, after_sequence=0, channel="nats", filter={"object_type": "claim"})
    subject = str(opened.subscription["channel_ref"])
    attacker = await nats_py.connect(product.nats.url, token=product.key)
    token = subject_token(development.TENANT_ID, development.ACTOR_ID)
    async with memory.follow(opened.subscription_id) as events:
        one = (await write(memory, scope, 1)).object_id
        assert await take(events, 1) == [one]
        heard = await nats_py.connect(product.nats.url, token=product.key)
        beside = await heard.subscribe(subject)
        await heard.flush()
        await attacker.publish(f"pamspec.op.{token}.list_scopes", b"{}", reply=subject)
        while STATUS not in ((await beside.next_msg(WAIT_S)).headers or {}):
            continue
        two = (await write(memory, scope, 2)).object_id
        assert await take(events, 1) == [two]
        assert events.reconnects == 0
        await heard.close()
    await attacker.close()


async def test_a_credential_that_is_none_is_refused_at_once(product: Product) -> None:
    async with connect(product.nats.url, "pam_nobody_has_this_key") as stranger:
        with pytest.raises(AccessDenied) as refused:
            await stranger.list_scopes()
        assert "nobody" not in str(refused.value)


async def test_without_a_bus_or_a_gateway_the_tries_end(product: Product) -> None:
    async with AsyncClient(f"nats://127.0.0.1:{free_port()}", "pam_some_key_or_other", retry=FAST) as nowhere:
        with pytest.raises(NoAnswer):
            await nowhere.list_scopes()
    async with AsyncClient(product.nats.url, product.key, retry=FAST) as memory:
        await memory.list_scopes()
        assert memory.bus is not None
        assert memory.bus._connection is not None
        memory.bus._connection._token = "a" * 26
        with pytest.raises((NoAnswer, ServiceUnavailable)):
            async with asyncio.timeout(WAIT_S):
                await AsyncClient.call(_short(memory), "list_scopes", {})


def _short(memory: AsyncClient) -> AsyncClient:
    """The same client, which waits for an answer no longer than a second: the bus drops what it may not send."""
    memory.transport._timeout_s = 0.2
    return memory


async def test_what_the_bus_does_not_carry_says_so(memory: AsyncClient, scope: str) -> None:
    with pytest.raises(InvalidRequest, match="larger than"):
        await write(memory, scope, "x" * 5_000_000)
    with pytest.raises(ClientError, match="HTTP alone"):
        async for _ in memory.export(scope_id=scope):
            pass


async def test_the_synchronous_client_goes_over_the_bus_as_well(product: Product, scope: str) -> None:
    def work() -> list[object]:
        with Client(product.nats.url, product.key) as client:
            for number in range(2):
                client.create(
                    scope_id=scope,
                    object_type="claim",
                    canonical_content=number,
                    provenance={"activity": "test"},
                )
            found: list[object] = []
            for event in client.events(scope_id=scope, after_sequence=0, filter={"object_type": "claim"}):
                assert event.object_id is not None
                found.append(client.read(scope_id=scope, object_id=event.object_id).content)
                if len(found) == 2:
                    break
            return found

    assert await asyncio.to_thread(work) == [0, 1]


async def test_the_example_of_the_page_runs_as_printed(memory: AsyncClient, product: Product) -> None:
    await memory.create_scope(scope_id="workspace:default", scope_kind="workspace")
    page = (Path(__file__).resolve().parents[1] / "README.md").read_text(encoding="utf-8")
    example = next(part for part in page.split("```") if "connect(" in part).removeprefix("python\n")
    example = example.replace("nats://127.0.0.1:4222", product.nats.url).replace("pam_...", product.key)
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", example, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(WAIT_S):
        said, _ = await child.communicate()
    assert child.returncode == 0, said.decode()
    assert b"object_created" in said
