"""A service's life: start, readiness, drain and stop in order; tasks that fail are seen and started again."""

from __future__ import annotations

import asyncio
import logging
import time

import aiohttp
import orjson
import pytest

from pamspec_common import service as module
from pamspec_common.calls import Answer, Call
from pamspec_common.server import serving
from pamspec_common.service import Background, Part, Service, readiness_answer


class Life:
    """A service that notes what happens to it."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.parts: list[Part] = []
        self.fails = False
        self.service = Service(
            "life", {"echo": self._echo}, self._readiness, self._start, self._stop, on_drain=self._drain
        )

    async def _echo(self, call: Call) -> Answer:
        return Answer(200, call.body)

    async def _readiness(self) -> list[Part]:
        return self.parts

    async def _start(self) -> None:
        self.seen.append("start")
        if self.fails:
            raise RuntimeError("cannot")

    async def _drain(self) -> None:
        assert not (await self.service.ready())[0]
        self.seen.append("drain")

    async def _stop(self) -> None:
        self.seen.append("stop")


async def test_start_and_stop_happen_once_and_in_order() -> None:
    life = Life()
    for _ in range(2):
        await life.service.start()
    assert (await life.service.ready())[0]
    for _ in range(2):
        await life.service.drain()
        await life.service.stop()
    assert life.seen == ["start", "drain", "stop"]
    ok, parts = await life.service.ready()
    assert (ok, parts[0].detail["state"]) == (False, "stopping")


async def test_a_stop_before_the_start_drains_nothing() -> None:
    life = Life()
    assert (await life.service.ready())[1][0].detail["state"] == "starting"
    await life.service.stop()
    assert life.seen == ["stop"]


async def test_a_start_that_fails_may_be_tried_again() -> None:
    life = Life()
    life.fails = True
    with pytest.raises(RuntimeError):
        await life.service.start()
    assert not (await life.service.ready())[0]
    life.fails = False
    await life.service.start()
    assert (await life.service.ready())[0]
    await life.service.stop()


@pytest.mark.parametrize(
    ("parts", "status", "word"),
    [
        ([], 200, "ready"),
        ([Part("a", True)], 200, "ready"),
        ([Part("a", True), Part("b", False, {"lag": 9}, essential=False)], 200, "degraded"),
        ([Part("a", False), Part("b", True)], 503, "not_ready"),
    ],
)
async def test_readiness_says_which_part_lags(parts: list[Part], status: int, word: str) -> None:
    life = Life()
    life.parts = parts
    async with serving(life.service) as url, aiohttp.ClientSession() as session:
        async with session.get(url + "/readyz") as response:
            assert response.status == status
            document = orjson.loads(await response.read())
        assert document["status"] == word
        assert set(document["parts"]) == {part.name for part in parts}
        if any(part.detail for part in parts):
            assert document["parts"]["b"] == {"lag": 9, "ok": False, "essential": False}
        async with session.get(url + "/healthz") as response:
            assert (response.status, await response.json()) == (200, {"service": life.service.name, "status": "alive"})
        async with session.get(url + "/metrics") as response:
            assert response.status == 200
        async with session.get(url + "/nothing") as response:
            assert response.status == 404
            assert (await response.json())["error"]["code"] == "invalid_request"
    assert life.seen == ["start", "drain", "stop"]
    assert readiness_answer("sample", True, []).status == 200


async def test_a_task_that_fails_is_seen_and_started_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_RESTART_PAUSE_S", 0.01)
    caplog.set_level(logging.INFO)
    background, runs, well = Background(), 0, asyncio.Event()

    async def task() -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise ValueError("first")
        if runs == 2:
            return
        await well.wait()
        background.recovered("task")
        await background.stopping.wait()

    background.spawn("task", task)
    assert background.parts() == [Part("task", True)]
    errors = []
    async with asyncio.timeout(30):
        while runs < 3:
            errors.append(background.parts()[0].detail.get("error"))
            await asyncio.sleep(0)
    assert {"ValueError", "ended"} <= {*errors, background.parts()[0].detail.get("error")}
    assert not background.parts()[0].ok
    well.set()
    async with asyncio.timeout(30):
        while not background.parts()[0].ok:
            await asyncio.sleep(0)
    await background.stop(1)
    assert [record.exc_info is not None for record in caplog.records if record.msg == "background task failed"] == [
        True
    ]


async def test_a_stop_waits_for_tasks_and_then_cancels_them() -> None:
    background, ended = Background(), []

    async def obedient() -> None:
        await background.stopping.wait()
        ended.append("obedient")

    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("stubborn")

    background.spawn("obedient", obedient)
    background.spawn("stubborn", stubborn)
    await asyncio.sleep(0)
    began = time.monotonic()
    await background.stop(0.1)
    assert 0.09 < time.monotonic() - began < 20
    assert ended == ["obedient", "stubborn"]
    await background.stop(1)
    assert background.parts() == []


async def test_a_pause_ends_with_the_stop() -> None:
    background = Background()
    assert await background.pause(0.001) is False
    waiting = asyncio.create_task(background.pause(60))
    await asyncio.sleep(0)
    await background.stop(1)
    async with asyncio.timeout(30):
        assert await waiting is True
    assert await background.pause(60) is True
