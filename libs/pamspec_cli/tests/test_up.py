"""`pamspec up`, `down` and `status` as a person meets them: real processes, signals and kills."""

import asyncio
import json
import os
import shlex
import signal
import subprocess
from collections.abc import Mapping
from typing import Any

import aiohttp
import psutil
import pytest

from libs.pamspec_cli.tests.up_process import START_SECONDS, Up, command, pamspec
from pamspec_cli.deployment import SERVICES


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
