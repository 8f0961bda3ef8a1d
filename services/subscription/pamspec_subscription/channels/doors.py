"""The ASGI application of the streams: server-sent events and WebSocket, for a principal that the gateway signed."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable
from contextlib import suppress
from typing import Protocol
from urllib.parse import parse_qs

from pamspec_common.asgi import ClientGone, Receive, Scope, Send, deny_websocket, send_answer
from pamspec_common.calls import refusal
from pamspec_common.errors import InvalidRequest, PamspecError
from pamspec_common.ids import is_id
from pamspec_common.principal import PRINCIPAL_HEADER
from pamspec_subscription.channels.channel import Sink
from pamspec_subscription.channels.opening import Opened, Opener
from pamspec_subscription.channels.sse import SseSink, position_of
from pamspec_subscription.channels.websocket import WebSocketSink
from pamspec_subscription.fanout import Subscriber

_PATH = re.compile(r"/v1/subscriptions/(?P<id>[^/]+)/(?P<kind>stream|ws)")
_FINISH_S = 2.0

_log = logging.getLogger(__name__)


class _StreamSink(Sink, Protocol):
    async def start(self) -> None:
        """Open the answer."""

    def gone(self) -> None:
        """The client has left."""


class StreamDoors:
    """`GET /v1/subscriptions/{id}/stream` and `WS /v1/subscriptions/{id}/ws`."""

    def __init__(self, opener: Opener) -> None:
        self._opener = opener

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = _PATH.fullmatch(scope["path"])
        wanted = "ws" if scope["type"] == "websocket" else "stream"
        if found is None or found["kind"] != wanted or scope.get("method", "GET") != "GET":
            answer = refusal(InvalidRequest("No such path in this service.", status=404))
            await (send_answer(send, answer) if scope["type"] == "http" else deny_websocket(scope, send, answer))
        elif scope["type"] == "websocket":
            await self._websocket(found["id"], scope, receive, send)
        else:
            await self._sse(found["id"], scope, receive, send)

    async def _sse(self, subscription_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            opened = await self._open(subscription_id, scope, "sse")
        except PamspecError as error:
            await send_answer(send, refusal(error))
            return
        sink = SseSink(send, opened.subscription.head.ledger_epoch)
        await self._run(opened, sink, receive)
        await _bounded(sink.finish())

    async def _websocket(self, subscription_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        try:
            opened = await self._open(subscription_id, scope, "websocket")
        except PamspecError as error:
            await deny_websocket(scope, send, refusal(error))
            return
        sink = WebSocketSink(send)
        await self._run(opened, sink, receive)
        await _bounded(sink.finish(opened.seat.subscriber.ended))

    async def _open(self, subscription_id: str, scope: Scope, kind: str) -> Opened:
        headers = dict(scope["headers"])
        position = _position(headers.get(b"last-event-id"), scope.get("query_string", b""))
        if not is_id(subscription_id):
            raise InvalidRequest("That is not an identifier: a scheme, a colon and letters, digits or +._:-.")
        return await self._opener.open(
            headers.get(PRINCIPAL_HEADER, b"").decode("latin-1"), subscription_id, kind, position
        )

    async def _run(self, opened: Opened, sink: _StreamSink, receive: Receive) -> None:
        watch = asyncio.create_task(_watch(receive, sink, opened.seat.subscriber))
        try:
            await sink.start()
            await self._opener.run(opened, sink)
        finally:
            watch.cancel()


async def _watch(receive: Receive, sink: _StreamSink, subscriber: Subscriber) -> None:
    """Notice that the client has left, also while nothing is sent."""
    while (await receive())["type"] not in ("http.disconnect", "websocket.disconnect"):
        pass
    sink.gone()
    subscriber.end("gone")


def _position(last_event_id: bytes | None, query: bytes) -> tuple[int | None, int] | None:
    """(epoch, sequence) from Last-Event-ID, else from after_sequence and ledger_epoch of the query."""
    if last_event_id is not None and last_event_id.strip():
        return position_of(last_event_id.decode("latin-1"))
    values = parse_qs(query.decode("latin-1"), keep_blank_values=True)
    unknown = set(values) - {"after_sequence", "ledger_epoch"}
    if unknown:
        raise InvalidRequest("A stream takes after_sequence and ledger_epoch in its query and nothing else.")
    epoch, sequence = (_number(values.get(name), name) for name in ("ledger_epoch", "after_sequence"))
    return None if sequence is None else (epoch, sequence)


def _number(values: list[str] | None, name: str) -> int | None:
    if values is None:
        return None
    if len(values) != 1 or not re.fullmatch(r"[0-9]{1,19}", values[0]) or int(values[0]) >= 2**63:
        raise InvalidRequest(f"{name} is an integer from 0 on.")
    return int(values[0])


async def _bounded(finish: Awaitable[None]) -> None:
    with suppress(TimeoutError, ClientGone):
        async with asyncio.timeout(_FINISH_S):
            await finish
