"""Answers that something is not there, given at moments that do not tell why.

Invariant: such an answer leaves a whole number of steps after its request came, so what hidden things cost more than
missing ones does not show. Every door passes here; an answer that found what it was asked for waits for nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable

from pamspec_common.asgi import Message, Send
from pamspec_common.calls import Answer

_STATUS = 404
_IN_BATCH = b'_not_found"'
_STARTS = frozenset(("http.response.start", "websocket.http.response.start"))

Until = Callable[[float], Awaitable[None]]
"""Returns at a moment of the clock."""


async def at_once(moment: float) -> None:
    """Wait for nothing."""


def tells_absence(operation: str, answer: Answer) -> bool:
    """Whether an answer says that something is not there; of a batch, any of its results."""
    return answer.status == _STATUS or (operation == "batch" and _IN_BATCH in answer.body)


class Absences:
    """The steps of one process; `step_s` is 0 where no answer waits."""

    def __init__(
        self, step_s: float = 0.0, until: Until = at_once, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._step_s, self._until, self._clock = step_s, until, clock

    def now(self) -> float:
        """When a request came."""
        return self._clock()

    async def hold(self, came: float) -> None:
        """Wait for the next step of a request that came then."""
        if self._step_s > 0:
            steps = max(1, math.ceil((self._clock() - came) / self._step_s))
            await self._until(came + steps * self._step_s)

    def holding(self, send: Send) -> Send:
        """The same for a stream that is about to open: a refusal of one that is not there waits."""
        came = self._clock()

        async def held(message: Message) -> None:
            if message["type"] in _STARTS and message["status"] == _STATUS:
                await self.hold(came)
            await send(message)

        return held
