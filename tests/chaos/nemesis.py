"""What goes wrong, one thing or two at a time, each for a while: crashes, hangs, bad wires, full disks, clocks."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import shutil
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psutil

from pamspec_cli.servers.process import ServerError
from tests.integration.clocks import MovableClock
from tests.integration.harness import Fleet
from tests.integration.wires import Wire

Fault = Callable[[], AbstractAsyncContextManager[None]]
"""Goes wrong when it is entered, and is put right when it is left."""

STARTS_S = 120.0
JUMPS_S = (-7200, -5, 30, 3600)
"""Of the clock of all services."""
FULL_AT_BYTES = 64 * 1024
"""No file of the store grows beyond this on a full disk."""
NATS_FULL_AT_BYTES = 16 * 1024
"""All that the bus may store then."""


@dataclass
class Nemesis:
    """Chooses among faults by the name of what they concern; what is in trouble already is left alone."""

    faults: Mapping[tuple[str, str], Fault]
    """By what is concerned and how."""
    chance: random.Random
    longest_s: float = 2.0
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    happened: Counter[str] = field(default_factory=Counter)
    _in_trouble: set[str] = field(default_factory=set)

    async def run(self, at_once: int = 2) -> None:
        """Until `stopping`; afterwards everything is put right."""
        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(self._plague())

    async def _plague(self) -> None:
        while not await self._stopped(self.chance.uniform(0.2, 1.5)):
            victim = self.chance.choice(sorted({one for one, _ in self.faults} - self._in_trouble))
            how = self.chance.choice([how for one, how in self.faults if one == victim])
            self._in_trouble.add(victim)
            async with self.faults[victim, how]():
                self.happened[f"{how} {victim}"] += 1
                await self._stopped(self.chance.uniform(0.2, self.longest_s))
            self._in_trouble.discard(victim)

    async def _stopped(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.stopping.wait()
        return self.stopping.is_set()


def of_fleet(
    fleet: Fleet, wires: Mapping[str, Wire], clock: MovableClock, chance: random.Random
) -> dict[tuple[str, str], Fault]:
    """Everything that can go wrong in a deployment."""
    found: dict[tuple[str, str], Fault] = {}
    for name in fleet.services:
        found[name, "kill"] = partial(killed, fleet, name)
        found[name, "stop"] = partial(stopped, partial(_pid, fleet, name))
    for name, wire in wires.items():
        found[f"wire {name}", "cut"] = partial(cut, wire)
        found[f"wire {name}", "swallow"] = partial(swallowed, wire)
        found[f"wire {name}", "slow"] = partial(slowed, wire, chance)
    found["postgres", "kill"] = lambda: postgres_killed(fleet)
    found["postgres", "stutter"] = lambda: stuttering(fleet.postgres.data)
    if _may_limit(fleet.postgres.process.pid):
        found["postgres", "fill the disk of"] = lambda: full(fleet, fleet.postgres.data)
    found["nats", "kill"] = lambda: nats_killed(fleet, wipe=False)
    found["nats", "wipe"] = lambda: nats_killed(fleet, wipe=True)
    found["nats", "fill the disk of"] = lambda: nats_full(fleet)
    found["nats", "stop"] = lambda: stopped(lambda: fleet.nats.process.pid)
    found["clock", "jump the"] = lambda: jumped(clock, chance.choice(JUMPS_S))
    return found


@asynccontextmanager
async def killed(fleet: Fleet, name: str) -> AsyncIterator[None]:
    """A service is away."""
    fleet.kill(name)
    try:
        yield
    finally:
        await _supervised(fleet, name)


async def _supervised(fleet: Fleet, name: str) -> None:
    """Start it until it stays, as whoever supervises a process does: another fault may hold up its start."""
    async with asyncio.timeout(STARTS_S):
        while True:
            with suppress(ServerError):
                await fleet[name].start()
                return
            await asyncio.sleep(0.5)


@asynccontextmanager
async def postgres_killed(fleet: Fleet) -> AsyncIterator[None]:
    """The store is away."""
    fleet.postgres.process.kill()
    try:
        yield
    finally:
        await fleet.postgres.start()


@asynccontextmanager
async def nats_killed(fleet: Fleet, *, wipe: bool) -> AsyncIterator[None]:
    """The bus is away, perhaps for good with all that it held."""
    fleet.nats.process.kill()
    if wipe:
        shutil.rmtree(fleet.nats.store)
    try:
        yield
    finally:
        await fleet.nats.start()


@asynccontextmanager
async def nats_full(fleet: Fleet) -> AsyncIterator[None]:
    """The bus has no room for a further message."""
    fleet.nats.process.kill()
    fleet.nats.max_file_bytes = NATS_FULL_AT_BYTES
    await fleet.nats.start()
    try:
        yield
    finally:
        fleet.nats.process.kill()
        fleet.nats.max_file_bytes = None
        await fleet.nats.start()


@asynccontextmanager
async def stopped(pid_of: Callable[[], int | None]) -> AsyncIterator[None]:
    """A process neither works nor ends."""
    pid = pid_of()
    if pid is not None:
        _signal(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        if pid is not None:
            _signal(pid, signal.SIGCONT)


@asynccontextmanager
async def stuttering(directory: Path) -> AsyncIterator[None]:
    """The store's processes get on by fits and starts, as on a slow disk."""

    async def stutter() -> None:
        while True:
            pids = [process.pid for process in _working_in(directory)]
            for pid in pids:
                _signal(pid, signal.SIGSTOP)
            try:
                await asyncio.sleep(0.08)
            finally:
                for pid in pids:
                    _signal(pid, signal.SIGCONT)
            await asyncio.sleep(0.04)

    task = asyncio.create_task(stutter())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def full(fleet: Fleet, directory: Path) -> AsyncIterator[None]:
    """No file of the store grows any more; it stops, as it does when there is no room for its log."""
    for process in _working_in(directory):
        _limit(process.pid, FULL_AT_BYTES)
    try:
        yield
    finally:
        for process in _working_in(directory):
            _limit(process.pid, resource.RLIM_INFINITY)
        if not fleet.postgres.process.running:
            await fleet.postgres.start()


