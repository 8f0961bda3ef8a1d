"""Publishing with an answer that always comes: the acknowledgement, the refusal, or a doubt after a time limit.

The protocol's own bytes are written in one piece, because a thousand calls of the client's publish cost more than the
server needs to store them. Invariant: nothing is written while the connection is away, and whatever was written carries
the fence, so bytes that a lost connection has left in a buffer do no harm when they are sent late.
"""

from __future__ import annotations

import asyncio
import secrets

import orjson
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from pamspec_relay.model import Doubt, Entry, Halted, Prepared, prepare, wire

_HEADER_BYTES = 1024


class Publisher:
    """Sends fenced batches over one connection; shared by all partitions of a process."""

    def __init__(self, client: Client, timeout_s: float) -> None:
        self._client, self._timeout_s = client, timeout_s
        self._inbox = client.new_inbox()
        self._subscription: Subscription | None = None
        self._under_way: dict[str, _UnderWay] = {}

    async def open(self) -> None:
        """Listen for acknowledgements."""
        self._subscription = await self._client.subscribe(f"{self._inbox}.*", cb=self._acknowledged)

    async def close(self) -> None:
        """Fail what is under way and listen no more."""
        self.disconnected()
        if self._subscription is not None and not self._client.is_closed:
            await self._subscription.unsubscribe()

    def prepare(self, entries: list[Entry], chain: int) -> Prepared:
        """The bytes of a batch but for its fence. Halted for a message that the server would not take."""
        limit = self._client.max_payload - _HEADER_BYTES
        for entry in entries:
            if len(entry.message) > limit:
                raise Halted(f"event {entry.event_id} is larger than the bus takes; raise max_payload of the server")
        return prepare(entries, secrets.token_hex(8), self._inbox, chain)

    async def send(self, batch: Prepared, last_seq: int) -> asyncio.Future[int]:
        """Write a batch behind `last_seq`; the future gives the stream's new last sequence or raises Doubt."""
        if not self._client.is_connected:
            raise Doubt("the bus is away")
        loop = asyncio.get_running_loop()
        flight = _UnderWay(loop.create_future(), last_seq + batch.count)
        flight.timer = loop.call_later(self._timeout_s, flight.fail, "no acknowledgement in time")
        flight.future.add_done_callback(lambda _: self._forget(batch.token))
        self._under_way[batch.token] = flight
        await self._client._send_command(wire(batch, last_seq, self._inbox))
        await self._client._flush_pending()
        return flight.future

    def disconnected(self) -> None:
        """The connection is gone: what happened to the batches under way is not known."""
        for flight in list(self._under_way.values()):
            flight.fail("the connection to the bus was lost")

    def _forget(self, token: str) -> None:
        flight = self._under_way.pop(token, None)
        if flight is not None and flight.timer is not None:
            flight.timer.cancel()

    async def _acknowledged(self, message: Msg) -> None:
        flight = self._under_way.get(message.subject.rpartition(".")[2])
        if flight is None:
            return
        if not message.data:
            # Empty without a status: the server has taken the first message of a batch.
            status = (message.headers or {}).get("Status")
            if status is not None:
                flight.fail("no stream takes the subject" if status == "503" else f"status {status}")
            return
        document = orjson.loads(message.data)
        error = document.get("error")
        if error is not None:
            flight.fail(f"refused: {error.get('err_code')} {error.get('description')}")
        elif document.get("seq") != flight.expected or document.get("duplicate"):
            flight.fail(f"stored at {document.get('seq')} instead of {flight.expected}")
        elif not flight.future.done():
            flight.future.set_result(flight.expected)


class _UnderWay:
    """One batch on its way."""

    def __init__(self, future: asyncio.Future[int], expected: int) -> None:
        self.future, self.expected = future, expected
        self.timer: asyncio.TimerHandle | None = None

    def fail(self, reason: str) -> None:
        if not self.future.done():
            self.future.set_exception(Doubt(reason))
