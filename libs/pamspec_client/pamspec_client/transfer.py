"""Exports and imports: files of any length, streamed both ways.

Invariant: an export that ends without its last line raises, it never looks whole; an import is sent again only from its
beginning and under the same operation_id, and the service takes a file once, however often it comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp

from pamspec_client.errors import NoAnswer, PamspecError, ProtocolError, ServiceUnavailable, refusal_of
from pamspec_client.transport import TRANSPORT_ERRORS, Reply, Transport, failure

PIECE = 1024 * 1024
LINES = "application/x-ndjson"
_END, _FAILURE = b'{"kind":"end"', b'{"kind":"failure"'
_CONNECT_S, _SILENT_S = 5.0, 60.0

File = str | Path | bytes | Iterable[bytes] | AsyncIterable[bytes]
"""A path, the bytes themselves, or pieces of them."""
Progress = Callable[[int], None]
"""Told how many bytes were sent so far."""


async def exported(transport: Transport, body: bytes) -> AsyncIterator[bytes]:
    """The pieces of an export; raises the service's refusal, or ProtocolError when it ends without its last line."""
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=_SILENT_S)
    last = b""
    async for piece in _begun(transport, body, timeout):
        last += piece
        last = last[last.rfind(b"\n", 0, -1) + 1 :]
        yield piece
    if last.startswith(_FAILURE):
        refused = refusal_of(b"{" + last.strip()[len(b'{"kind":"failure",') :], status=503)
        raise refused or ProtocolError("the export failed on its way; export again")
    if not last.startswith(_END) or not last.endswith(b"\n"):
        raise ProtocolError("the export was cut on its way; export again")


async def _begun(transport: Transport, body: bytes, timeout: aiohttp.ClientTimeout) -> AsyncIterator[bytes]:
    """The pieces of the answer; until it has begun, the call is tried again like any other."""
    tries = 0
    while True:
        tries += 1
        try:
            response = await transport.session.post(f"{transport.base_url}/v1/export", data=body, timeout=timeout)
        except TRANSPORT_ERRORS as error:
            await _pause(transport, tries, error, "export", None)
            continue
        async with response:
            if response.status != 200:
                refused = failure(response, await response.read())
                if not isinstance(refused, ServiceUnavailable | aiohttp.ClientError):
                    raise refused
                await _pause(transport, tries, refused, "export", None)
                continue
            try:
                async for piece in response.content.iter_chunked(PIECE):
                    yield piece
            except TRANSPORT_ERRORS as error:
                raise ProtocolError("the export was cut on its way; export again") from error
            return


async def imported(transport: Transport, document: dict[str, Any], file: File, progress: Progress | None) -> Reply:
    """The answer to a file; one that can be read again is sent again after a lost answer or service_unavailable."""
    remap = document.pop("remap", None)
    members = {**document, **({} if remap is None else {"remap": remap["scope_id"]})}
    url = f"{transport.base_url}/v1/import?{urlencode({name: str(value) for name, value in members.items()})}"
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=None)
    again = isinstance(file, str | Path | bytes)
    tries = 0
    while True:
        tries += 1
        try:
            async with transport.session.post(
                url, data=_pieces(file, progress), timeout=timeout, headers={"Content-Type": LINES}
            ) as response:
                answer = await response.read()
                if response.status < 300:
                    return Reply(response.status, answer, response.headers)
                refused = failure(response, answer)
        except TRANSPORT_ERRORS as error:
            refused = error if isinstance(error, aiohttp.ClientError) else aiohttp.ClientConnectionError(str(error))
        if not again or not isinstance(refused, ServiceUnavailable | aiohttp.ClientError):
            if isinstance(refused, aiohttp.ClientError):
                raise _no_answer(transport, tries, refused, "import", document.get("operation_id"))
            raise refused
        await _pause(transport, tries, refused, "import", document.get("operation_id"))


async def _pieces(file: File, progress: Progress | None) -> AsyncIterator[bytes]:
    sent = 0
    async for piece in _read(file):
        yield piece
        sent += len(piece)
        if progress is not None:
            progress(sent)


async def _read(file: File) -> AsyncIterator[bytes]:
    if isinstance(file, bytes):
        for start in range(0, len(file), PIECE):
            yield file[start : start + PIECE]
    elif isinstance(file, str | Path):
        opened = await asyncio.to_thread(Path(file).open, "rb")
        try:
            while piece := await asyncio.to_thread(opened.read, PIECE):
                yield piece
        finally:
            await asyncio.to_thread(opened.close)
    elif isinstance(file, AsyncIterable):
        async for piece in file:
            yield piece
    else:
        pieces = iter(file)
        while piece := await asyncio.to_thread(next, pieces, b""):
            yield piece


async def _pause(
    transport: Transport, tries: int, error: BaseException, operation: str, operation_id: str | None
) -> None:
    """Wait before the next try, or raise when there is none."""
    wait_s = error.retry_after_s if isinstance(error, ServiceUnavailable) else None
    if tries >= transport.retry.attempts or (wait_s or 0.0) > transport.retry.patience_s:
        if isinstance(error, PamspecError):
            raise error
        raise _no_answer(transport, tries, error, operation, operation_id)
    await asyncio.sleep(transport.retry.pause_s(tries, wait_s))


def _no_answer(
    transport: Transport, tries: int, error: BaseException, operation: str, operation_id: str | None
) -> NoAnswer:
    found = NoAnswer(
        f"{operation}: no answer from {transport.base_url} after {tries} tries ({type(error).__name__}); check the"
        " address and that the service runs",
        operation=operation,
        operation_id=operation_id,
        idempotency_key=None,
    )
    found.__cause__ = error
    return found
