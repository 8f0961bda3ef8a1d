"""Answers that something is not there leave at steps of the clock, through every door; nothing else waits."""

from __future__ import annotations

import asyncio
import time

import pytest

from pamspec_common.asgi import Message, Receive, Scope, Send
from pamspec_common.calls import Answer, Call, refusal
from pamspec_common.errors import AccessDenied, ObjectNotFound, ScopeNotFound, SnapshotNotFound
from pamspec_common.peers import LocalPeer
from pamspec_common.principal import Principal
from pamspec_common.service import Service
from pamspec_common.turns import Turns
from pamspec_gateway.absences import Absences
from pamspec_gateway.limits.limiter import Limiter
from pamspec_gateway.moments import Moments
from services.gateway.tests.behind import Behind, Door, echo_service

STEP_S = 0.008
MISSING = refusal(ObjectNotFound(), "op:1")
IN_A_BATCH = Answer(200, b'{"results":[{"status":"ok"},{"error":{"code":"object_not_found"}}]}')


class Clock:
    """A clock that stands until it is moved; whoever waits goes on at once, and it is noted until when."""

    def __init__(self) -> None:
        self.now = 100.0
        self.waited: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def until(self, moment: float) -> None:
        self.waited.append(round(moment - 100.0, 6))


async def released(answer: Answer, took_s: float, operation: str = "read") -> list[float]:
    """How long after the request an answer was held, through a limiter whose service takes so long."""
    clock = Clock()
    turns = Turns(4, 3)
    limiter = Limiter(turns, clock=clock)
    holder = await limiter.holder(Principal("tenant:t", "agent:a", "agent"))

    async def handle(call: Call) -> Answer:
        clock.now += took_s
        return answer

    async def until(moment: float) -> None:
        assert holder.tenant.line.busy == 0, "who is held back has given its place back"
        await Clock.until(clock, moment)

    limiter.absences = Absences(STEP_S, until, clock)
    behind = echo_service("echo", Behind())
    peer = LocalPeer(Service("one", {operation: handle}, behind.readiness, behind.on_start, behind.on_stop))
    assert await limiter.call(holder, peer, Call(operation, "", b"{}")) is answer
    return clock.waited


@pytest.mark.parametrize("took_s", [0.0, 0.000_8, 0.000_9, 0.004, 0.007_999])
async def test_whatever_it_took_an_absence_is_told_at_the_same_step(took_s: float) -> None:
    assert await released(MISSING, took_s) == [0.008]


async def test_what_takes_longer_than_a_step_waits_for_the_next_one() -> None:
    assert await released(MISSING, 0.0081) == [0.016]
    assert await released(MISSING, 0.0239) == [0.024]


async def test_every_kind_of_absence_waits_and_nothing_else_does() -> None:
    for error in (ObjectNotFound, ScopeNotFound, SnapshotNotFound):
        assert await released(refusal(error(), "op:1"), 0.001) == [0.008]
    assert await released(IN_A_BATCH, 0.001, "batch") == [0.008]
    for answer in (Answer(200, b'{"results":[{"status":"ok"}]}'), Answer(200, b"{}"), refusal(AccessDenied(), "op:1")):
        assert await released(answer, 0.001, "batch") == []
    assert await released(IN_A_BATCH, 0.001, "query") == [], "what a found memory says of absences is not one"


async def test_every_door_holds_absences(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[float] = []

    async def hold(self: Absences, came: float) -> None:
        assert self.now() >= came
        held.append(came)

    async def absent(scope: Scope, receive: Receive, send: Send) -> None:
        message: Message = {"type": "http.response.start", "status": 404, "headers": []}
        await send(message)
        await send({"type": "http.response.body", "body": b""})

    monkeypatch.setattr(Absences, "hold", hold)
    door.behind.stream = absent
    body = {"scope_id": "workspace:x"}
    assert (await door.post("/v1/read", body))[0] == 200
    assert held == []
    door.behind.answer = MISSING
    doors = [
        await door.post("/v1/read", body),
        await door.get("/v1/objects?scope_id=workspace:x&object_id=obj:1"),
        await door.post("/v1/export", body),
        await door.get("/v1/subscriptions/sub:1/stream"),
    ]
    assert [status for status, *_ in doors] == [404] * 4
    assert len(held) == 4


async def test_moments_come_in_order_and_not_before_their_time() -> None:
    moments = Moments()
    moments.open()
    began = time.monotonic()
    came: list[int] = []

    async def wait(number: int) -> None:
        await moments.until(began + number * 0.003)
        assert time.monotonic() >= began + number * 0.003
        came.append(number)

    async with asyncio.timeout(30):
        gone = asyncio.ensure_future(moments.until(began + 0.002))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.gather(*(wait(number) for number in (5, 1, 3, 2, 4, -1)))
        assert came == [-1, 1, 2, 3, 4, 5]
        long = asyncio.ensure_future(moments.until(time.monotonic() + 3600))
        await asyncio.sleep(0)
        moments.close()
        await long
        await moments.until(time.monotonic() + 3600)