@asynccontextmanager
async def cut(wire: Wire) -> AsyncIterator[None]:
    """Connections break, and no new one comes about."""
    wire.cut()
    try:
        yield
    finally:
        wire.mend()


@asynccontextmanager
async def swallowed(wire: Wire) -> AsyncIterator[None]:
    """Nothing comes through, and nobody is told."""
    wire.swallow()
    try:
        yield
    finally:
        wire.mend()


@asynccontextmanager
async def slowed(wire: Wire, chance: random.Random) -> AsyncIterator[None]:
    """Everything takes longer."""
    wire.delay_s = chance.uniform(0.01, 0.2)
    try:
        yield
    finally:
        wire.mend()


@asynccontextmanager
async def jumped(clock: MovableClock, seconds: int) -> AsyncIterator[None]:
    """The clock of the services is wrong, then right again."""
    clock.move(seconds)
    try:
        yield
    finally:
        clock.move(0)


def _pid(fleet: Fleet, name: str) -> int | None:
    return fleet[name].process.pid


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _may_limit(pid: int | None) -> bool:
    """Whether we may bound the files of this process, which is another user's when we are root."""
    try:
        resource.prlimit(pid or 0, resource.RLIMIT_FSIZE, resource.prlimit(pid or 0, resource.RLIMIT_FSIZE))
    except (PermissionError, ProcessLookupError):
        return False
    return True


def _limit(pid: int, size: int) -> None:
    with suppress(ProcessLookupError):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def _working_in(directory: Path) -> Sequence[psutil.Process]:
    """The processes whose working directory this is."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if Path(process.cwd()) == directory:
                found.append(process)
    return found
