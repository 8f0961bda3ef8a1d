"""Writers at a pace that have every write acknowledged, and followers that are compared with the ledger."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Any

from pamspec_cli.demo.following import Acknowledged, Follower
from pamspec_cli.demo.run import Pace
from pamspec_client import AsyncClient
from pamspec_client.documents import FollowChannel
from pamspec_client.requests import BatchItem, CreateItem, CreateRequest
from tests.integration.checks import Entry, Whole, whole
from tests.integration.harness import Fleet

ALL_CHANNELS: tuple[FollowChannel, ...] = ("poll", "sse", "websocket", "nats")


class Load:
    """Writers that take the next write from one queue, each with a client of its own choice.

    Everything that was acknowledged is in `acknowledged`, by scope, in the order of the answers.
    """

    def __init__(
        self,
        clients: Sequence[AsyncClient],
        writes: Iterable[CreateRequest],
        *,
        writers: int = 8,
        per_second: float = 0,
    ) -> None:
        self.clients = list(clients)
        self.acknowledged: dict[str, list[Acknowledged]] = {}
        self.done = 0
        self.replayed = 0
        self.slowest_s = 0.0
        self._writes = iter(writes)
        self._writers, self._pace = writers, Pace(per_second)
        self._stopping = self._ended = False
        self._moved = asyncio.Event()

    async def run(self) -> None:
        """Write until there is nothing more or `stop` was called; raises what a write was refused with."""
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(self._writers):
                    group.create_task(self._write(number))
        finally:
            self._ended = True
            self._moved.set()

    def stop(self) -> None:
        """Finish what is under way, then end."""
        self._stopping = True

    async def reached(self, wanted: int) -> None:
        """Returns when so many writes were acknowledged; AssertionError when the load ends before."""
        while self.done < wanted:
            assert not self._ended, f"the load ended after {self.done} writes"
            self._moved.clear()
            await self._moved.wait()

    async def more(self, further: int) -> None:
        """Returns when so many further writes were acknowledged."""
        await self.reached(self.done + further)

    async def _write(self, number: int) -> None:
        loop = asyncio.get_running_loop()
        while not self._stopping and (request := next(self._writes, None)) is not None:
            await self._pace.wait()
            began = loop.time()
            outcome = await self.clients[number % len(self.clients)].create(**request)
            self.slowest_s = max(self.slowest_s, loop.time() - began)
            self.replayed += outcome.replayed
            entry = Acknowledged(outcome.event_id, outcome.ledger_sequence)
            self.acknowledged.setdefault(request["scope_id"], []).append(entry)
            self.done += 1
            self._moved.set()


@asynccontextmanager
async def under_load(load: Load, *, warm: int = 20, to_end: bool = False) -> AsyncIterator[Load]:
    """The block runs while the load does, from its first answers on; at the end every write was acknowledged.

    With `to_end` the load goes on until there is nothing more to write.
    """
    running = asyncio.create_task(load.run())
    try:
        await load.reached(warm)
        yield load
        if not to_end:
            load.stop()
        async with asyncio.timeout(120):
            await running
    except BaseException as error:
        if running.done() and not running.cancelled() and (refused := running.exception()) is not None:
            raise refused from error
        raise
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@asynccontextmanager
async def ordeal(
    fleet: Fleet,
    name: str,
    *,
    gateways: Sequence[str] = ("gateway",),
    scopes: int = 2,
    writers: int = 8,
    per_second: float = 150.0,
    channels: Sequence[FollowChannel] = ALL_CHANNELS,
) -> AsyncIterator[Load]:
    """Load and followers around a fault; afterwards everything is where it belongs, once and in order."""
    clients = [fleet.client(gateway) for gateway in gateways]
    names = await make_scopes(clients[0], name, scopes)
    load = Load(clients, notes(names, name), writers=writers, per_second=per_second)
    async with followed(lambda number: clients[number % len(clients)], names, channels) as followers:
        async with under_load(load):
            yield load
        found = await whole(fleet, names)
        await followers.caught_up(load)
    expect_acknowledged(load, found)
    followers.expect(found)


def expect_acknowledged(load: Load, found: Whole) -> None:
    """The ledger of each scope holds what was acknowledged, each once, and nothing else."""
    for scope_id, acknowledged in load.acknowledged.items():
        entries = sorted(Entry(entry.sequence, entry.event_id) for entry in acknowledged)
        assert entries == found.created[scope_id], f"{scope_id}: {len(entries)} acknowledged, not what the ledger has"


def notes(scopes: Sequence[str], prefix: str, *, size: int = 0) -> Iterator[CreateRequest]:
    """Endless small observations, over these scopes in turn; the key of each is its number."""
    for number in count():
        yield {
            "scope_id": scopes[number % len(scopes)],
            "object_type": "observation",
            "canonical_content": {"number": number, "text": "x" * size},
            "provenance": {"activity": "test"},
            "idempotency_key": f"{prefix}-{number}",
        }


def items(writes: Iterator[CreateRequest], number: int) -> list[BatchItem]:
    """The next writes, as items of a batch."""
    found: list[BatchItem] = []
    for request in islice(writes, number):
        item: CreateItem = {"operation": "create", **request}
        found.append(item)
    return found


async def make_scopes(client: AsyncClient, prefix: str, number: int) -> list[str]:
    """New scopes."""
    scopes = [f"scope:{prefix}-{index}" for index in range(number)]
    for scope_id in scopes:
        await client.create_scope(scope_id=scope_id, scope_kind="workspace")
    return scopes


@dataclass
class Followers:
    """Followers of every scope over every channel."""

    all: list[Follower] = field(default_factory=list)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def expect(self, whole: Whole) -> None:
        """Each received exactly the created objects of its scope, in ledger order, and nothing else."""
        for follower in self.all:
            received = [Entry(sequence, event_id) for event_id, sequence in follower.received]
            assert received == whole.created[follower.scope_id], _difference(follower, whole)

    async def caught_up(self, load: Load, within_s: float = 60.0) -> None:
        """Every follower has every acknowledged write."""
        has = [follower.has(load.acknowledged.get(follower.scope_id, []), within_s) for follower in self.all]
        waiting = asyncio.gather(*has)
        await _or_end(self.tasks, waiting)
        late = [f for f, there in zip(self.all, waiting.result(), strict=True) if not there]
        assert not late, "\n".join(_behind(follower, load.acknowledged.get(follower.scope_id, [])) for follower in late)


async def _or_end(tasks: Sequence[asyncio.Task[None]], waiting: "asyncio.Future[list[bool]]") -> None:
    """Wait, unless a follower fails first."""
    watched: list[asyncio.Future[Any]] = [waiting, *tasks]
    await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        if task.done():
            waiting.cancel()
            task.result()
    await waiting


@asynccontextmanager
async def followed(
    client: Callable[[int], AsyncClient], scopes: Sequence[str], channels: Sequence[FollowChannel] = ALL_CHANNELS
) -> AsyncIterator[Followers]:
    """Followers of every scope over every channel, which resume by themselves; unsubscribed at the end."""
    followers = Followers()
    owners = []
    for scope_id in scopes:
        for number, channel in enumerate(channels):
            follower, owner = Follower(scope_id, channel), client(number)
            await follower.open(owner)
            followers.all.append(follower)
            owners.append(owner)
            followers.tasks.append(asyncio.create_task(follower.run(owner, lambda _, __: None)))
    try:
        yield followers
    finally:
        for task in followers.tasks:
            task.cancel()
        await asyncio.gather(*followers.tasks, return_exceptions=True)
    for follower, owner in zip(followers.all, owners, strict=True):
        await owner.unsubscribe(subscription_id=follower.subscription_id)


def _difference(follower: Follower, whole: Whole) -> str:
    received, wanted = set(follower.received), {(e.event_id, e.sequence) for e in whole.created[follower.scope_id]}
    missing = sorted(sequence for _, sequence in wanted - received)
    others = sorted(sequence for _, sequence in received - wanted)
    return (
        f"{follower.channel} of {follower.scope_id}: {len(follower.received)} received of {len(wanted)}, missing"
        f" {missing[:20]}, others {others[:20]}, {len(follower.received) - len(received)} twice"
    )


def _behind(follower: Follower, wanted: Sequence[Acknowledged]) -> str:
    ids = {event_id for event_id, _ in follower.received}
    missing = sorted(entry.sequence for entry in wanted if entry.event_id not in ids)
    return f"{follower.channel} of {follower.scope_id} lacks {len(missing)} of {len(wanted)}: {missing[:20]}"
