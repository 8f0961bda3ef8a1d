"""`pamspec up` and other commands, each as a process of its own."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import psutil

from pamspec_cli.servers.process import working_in

START_SECONDS = 60
STOP_SECONDS = 60


class Up:
    """One `pamspec up` in a process of its own."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.lines: dict[str, str] = {}
        self._process: asyncio.subprocess.Process | None = None

    @property
    def process(self) -> asyncio.subprocess.Process:
        assert self._process is not None
        return self._process

    async def start(self, *arguments: str, variables: Mapping[str, str] | None = None) -> None:
        """Starts it and returns once it has printed how to reach it."""
        self._process = await asyncio.create_subprocess_exec(
            *command("up", self.data, *arguments), stdout=subprocess.PIPE, env=os.environ | (variables or {})
        )
        self.lines = {}
        assert self._process.stdout is not None
        async with asyncio.timeout(START_SECONDS):
            while "try it" not in self.lines:
                line = (await self._process.stdout.readline()).decode()
                assert line, "pamspec up ended while starting"
                self.lines[line[:10].strip()] = line[10:].strip()

    @property
    def gateway(self) -> str:
        return self.lines["gateway"].split()[0]

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.lines['key']}"}

    async def ended(self) -> int:
        async with asyncio.timeout(STOP_SECONDS):
            return await self.process.wait()

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return await self.ended()

    def remnants(self) -> list[psutil.Process]:
        """What still works anywhere under the data directory."""
        places = [self.data / "postgres" / "data", self.data / "nats", self.data / "valkey"]
        places += [place for place in (self.data / "services").glob("*") if place.is_dir()]
        return [process for place in places for process in working_in(place)]

    async def without_remnants(self) -> None:
        async with asyncio.timeout(30):
            while self.remnants():
                await asyncio.sleep(0.05)


def command(name: str, data: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "pamspec_cli", name, "--data", str(data), *arguments]


async def pamspec(name: str, data: Path, *arguments: str) -> tuple[int, str, str]:
    """Runs a subcommand to its end: exit code, standard output, standard error."""
    child = await asyncio.create_subprocess_exec(
        *command(name, data, *arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    async with asyncio.timeout(STOP_SECONDS):
        out, err = await child.communicate()
    assert child.returncode is not None
    return child.returncode, out.decode(), err.decode()


@asynccontextmanager
async def own_up() -> AsyncIterator[Up]:
    """One in a directory of its own; nothing is left of it at the end."""
    one = Up(Path(tempfile.mkdtemp(prefix="pamspec-up-")))
    try:
        yield one
    finally:
        if one._process is not None and one.process.returncode is None:
            one.process.kill()
            await one.process.wait()
        await one.without_remnants()
        note = one.data / "postgres" / "run"
        if note.exists():
            shutil.rmtree(note.read_text(encoding="utf-8").strip(), ignore_errors=True)
        shutil.rmtree(one.data)
