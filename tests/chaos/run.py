"""`python -m tests.chaos.run --seconds N --seed N`: a random workload under random faults, and the judgement of it."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, urlsplit

from pamspec_client import AsyncClient, ObjectDeleted, ObjectNotFound, RetryPolicy
from pamspec_client.documents import Expression, FollowChannel
from pamspec_common.strict_json import loads
from tests.chaos import nemesis
from tests.chaos.history import History
from tests.chaos.judging import Entry, Final, judge
from tests.chaos.workload import Workload, ended, token
from tests.integration.checks import drained, whole
from tests.integration.clocks import MovableClock
from tests.integration.harness import PATIENCE, SECOND_DOOR, Fleet, deployed, start_all, until
from tests.integration.wires import Wire

SCALED = {
    "PAMSPEC_LOG_LEVEL": "INFO",
    "PAMSPEC_EMBEDDER": "none",
    "PAMSPEC_PARTITIONS": "2",
    "PAMSPEC_RELAY_LEASE_MS": "1500",
    "PAMSPEC_CHANNEL_STALL_S": "3",
    "PAMSPEC_LEASE_S": "3",
    "PAMSPEC_UPKEEP_INTERVAL_S": "2",
    "PAMSPEC_DRAIN_S": "5",
}
"""Durations of the product, scaled down, so that take-overs happen many times in a short run."""
ONCE = RetryPolicy(attempts=1)
CHANNELS: tuple[FollowChannel, ...] = ("poll", "sse", "websocket", "nats")
EVENTS = ("object_created", "object_updated", "object_deleted")
SETTLES_S = 120.0
SEARCHED = 60
"""So many live and so many deleted objects are looked for in the index."""


@dataclass
class Report:
    """What a run came to."""

    seed: int
    seconds: float
    acknowledged: int = 0
    reads: int = 0
    unknown: int = 0
    refused: int = 0
    delivered: int = 0
    searched: int = 0
    recovered_s: float = 0.0
    """From the last fault to a service that is well."""
    happened: Mapping[str, int] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """For people."""
        faults = ", ".join(f"{name} {count}" for name, count in sorted(self.happened.items()))
        return [
            f"seed {self.seed}, {self.seconds:.0f} s, faults: {faults or 'none'}",
            f"writes acknowledged: {self.acknowledged}, without an answer: {self.unknown}, lost a race: {self.refused}",
            f"reads: {self.reads}, events delivered: {self.delivered}, objects searched for: {self.searched}",
            f"well again {self.recovered_s:.1f} s after the last fault",
            *(f"VIOLATION {one}" for one in self.violations[:50]),
            f"violations: {len(self.violations)}",
        ]


@dataclass
class Follower:
    """What came over one subscription."""

    scope_id: str
    channel: FollowChannel
    subscription_id: str
    received: list[tuple[int, str]] = field(default_factory=list)

    async def run(self, client: AsyncClient) -> None:
        """Receive until cancelled."""
        async with client.follow(self.subscription_id, channel=self.channel) as events:
            async for event in events:
                self.received.append((event.sequence, event.event_id))


async def chaos(seconds: float, seed: int) -> Report:
    """One run on a deployment of its own."""
    with tempfile.TemporaryDirectory(prefix="pamspec-chaos-") as directory:
        clock = MovableClock(Path(directory))
        async with deployed({**SCALED, **clock.variables}) as fleet, _wired(fleet) as wires:
            return await _ordeal(fleet, wires, clock, seconds, seed)


@asynccontextmanager
async def _wired(fleet: Fleet) -> AsyncIterator[dict[str, Wire]]:
    """Write, relay and subscription reach the store and the bus over wires, and there is a second door."""
    postgres, bus = fleet.postgres.address, fleet.nats.address
    assert postgres is not None
    assert bus is not None
    async with AsyncExitStack() as stack:
        wires: dict[str, Wire] = {}
        for service in ("write", "relay", "subscription"):
            to_store = await stack.enter_async_context(Wire.to(f"tcp://{postgres.host}:{postgres.port}"))
            to_bus = await stack.enter_async_context(Wire.to(bus.url))
            wires |= {f"{service}-postgres": to_store, f"{service}-nats": to_bus}
            await fleet[service].stop()
            login = urlsplit(fleet.deployment.addresses.of_role(service))
            place = urlsplit(to_store.url)
            url = f"postgresql://{login.username}:{quote(login.password or '', safe='')}@{place.netloc}{login.path}"
            fleet.add(service, variables={"PAMSPEC_DATABASE_URL": url, "PAMSPEC_NATS_URL": to_bus.url})
            await fleet[service].start()
        write = fleet.add("write", "write-2")
        second = {"PAMSPEC_WRITE_URL": write.url}
        await start_all([write, fleet.add("relay", "relay-2"), fleet.add("gateway", SECOND_DOOR, second)])
        await fleet.ready()
        yield wires


async def _ordeal(fleet: Fleet, wires: dict[str, Wire], clock: MovableClock, seconds: float, seed: int) -> Report:
    patient = fleet.client()
    scopes = [f"scope:chaos-{number}" for number in range(3)]
    for scope_id in scopes:
        await patient.create_scope(scope_id=scope_id, scope_kind="workspace")
    followers, tasks = await _followers(fleet, scopes)
    history = History()
    retries = (PATIENCE, PATIENCE, ONCE)
    doors = ("gateway", SECOND_DOOR)
    sessions = [fleet.client(doors[n % 2], retry=retries[n % 3]) for n in range(9)]
    load = Workload(sessions, scopes, history, seed)
    chance = random.Random(seed)
    evil = nemesis.Nemesis(nemesis.of_fleet(fleet, wires, clock, chance), chance)
    working, plaguing = asyncio.create_task(load.run()), asyncio.create_task(evil.run())
    try:
        await asyncio.wait([working, plaguing, *tasks], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        evil.stopping.set()
        await ended(plaguing, SETTLES_S)
        began = time.monotonic()
        load.stopping = True
        await ended(working, SETTLES_S)
        await fleet.ready(within_s=SETTLES_S)
        recovered_s = time.monotonic() - began
        report = await _judged(fleet, history, scopes, followers, seed, seconds)
    finally:
        for task in (working, plaguing, *tasks):
            task.cancel()
        await asyncio.gather(working, plaguing, *tasks, return_exceptions=True)
    report.recovered_s, report.happened = recovered_s, evil.happened
    return report


async def _followers(fleet: Fleet, scopes: Sequence[str]) -> tuple[list[Follower], list[asyncio.Task[None]]]:
    """One over each channel for every scope."""
    followers, tasks = [], []
    for scope_id in scopes:
        for channel in CHANNELS:
            client = fleet.client()
            made = await client.subscribe(
                scope_id=scope_id, after_sequence=0, filter={"event_classes": list(EVENTS)}, channel=channel
            )
            followers.append(Follower(scope_id, channel, made.subscription_id))
            tasks.append(asyncio.create_task(followers[-1].run(client)))
    return followers, tasks


async def _judged(
    fleet: Fleet, history: History, scopes: Sequence[str], followers: Sequence[Follower], seed: int, seconds: float
) -> Report:
    client = fleet.client()
    report = Report(seed, seconds)
    await drained(fleet, SETTLES_S)
    try:
        await whole(fleet, scopes, within_s=SETTLES_S)
    except AssertionError as error:
        report.violations.append(f"ledger and stream: {error}")
    ledger = await _ledger(fleet, scopes)
    wanted = {scope_id: len(entries) for scope_id, entries in ledger.items()}

    async def all_there() -> bool:
        return all(len(one.received) >= wanted[one.scope_id] for one in followers)

    try:
        await until(all_there, SETTLES_S, "followers have everything")
    except AssertionError as error:
        report.violations.append(str(error))
    finals = {name: await _final(client, scope_id, name) for name, scope_id in history.objects.items()}
    followed = {(one.scope_id, str(one.channel)): one.received for one in followers}
    report.violations += judge(history, ledger, finals, followed)
    report.violations += await _searched(client, history, finals, report)
    report.acknowledged = len(history.writes())
    report.unknown = len(history.unknown())
    report.reads = len(history.done) - report.acknowledged - report.unknown
    report.refused = sum(history.refused.values())
    report.delivered = sum(len(one.received) for one in followers)
    return report


async def _ledger(fleet: Fleet, scopes: Sequence[str]) -> dict[str, list[Entry]]:
    """The entries about objects, by scope, from the store itself."""
    found: dict[str, list[Entry]] = defaultdict(list, {scope_id: [] for scope_id in scopes})
    async with fleet.database() as connection:
        rows = await connection.fetch(
            "SELECT scope_id, event FROM core.ledger JOIN core.scope USING (scope_key)"
            " WHERE scope_id = ANY($1) AND event_type = ANY($2) ORDER BY scope_key, sequence",
            list(scopes),
            list(EVENTS),
        )
    for scope_id, text in rows:
        event = loads(text)
        entry = Entry(event["sequence"], event["event_id"], event["event_type"], event["object_id"])
        found[scope_id].append(entry)
    return found


async def _final(client: AsyncClient, scope_id: str, object_id: str) -> Final:
    try:
        found = await client.read(scope_id=scope_id, object_id=object_id)
    except ObjectNotFound:
        return Final(0, -1, deleted=False)
    except ObjectDeleted:
        history = await client.inspect_history(scope_id=scope_id, object_id=object_id)
        return Final(max(one.sequence for one in history.versions), -1, deleted=True)
    content = found.content
    assert isinstance(content, dict)
    return Final(found.sequence, content["count"], deleted=False)


async def _searched(client: AsyncClient, history: History, finals: Mapping[str, Final], report: Report) -> list[str]:
    """What is alive is found by its word, and what was deleted is not."""
    alive = [name for name, final in finals.items() if final.version and not final.deleted][-SEARCHED:]
    gone = [name for name, final in finals.items() if final.deleted][-SEARCHED:]
    late = set(alive)

    async def all_found() -> bool:
        for name in list(late):
            if await _found(client, history.objects[name], name):
                late.discard(name)
        return not late

    report.searched = len(alive) + len(gone)
    violations: list[str] = []
    try:
        await until(all_found, SETTLES_S, "the index has everything")
    except AssertionError:
        violations += [f"{name} is not found" for name in late]
    for name in gone:
        if await _found(client, history.objects[name], name):
            violations.append(f"{name} is found after its deletion")
    return violations


async def _found(client: AsyncClient, scope_id: str, object_id: str) -> bool:
    query: Expression = {"kind": "hybrid", "text": token(object_id), "modes": ["lexical"], "trust": "all"}
    page = await client.query(scope_id=scope_id, query=query)
    return object_id in {item.envelope.object_id for item in page.items}


def main() -> int:
    """1 when a violation was found."""
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None, help="another one each time when none is given")
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(1_000_000)
    report = asyncio.run(chaos(arguments.seconds, seed))
    print("\n".join(report.lines()))
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
