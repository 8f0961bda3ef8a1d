"""JetStream streams as contracts/streams.yaml describes them: made, verified, looked at and read back.

Invariant: a stream that exists is never changed from here; where it differs from its contract the difference is
reported. What `read` yields is complete: every sequence of the range is there, or the server says that it is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import nats.errors
import orjson
from nats.aio.client import Client
from nats.aio.msg import Msg

STREAM_NOT_FOUND = 10059
STREAM_NAME_IN_USE = 10058

READ_MESSAGES = 1000
READ_BYTES = 4 * 1024 * 1024
_PAGES_WITHOUT_PROGRESS = 40
_NOT_PROMISED = frozenset({"description"})


class StreamRefused(Exception):
    """JetStream answered a request with an error."""

    def __init__(self, subject: str, error: Mapping[str, Any]) -> None:
        self.code = int(error.get("err_code") or error.get("code") or 0)
        super().__init__(f"{subject}: {self.code} {error.get('description', '')}")


class StreamIncomplete(Exception):
    """A read did not get every message of its range in time: a replica lags, or the stream changes under the reader."""


@dataclass(frozen=True)
class Drift:
    """One setting in which a stream differs from its contract."""

    setting: str
    wanted: Any
    found: Any


@dataclass(frozen=True)
class StreamInfo:
    """What the stream's leader says of it."""

    name: str
    created: str
    """The time of its making as the server writes it; another one means another stream."""
    first_seq: int
    last_seq: int
    messages: int
    deleted: int
    """Messages between the first and the last that are gone."""
    config: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Ensured:
    """A stream that exists now."""

    info: StreamInfo
    made: bool
    drift: tuple[Drift, ...]


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message as the stream holds it."""

    sequence: int
    subject: str
    headers: Mapping[str, str]
    data: bytes


async def ensure(client: Client, request: Mapping[str, Any], timeout_s: float = 5.0) -> Ensured:
    """Make the stream of this create request (`Bus.stream_request`) where it is missing, and compare it.

    Raises StreamRefused, or an error of the bus when JetStream does not answer.
    """
    name = str(request["name"])
    info = await inspect(client, name, timeout_s)
    made = info is None
    if info is None:
        try:
            await _api(client, f"STREAM.CREATE.{name}", orjson.dumps(request), timeout_s)
        except StreamRefused as error:
            if error.code != STREAM_NAME_IN_USE:
                raise
        info = await inspect(client, name, timeout_s)
    if info is None:
        raise StreamIncomplete(f"{name} was made and is not there")
    return Ensured(info, made, drift(request, info.config))


def drift(request: Mapping[str, Any], config: Mapping[str, Any]) -> tuple[Drift, ...]:
    """Where a stream's configuration differs from the request; the server leaves out what is zero, false or empty."""
    return tuple(
        Drift(setting, wanted, config.get(setting))
        for setting, wanted in sorted(request.items())
        if setting not in _NOT_PROMISED and (config.get(setting) or None) != (wanted or None)
    )


async def inspect(client: Client, name: str, timeout_s: float = 5.0) -> StreamInfo | None:
    """The stream as its leader sees it, or None when there is none."""
    try:
        document = await _api(client, f"STREAM.INFO.{name}", b"", timeout_s)
    except StreamRefused as error:
        if error.code == STREAM_NOT_FOUND:
            return None
        raise
    state = document["state"]
    return StreamInfo(
        name=name,
        created=document["created"],
        first_seq=state["first_seq"],
        last_seq=state["last_seq"],
        messages=state["messages"],
        deleted=state.get("num_deleted", 0),
        config=document["config"],
    )


async def read(
    client: Client, info: StreamInfo, after: int, timeout_s: float = 5.0
) -> AsyncIterator[list[StoredMessage]]:
    """Every message of `info` with a sequence beyond `after`, in order, in pages.

    A page comes from any replica, so each is checked: a message may only be missing when the leader says that it was
    deleted or has expired meanwhile. StreamIncomplete when that stays so; errors of the bus as they are.
    """
    inbox = client.new_inbox()
    arrived: asyncio.Queue[Msg] = asyncio.Queue()
    subscription = await client.subscribe(inbox, cb=arrived.put)
    try:
        expected, stalled = max(after + 1, info.first_seq), 0
        while expected <= info.last_seq:
            body = orjson.dumps({"seq": expected, "batch": READ_MESSAGES, "max_bytes": READ_BYTES})
            await client.publish(f"$JS.API.DIRECT.GET.{info.name}", body, reply=inbox)
            page = await _page(arrived, timeout_s)
            page = [message for message in page if expected <= message.sequence <= info.last_seq]
            found = {message.sequence for message in page}
            upto = page[-1].sequence if page else info.last_seq
            lacking = [sequence for sequence in range(expected, upto + 1) if sequence not in found]
            if lacking and not await _gone(client, info, lacking, timeout_s):
                stalled += 1
                if stalled >= _PAGES_WITHOUT_PROGRESS:
                    raise StreamIncomplete(f"{info.name} lacks sequence {lacking[0]}")
                await asyncio.sleep(0.05)
                continue
            if page:
                yield page
            expected, stalled = upto + 1, 0
    finally:
        if not client.is_closed:
            await subscription.unsubscribe()


async def _gone(client: Client, info: StreamInfo, sequences: list[int], timeout_s: float) -> bool:
    """Whether the leader says that these messages are no longer there."""
    document = await _api(client, f"STREAM.INFO.{info.name}", b'{"deleted_details":true}', timeout_s)
    if document["created"] != info.created:
        raise StreamIncomplete(f"{info.name} was made anew while it was read")
    first: int = document["state"]["first_seq"]
    deleted = set(document["state"].get("deleted") or ())
    return all(sequence < first or sequence in deleted for sequence in sequences)


async def _page(arrived: asyncio.Queue[Msg], timeout_s: float) -> list[StoredMessage]:
    """The messages of one direct request, up to its end marker."""
    page: list[StoredMessage] = []
    while True:
        async with asyncio.timeout(timeout_s):
            message = await arrived.get()
        headers = message.headers or {}
        status = headers.get("Status")
        if status is None:
            page.append(
                StoredMessage(int(headers["Nats-Sequence"]), headers["Nats-Subject"], headers, bytes(message.data))
            )
        elif status in ("204", "404"):
            return page
        elif status == "503":
            raise nats.errors.NoRespondersError
        else:
            raise StreamRefused("direct get", {"err_code": int(status), "description": headers.get("Description")})


async def _api(client: Client, request: str, body: bytes, timeout_s: float) -> dict[str, Any]:
    if not client.is_connected:
        raise nats.errors.ConnectionClosedError
    reply = await client.request(f"$JS.API.{request}", body, timeout=timeout_s)
    document: dict[str, Any] = orjson.loads(reply.data)
    if "error" in document:
        raise StreamRefused(request, document["error"])
    return document
