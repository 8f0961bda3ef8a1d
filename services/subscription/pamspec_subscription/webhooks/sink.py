"""Frames as signed requests: one at a time, each taken with 2xx before the next is made.

Invariants: the cursor moves when the endpoint has taken something and never before; a send that is not taken ends the
run of the channel, so that whatever is sent next is read, decided and filled with content anew. After a failure one
event goes out alone, then twice as many with each success: the first event that is not taken is found by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import orjson

from pamspec_common.asgi import ClientGone
from pamspec_common.errors import PamspecError
from pamspec_common.strict_json import dumps
from pamspec_subscription.frames import Frame
from pamspec_subscription.model import FLUSH_FRAMES, Subscription
from pamspec_subscription.queries import webhooks
from pamspec_subscription.queries.webhooks import Endpoint, Tried
from pamspec_subscription.store import Store
from pamspec_subscription.webhooks.attempts import DELIVERED, Attempt
from pamspec_subscription.webhooks.secrets import message_id

_CLOSED = b'{"closed"'
_STORE_PAUSE_S = 0.2

Post = Callable[[bytes, str], Awaitable[Attempt]]
"""Posts a body under a message id."""


@dataclass(frozen=True)
class Failure:
    """What was not taken."""

    attempt: Attempt
    tried: Tried
    event_id: str
    closing: bool
    """Whether it was the terminal record."""


class WebhookSink:
    """The endpoint of one subscription as the end of a channel, for one run."""

    kind = "webhook"
    silent_ends = frozenset({"replaced", "idle", "too_slow", "outdated", "shutdown"})
    bounds_itself = True

    def __init__(
        self,
        subscription: Subscription,
        endpoint: Endpoint,
        post: Post,
        store: Store,
        holds: Callable[[], bool],
        body_bytes: int,
        log_rows: int,
    ) -> None:
        self._subscription, self._post, self._store, self._holds = subscription, post, store, holds
        self._body_bytes, self._log_rows, self._resets = body_bytes, log_rows, endpoint.resets
        self._noted = subscription.cursor
        self.at_once = FLUSH_FRAMES if endpoint.failures == 0 else 1
        self.failures = endpoint.failures
        """In a row."""
        self.failure: Failure | None = None
        self.ended = False
        """Whether the terminal record was taken."""

    async def send(self, frames: Sequence[Frame], *, keepalive: bool = False) -> None:
        """Returns once all frames were taken; ClientGone when they were not, or when the lease is lost."""
        if keepalive:
            await self._pass_over(frames[-1].sequence)
            return
        if not self._holds():
            raise ClientGone
        part = frames[: self._fitting(frames)]
        closing = part[0].data.startswith(_CLOSED)
        attempt = await self._post(self._body(part), self._message_id(part))
        events = 0 if closing else len(part)
        answered = (attempt.outcome, attempt.status, attempt.latency_ms)
        tried = Tried(*answered, events, part[0].sequence, part[-1].sequence)
        if attempt.outcome != DELIVERED:
            self.failure = Failure(attempt, tried, "" if closing else _event_id(part[0]), closing)
            raise ClientGone
        self.ended = closing
        if not await self._note(tried) or len(part) < len(frames):
            raise ClientGone

    def _fitting(self, frames: Sequence[Frame]) -> int:
        """How many of the frames one body holds; at least one."""
        size = 0
        for at, frame in enumerate(frames):
            size += len(frame.data) + 1
            if at and size > self._body_bytes:
                return at
        return len(frames)

    def _body(self, frames: Sequence[Frame]) -> bytes:
        joined = b",".join(frame.data for frame in frames)
        return b'{"frames":[%b],"subscription_id":%b}' % (joined, dumps(self._subscription.subscription_id))

    def _message_id(self, frames: Sequence[Frame]) -> str:
        subscription = self._subscription
        kind = "closed" if frames[0].data.startswith(_CLOSED) else "events"
        place = (subscription.head.ledger_epoch, frames[0].sequence, frames[-1].sequence)
        return message_id(*subscription.key, *place, kind, self._resets)

    async def _note(self, tried: Tried) -> bool:
        """Move the cursor; while the store is away nothing else is sent. False when another process delivers now."""
        while self._holds():
            try:
                async with self._store.for_channels() as conn:
                    moved = await webhooks.taken(conn, self._subscription, tried, self._log_rows)
            except PamspecError:
                await asyncio.sleep(_STORE_PAUSE_S)
                continue
            self._noted = max(self._noted, tried.last)
            self.failures, self.at_once = 0, min(FLUSH_FRAMES, 2 * self.at_once)
            return moved
        return False

    async def _pass_over(self, sequence: int) -> None:
        """The cursor passes what was not to be delivered; a failure is made good by the next progress."""
        if sequence <= self._noted or not self._holds():
            return
        try:
            async with self._store.for_channels() as conn:
                await webhooks.pass_over(conn, self._subscription, sequence)
        except PamspecError:
            return
        self._noted = sequence


def _event_id(frame: Frame) -> str:
    return str(orjson.loads(frame.data)["event"]["event_id"])
