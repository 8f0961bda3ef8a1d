"""A connection to the bus as an agent: made when it is needed, with the client's credential, and again after a loss.

Invariants: whoever waits for an answer learns of a loss at once; an answer counts only for the request that it answers,
and what has the header of an answer is never handed out as a frame. The connection is never repaired behind the
caller's back: whoever needs it next logs in anew, so a login that has ended is no special case.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from pamspec_client.errors import AccessDenied, ClientError, InvalidRequest, ProtocolError, ServiceUnavailable
from pamspec_client.tracing import trace_headers

if TYPE_CHECKING:
    from nats.aio.client import Client as NatsClient
    from nats.aio.msg import Msg

STATUS = "Pamspec-Status"
_WHOAMI = "pamspec.op.whoami"
_LOGIN_S = 10.0
_HEAD_BYTES = 64 * 1024
_ALL_RESPONDERS_GONE = "503"

Lost = Callable[[ClientError | ConnectionError], None]


@dataclass(frozen=True)
class NatsLogin:
    """Where agents log in, with the credential of the client; with a seed as a user of the server's own."""

    url: str
    nkey_seed: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    """Another API key or signed token than the client's."""


class Told(msgspec.Struct):
    """As whom the connection entered; the parts that a client needs."""

    principal_token: str


class Bus:
    """The bus as one principal; it may be used by many tasks of one event loop."""

    def __init__(self, login: NatsLogin, credential: str | None) -> None:
        self._login, self._credential = login, login.token or credential
        self._letters = base64.b32encode(os.urandom(17)).decode("ascii").lower()[:26]
        self._connection: _Connection | None = None
        self._connecting = asyncio.Lock()
        self._closed = False

    @property
    def url(self) -> str:
        """The address of the server."""
        return self._login.url

    async def request(self, operation: str, body: bytes, timeout_s: float) -> Msg:
        """The answer to an operation, refusals too.

        ConnectionError when the connection is lost, TimeoutError without an answer in time, ServiceUnavailable when no
        gateway listens, AccessDenied when the bus refuses the credential.
        """
        connection = await self._connected()
        if len(body) > connection.max_bytes:
            raise InvalidRequest(
                f"The document is larger than {connection.max_bytes} bytes; send less at a time, or over HTTP.",
                status=413,
                details={"limit": connection.max_bytes},
            )
        token = await connection.principal_token(timeout_s)
        return await connection.request(f"pamspec.op.{token}.{operation}", body, timeout_s)

    @asynccontextmanager
    async def listening(self, subject: str, arrived: Callable[[bytes], None], lost: Lost) -> AsyncIterator[None]:
        """Hand over the frames of a delivery subject; `lost` is called once when no more will come."""
        connection = await self._connected()
        subscription = await connection.listen(subject, arrived, lost)
        try:
            yield
        finally:
            connection.lost_by.pop(subject, None)
            with contextlib.suppress(Exception):
                await subscription()

    async def _connected(self) -> _Connection:
        async with self._connecting:
            if self._closed:
                raise ClientError("this client is closed")
            if self._connection is None or not self._connection.stands:
                if self._connection is not None:
                    await self._connection.close()
                self._connection = await _connect(self._login, self._credential, self._letters)
            return self._connection

    async def close(self) -> None:
        """Close the connection; a second call does nothing."""
        self._closed = True
        if self._connection is not None:
            await self._connection.close()


