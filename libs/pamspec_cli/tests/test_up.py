"""`pamspec up`, `down` and `status` as a person meets them: real processes, signals and kills."""

import asyncio
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest

from pamspec_cli.deployment import SERVICES
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


@pytest.fixture
async def up() -> AsyncIterator[Up]:
    one = Up(Path(tempfile.mkdtemp(prefix="pamspec-up-")))
    yield one
    if one._process is not None and one.process.returncode is None:
        one.process.kill()
        await one.process.wait()
    await one.without_remnants()
    note = one.data / "postgres" / "run"
    if note.exists():
        shutil.rmtree(note.read_text(encoding="utf-8").strip(), ignore_errors=True)
    shutil.rmtree(one.data)


async def as_printed(line: str) -> tuple[int, dict[str, object]]:
    """Sends what the printed curl line would send."""
    program, *words = shlex.split(line)
    assert program == "curl"
    headers, body, url = {}, "", ""
    pending = iter(words)
    for word in pending:
        if word == "-H":
            name, _, value = next(pending).partition(": ")
            headers[name] = value
        elif word == "-d":
            body = next(pending)
        elif not word.startswith("-"):
            url = word
    async with aiohttp.ClientSession() as session, session.post(url, data=body, headers=headers) as answer:
        return answer.status, await answer.json()


async def read(up: Up, created: Mapping[str, object]) -> int:
    document = {"scope_id": created["scope_id"], "object_id": created["object_id"]}
    async with (
        aiohttp.ClientSession(headers=up.headers) as session,
        session.post(f"{up.gateway}/v1/read", json=document) as answer,
    ):
        return answer.status


async def ready(up: Up) -> dict[str, Any]:
    """What `pamspec status --json` says once every part keeps up."""
    async with asyncio.timeout(START_SECONDS):
        while True:
            code, out, _ = await pamspec("status", up.data, "--json")
            found: dict[str, Any] = json.loads(out)
            assert code == 0
            if found["status"] == "ready":
                return found


async def test_the_printed_line_works_and_a_second_up_finds_the_data(up: Up) -> None:
    await up.start()
    first = dict(up.lines)
    status, created = await as_printed(up.lines["try it"])
    assert status == 201
    assert (await as_printed(up.lines["try it"]))[0] == 201

    await ready(up)
    code, _, err = await pamspec("up", up.data)
    assert code == 2
    assert f"in use by process {up.process.pid}" in err

    assert await up.stop(signal.SIGTERM) == 0
    assert not up.remnants()
    code, out, _ = await pamspec("status", up.data)
    assert code == 1
    assert "pamspec up" in out

    await up.start()
    assert up.lines["key"] == first["key"]
    assert up.lines["gateway"] == first["gateway"]
    assert await read(up, created) == 200
    assert await up.stop(signal.SIGINT) == 0
    assert not up.remnants()


async def test_down_stops_what_runs_and_is_content_with_nothing(up: Up) -> None:
    await up.start(variables={"PAMSPEC_DEV_KEY": "a-key-of-my-own-choosing"})
    assert up.lines["key"] == "a-key-of-my-own-choosing"
    assert (await as_printed(up.lines["try it"]))[0] == 201
    code, out, _ = await pamspec("down", up.data)
    assert (code, out) == (0, "stopped\n")
    assert await up.ended() == 0
    code, out, _ = await pamspec("down", up.data)
    assert code == 0
    assert "nothing runs" in out


async def test_a_killed_up_leaves_no_server_and_the_next_one_starts(up: Up) -> None:
    await up.start()
    status, created = await as_printed(up.lines["try it"])
    assert status == 201
    up.process.kill()
    await up.ended()
    await up.without_remnants()
    await up.start()
    assert await read(up, created) == 200
    assert await up.stop() == 0


async def test_a_signal_during_the_start_stops_it(up: Up) -> None:
    starting = asyncio.create_task(up.start())
    async with asyncio.timeout(START_SECONDS):
        while not (up.data / "nats" / "nats.pid").exists():
            await asyncio.sleep(0.01)
    assert await up.stop() == 0
    with pytest.raises(AssertionError, match="ended while starting"):
        await starting
    assert not up.remnants()


async def test_an_unusable_development_key_is_refused(up: Up) -> None:
    child = await asyncio.create_subprocess_exec(
        *command("up", up.data), stderr=subprocess.PIPE, env=os.environ | {"PAMSPEC_DEV_KEY": "short"}
    )
    _, err = await child.communicate()
    assert child.returncode == 1
    assert b"PAMSPEC_DEV_KEY must have" in err


@pytest.mark.parametrize(
    ("value", "said"), [("[8443]", b"PAMSPEC_WEBHOOK_PORTS can't be used"), ("no JSON", b'field "webhook_ports"')]
)
async def test_an_unusable_variable_is_named(up: Up, value: str, said: bytes) -> None:
    child = await asyncio.create_subprocess_exec(
        *command("up", up.data), stderr=subprocess.PIPE, env=os.environ | {"PAMSPEC_WEBHOOK_PORTS": value}
    )
    _, err = await child.communicate()
    assert child.returncode == 1
    assert said in err
    assert b"Traceback" not in err


async def test_processes_are_watched_and_stop_together(up: Up) -> None:
    await up.start("--processes")
    status, created = await as_printed(up.lines["try it"])
    assert status == 201
    found = await ready(up)
    assert found["mode"] == "processes"
    assert set(found["processes"]) == set(SERVICES)

    psutil.Process(found["processes"]["query"]).kill()
    async with asyncio.timeout(START_SECONDS):
        while await read(up, created) != 200:
            await asyncio.sleep(0.05)

    assert await up.stop() == 0
    assert not up.remnants()


async def test_killed_processes_leave_nothing_behind(up: Up) -> None:
    await up.start("--processes")
    up.process.kill()
    await up.ended()
    await up.without_remnants()
    await up.start("--processes")
    assert (await as_printed(up.lines["try it"]))[0] == 201
    assert await up.stop() == 0
    assert not up.remnants()
