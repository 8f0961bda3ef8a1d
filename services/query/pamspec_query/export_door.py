"""The door of exports: one request document in, lines of JSON out, as fast as the client takes them.

Invariant: what is refused before the first line is an answer like any other; what fails after it is a last line that
says so, in the place of the end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing

import orjson

from pamspec_common.asgi import ClientGone, Receive, Scope, Send, read_body, send_answer
from pamspec_common.calls import refusal
from pamspec_common.errors import InvalidRequest, PamspecError, ServiceUnavailable
from pamspec_common.principal import PRINCIPAL_HEADER
from pamspec_common.transfer import MEDIA_TYPE, FailureLine, encode_line
from pamspec_query.handlers.export import Exporting

PATH = "/v1/export"
_MAX_REQUEST = 256 * 1024

Begin = Callable[[str, bytes], Awaitable[Exporting]]
"""Begins the export that a document of a signed principal asks for."""

_log = logging.getLogger(__name__)


class ExportDoor:
    """`POST /v1/export`; at most `at_once` under way in this process."""

    def __init__(self, begin: Begin, at_once: int) -> None:
        self._begin = begin
        self._places = asyncio.Semaphore(at_once)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != PATH or scope["method"] != "POST":
            await send_answer(send, refusal(InvalidRequest("No such path in this service.", status=404)))
            return
        try:
            body = await read_body(receive, _MAX_REQUEST)
            if self._places.locked():
                raise ServiceUnavailable("Too many exports are under way; try again shortly.", retry_after=5)
            async with self._places:
                exporting = await self._begin(_principal(scope), body)
                await _stream(exporting, receive, send)
        except PamspecError as error:
            await send_answer(send, refusal(error))


def _principal(scope: Scope) -> str:
    return next((value for name, value in scope["headers"] if name == PRINCIPAL_HEADER), b"").decode("latin-1")


async def _stream(exporting: Exporting, receive: Receive, send: Send) -> None:
    gone = asyncio.ensure_future(_disconnected(receive))
    try:
        await _send_lines(exporting, gone, send)
    finally:
        gone.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue


async def _send_lines(exporting: Exporting, gone: asyncio.Future[None], send: Send) -> None:
    headers = [(name.lower().encode(), value.encode()) for name, value in exporting.headers.items()]
    headers.append((b"content-type", MEDIA_TYPE.encode()))
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    try:
        async with aclosing(exporting.lines()) as pieces:
            async for lines in pieces:
                await send({"type": "http.response.body", "body": lines, "more_body": True})
                if gone.done():
                    raise ClientGone
    except PamspecError as error:
        _log.warning("an export ends early: %s", error, extra={"action": "export_failed"})
        body = refusal(error).body
        await send({"type": "http.response.body", "body": _failure(body), "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def _failure(body: bytes) -> bytes:
    return encode_line(FailureLine(error=orjson.loads(body)["error"]))