class _Connection:
    """One login, for as long as it lasts."""

    def __init__(self, inbox: str) -> None:
        self.client: NatsClient
        self.lost_by: dict[str, Lost] = {}
        self.refused: ClientError | None = None
        self._inbox = inbox
        self._numbers = itertools.count(1)
        self._waiting: dict[str, asyncio.Future[Msg]] = {}
        self._token: str | None = None
        self._listens = False
        self._ended = False

    @property
    def stands(self) -> bool:
        """Whether it can be used."""
        return not self._ended and self.client.is_connected

    @property
    def max_bytes(self) -> int:
        """How large a document may be."""
        return self.client.max_payload - _HEAD_BYTES

    async def principal_token(self, timeout_s: float) -> str:
        """The token of the principal's subjects, asked once."""
        if self._token is None:
            answer = await self.request(_WHOAMI, b"", timeout_s)
            try:
                self._token = msgspec.json.decode(answer.data, type=Told).principal_token
            except msgspec.DecodeError:
                raise AccessDenied("The bus does not know as whom this client entered; log in again.") from None
        return self._token

    async def request(self, subject: str, body: bytes, timeout_s: float) -> Msg:
        """The message that answers."""
        if not self._listens:
            self._listens = True
            await self.client.subscribe(f"{self._inbox}.*", cb=self._answered)
        number = str(next(self._numbers))
        future: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            if self._ended:
                raise ConnectionError("the bus was lost")
            await self.client.publish(subject, body, reply=f"{self._inbox}.{number}", headers=trace_headers())
            async with asyncio.timeout(timeout_s):
                answer = await future
        finally:
            del self._waiting[number]
        headers = answer.headers or {}
        if headers.get("Status") == _ALL_RESPONDERS_GONE:
            raise ServiceUnavailable("No gateway listens on the bus now; try again.", status=503, retryable=True)
        if STATUS not in headers:
            raise ProtocolError("what answers on the bus is no gateway")
        return answer

    async def _answered(self, message: Msg) -> None:
        future = self._waiting.get(message.subject.rpartition(".")[2])
        if future is not None and not future.done():
            future.set_result(message)

    async def listen(self, subject: str, arrived: Callable[[bytes], None], lost: Lost) -> Callable[[], Awaitable[None]]:
        """Begin to hand frames over; what comes back ends it."""

        async def frame(message: Msg) -> None:
            if STATUS not in (message.headers or {}):
                arrived(message.data)

        self.lost_by[subject] = lost
        subscription = await self.client.subscribe(subject, cb=frame)
        await self.client.flush()
        return subscription.unsubscribe

    async def failed(self, error: Exception) -> None:
        """What the server says: a refusal of the login, or of a subject."""
        text = str(error).lower()
        if "authorization" in text or "authentication" in text:
            self.refused = AccessDenied(f"The bus refuses the credential of this client: {error}", status=401)
        elif "permissions violation" in text:
            denied = AccessDenied(f"The bus refuses this to the client: {error}", status=403)
            for subject, lost in list(self.lost_by.items()):
                if f'"{subject}"' in text:
                    del self.lost_by[subject]
                    lost(denied)

    async def ended(self) -> None:
        """The connection is no more: everybody who waits learns of it."""
        self._ended = True
        error: ClientError | ConnectionError = self.refused or ConnectionError("the bus was lost")
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)
        lost_by, self.lost_by = self.lost_by, {}
        for lost in lost_by.values():
            lost(error)

    async def close(self) -> None:
        """Close it, bounded."""
        if not self.client.is_closed:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(2.0):
                    await self.client.close()
        await self.ended()


async def _connect(login: NatsLogin, credential: str | None, letters: str) -> _Connection:
    """A connection that stands; AccessDenied when the bus refuses the login, ConnectionError when there is no bus."""
    try:
        import nats.errors
        from nats.aio.client import Client
    except ImportError:
        raise ClientError("the bus needs the extra: pip install 'pamspec-client[nats]'") from None
    connection = _Connection(f"_INBOX.{letters}")
    connection.client = client = Client()
    try:
        async with asyncio.timeout(_LOGIN_S):
            await client.connect(
                login.url.split(","),
                name=f"pamspec-client/{letters}",
                token=None if login.nkey_seed else credential,
                nkeys_seed_str=login.nkey_seed,
                inbox_prefix=f"_INBOX.{letters}",
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                ping_interval=15,
                max_outstanding_pings=2,
                connect_timeout=int(_LOGIN_S),
                error_cb=connection.failed,
                disconnected_cb=connection.ended,
                closed_cb=connection.ended,
            )
    except (OSError, TimeoutError, nats.errors.Error) as error:
        await connection.failed(error)
        await connection.close()
        if connection.refused is not None:
            raise connection.refused from None
        raise ConnectionError(f"no bus at {login.url}: {type(error).__name__}") from error
    except asyncio.CancelledError:
        await connection.close()
        raise
    if not client.is_connected:
        await connection.close()
        raise connection.refused or ConnectionError("the bus closed the connection while logging in")
    return connection
