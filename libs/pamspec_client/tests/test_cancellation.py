"""What is cancelled ends: a follower that an event meets in the same moment, and the work of the synchronous client."""

import asyncio
import os
import signal

import pytest

from pamspec_client.blocking import _Loop
from pamspec_client.errors import ClientError
from pamspec_client.frames import Frame
from pamspec_client.nats_channel import _next


@pytest.mark.parametrize("turns", range(5))
async def test_a_cancellation_that_meets_a_frame_is_not_swallowed(turns: int) -> None:
    inbox: asyncio.Queue[Frame | ClientError | ConnectionError] = asyncio.Queue()

    async def follow() -> None:
        while True:
            await _next(inbox)

    following = asyncio.create_task(follow())
    for _ in range(3):
        await asyncio.sleep(0)
    inbox.put_nowait(Frame(progress=1))
    for _ in range(turns):
        await asyncio.sleep(0)
    following.cancel()
    done, _ = await asyncio.wait([following], timeout=1)
    following.cancel()
    assert done, "it goes on after its cancellation"


def test_an_interrupted_wait_ends_once_its_work_has_ended() -> None:
    steps: list[str] = []
    # A shell that starts a job in the background has it ignore interrupts.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    async def work() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.05)
            steps.append("ended")

    loop = _Loop()
    try:
        with pytest.raises(KeyboardInterrupt):
            loop.run(work())
        assert steps == ["ended"]
    finally:
        signal.signal(signal.SIGINT, before)
        loop.close()
