"""The NATS delivery subject as a source of frames.

The subject loses what is sent while nobody listens. Every frame names the one before it and progress names the head,
so a hole or a lost tail shows; what is missing is read again by polls after the cursor. Acknowledgements go over HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pamspec_client.channels import SILENCE_S, PollSource, page_frames
from pamspec_client.errors import AccessDenied, ClientError
from pamspec_client.frames import Frame, Position, decode

if TYPE_CHECKING:
    from nats.aio.client import Client as NatsClient
    from nats.aio.msg import Msg

    from pamspec_client.client import AsyncClient

_BUFFER = 10_000
_REFUSALS = ("authorization", "authentication", "permissions violation")
"""Words of the server's errors that no further try will change."""


@dataclass(frozen=True)
class NatsLogin:
    """Where agents log in, with the credential of the client; with a seed as a user of the server's own."""

    url: str
    nkey_seed: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    """Another API key or signed token than the client's."""


class NatsSource:
    """Frames of the delivery subject, completed by polls."""

    def __init__(self, client: AsyncClient, subscription_id: str, subject: str, max_events: int) -> None:
        if client.nats is None:
            raise ClientError("to follow over NATS give the client nats=NatsLogin(url)")
        self._login = client.nats
        self._token = None if client.nats.nkey_seed else client.nats.token or client.api_key
        self._subject = subject
        self._poll = PollSource(client, subscription_id, max_events)
        self._doubt = asyncio.Event()

    async def frames(self, after: Position) -> AsyncGenerator[Frame, None]:
        """First what the ledger holds after the position, then live frames, without end."""
        inbox: asyncio.Queue[Frame | AccessDenied] = asyncio.Queue(_BUFFER)

        async def arrived(message: Msg) -> None:
            try:
                inbox.put_nowait(decode(message.data))
            except asyncio.QueueFull:
                self._doubt.set()

        connection = await self._connect(inbox)
        try:
            await connection.subscribe(self._subject, cb=arrived)
            await connection.flush()
            self._doubt.set()
            at = after
            while True:
                frame = None if self._doubt.is_set() else await _next(inbox)
                if frame is None or _shows_a_gap(frame, at):
                    self._doubt.clear()
                    async for missing in self._read_again(at):
                        yield missing
                        at = _advanced(at, missing)
                if frame is not None:
                    yield frame
                    at = _advanced(at, frame)
        finally:
            await connection.close()

    async def _read_again(self, after: Position) -> AsyncGenerator[Frame, None]:
        at = after
        while True:
            page = await self._poll.page(at, 0)
            for frame in page_frames(page, at):
                yield frame
            end = Position(page.ledger_epoch, page.next_after_sequence)
            if end == at:
                return
            at = end

    async def _connect(self, inbox: asyncio.Queue[Frame | AccessDenied]) -> NatsClient:
        """A connection that comes back by itself; AccessDenied when the bus refuses the login, now or later."""
        try:
            import nats
        except ImportError:
            raise ClientError("to follow over NATS install the extra: pip install 'pamspec-client[nats]'") from None
        refused = asyncio.Event()

        async def in_doubt() -> None:
            self._doubt.set()

        async def failed(error: Exception) -> None:
            if any(word in str(error).lower() for word in _REFUSALS):
                refused.set()
                inbox.put_nowait(AccessDenied(f"the bus refuses the login of this client: {error}", status=401))
            self._doubt.set()

        parts = self._subject.split(".")
        connecting = asyncio.ensure_future(
            nats.connect(
                self._login.url,
                nkeys_seed_str=self._login.nkey_seed,
                token=self._token,
                inbox_prefix=f"_INBOX_{parts[2]}" if len(parts) > 3 else "_INBOX",
                max_reconnect_attempts=-1,
                reconnect_time_wait=0.25,
                ping_interval=15,
                max_outstanding_pings=2,
                reconnected_cb=in_doubt,
                error_cb=failed,
            )
        )
        refusal = asyncio.ensure_future(refused.wait())
        try:
            await asyncio.wait([connecting, refusal], return_when=asyncio.FIRST_COMPLETED)
            if not connecting.done():
                raise await _refused(inbox)
            return connecting.result()
        finally:
            refusal.cancel()
            connecting.cancel()


async def _refused(inbox: asyncio.Queue[Frame | AccessDenied]) -> AccessDenied:
    while not isinstance(found := await inbox.get(), AccessDenied):
        continue
    return found


async def _next(inbox: asyncio.Queue[Frame | AccessDenied]) -> Frame | None:
    try:
        async with asyncio.timeout(SILENCE_S):
            found = await inbox.get()
    except TimeoutError:
        return None
    if isinstance(found, AccessDenied):
        raise found
    return found


def _shows_a_gap(frame: Frame, at: Position) -> bool:
    """Whether something between `at` and the frame did not arrive, or may not have."""
    if frame.ledger_epoch != at.ledger_epoch:
        return frame.ledger_epoch > at.ledger_epoch
    before = frame.prev_sequence if frame.prev_sequence is not None else frame.progress
    return before is not None and before > at.sequence


def _advanced(at: Position, frame: Frame) -> Position:
    event = frame.decoded
    reached = event.sequence if event is not None else frame.progress
    if reached is None or frame.ledger_epoch < at.ledger_epoch:
        return at
    if frame.ledger_epoch > at.ledger_epoch:
        return Position(frame.ledger_epoch, reached)
    return Position(at.ledger_epoch, max(at.sequence, reached))
