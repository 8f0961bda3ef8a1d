"""Pulling from a durable consumer of JetStream, with an answer whatever becomes of it.

Invariant: a message is acknowledged by whoever has its effect in PostgreSQL, never refused: what is not acknowledged
comes again. A consumer that was deleted, a stream that was made anew, and a server that is silent all end a pull with
Doubt (an empty answer of the client's own `fetch` hides the first of them).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from pamspec_common.consuming.model import Doubt

_NS = 1_000_000_000
_EXPIRES_S = 5.0
_BEAT_S = 1.0
_SILENCE_S = 3.0


class Puller:
    """One consumer on one connection."""

    def __init__(self, client: Client, stream: str, consumer: Mapping[str, Any], batch: int) -> None:
        self._client, self._stream, self._consumer, self._batch = client, stream, dict(consumer), batch
        self._inbox = client.new_inbox()
        self._subscription: Subscription | None = None
        self._arrived: asyncio.Queue[Msg] = asyncio.Queue()
        self._wanted = 0
        self._asked = 0
        self._heard_at = 0.0

    async def open(self) -> None:
        """Make the consumer where it is missing, and listen. Raises an error of the bus, or Doubt."""
        name = self._consumer["durable_name"]
        request = {"stream_name": self._stream, "config": self._consumer}
        reply = await self._client.request(
            f"$JS.API.CONSUMER.DURABLE.CREATE.{self._stream}.{name}", orjson.dumps(request), timeout=5
        )
        document = orjson.loads(reply.data)
        if "error" in document:
            raise Doubt(f"consumer {name}: {document['error'].get('description', '')}")
        self._subscription = await self._client.subscribe(f"{self._inbox}.*", cb=self._arrived.put)
        self._heard_at = asyncio.get_running_loop().time()

    async def close(self) -> None:
        """Listen no more."""
        if self._subscription is not None and not self._client.is_closed:
            await self._subscription.unsubscribe()

    async def messages(self, wait_s: float) -> list[Msg]:
        """What is there, at least one message unless nothing comes within the time. Doubt when the consumer is gone."""
        found: list[Msg] = []
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_s
        while not found:
            if not self._client.is_connected:
                raise Doubt("the bus is away")
            if self._wanted <= 0:
                await self._ask()
            try:
                async with asyncio.timeout_at(min(until, self._heard_at + _SILENCE_S)):
                    self._take(await self._arrived.get(), found)
            except TimeoutError:
                if loop.time() < self._heard_at + _SILENCE_S:
                    return found
                raise Doubt("the consumer is silent") from None
            self._heard_at = loop.time()
            while len(found) < self._batch and not self._arrived.empty():
                self._take(self._arrived.get_nowait(), found)
        return found

    async def acknowledge(self, messages: Sequence[Msg]) -> None:
        """Say of the last of these, and so of all before it, that it took effect."""
        await self._client.publish(messages[-1].reply, b"+ACK")

    async def _ask(self) -> None:
        self._asked += 1
        self._wanted = self._batch
        request = {"batch": self._batch, "expires": int(_EXPIRES_S * _NS), "idle_heartbeat": int(_BEAT_S * _NS)}
        name = self._consumer["durable_name"]
        await self._client.publish(
            f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{name}",
            orjson.dumps(request),
            reply=f"{self._inbox}.{self._asked}",
        )

    def _take(self, message: Msg, found: list[Msg]) -> None:
        status = (message.headers or {}).get("Status")
        current = message.subject == f"{self._inbox}.{self._asked}"
        if status is None:
            found.append(message)
            self._wanted -= 1 if current else 0
        elif not current or status == "100":
            return
        elif status in ("404", "408"):
            self._wanted = 0
        else:
            raise Doubt(f"the consumer answers {status}: {(message.headers or {}).get('Description', '')}")
