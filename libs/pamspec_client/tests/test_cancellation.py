"""A follower that is cancelled ends, also when an event arrives in the same moment."""

import asyncio

import pytest

from pamspec_client.errors import AccessDenied
from pamspec_client.frames import Frame
from pamspec_client.nats_channel import _next


@pytest.mark.parametrize("turns", range(5))
async def test_a_cancellation_that_meets_a_frame_is_not_swallowed(turns: int) -> None:
    inbox: asyncio.Queue[Frame | AccessDenied] = asyncio.Queue()

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
