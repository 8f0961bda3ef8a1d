"""The erasure log: which versions lost their values, by ids alone, kept outside PostgreSQL.

A backup that is older than an erasure holds what was erased; whoever restores it reads the log and erases it again.
Invariant: an entry that was acknowledged is stored at least once; readers tell repetitions by the erasure's id.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import msgspec
import nats.errors
import orjson
from nats.aio.client import Client

from pamspec_common import contracts, streams
from pamspec_common.ids import subject_token
from pamspec_common.segments import Segments
from pamspec_common.strict_json import dumps

STREAM = "PAMSPEC_ERASURES"
_AT_ONCE = 64


class Erased(msgspec.Struct, frozen=True, omit_defaults=True):
    """One erasure of a scope."""

    erasure_id: str
    kind: str
    """delete or redact."""
    position: int
    erased: list[tuple[int, int]]
    """Ranges of version sequences, both ends included."""
    at: str
    object_id: str | None = None
    relationship_id: str | None = None


class LogEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """contracts/schemas/erasure-log.json."""

    tenant_id: str
    scope_id: str
    ledger_id: str
    erasures: list[Erased] = msgspec.field(default_factory=list)
    scope_deleted_at: str | None = None

    def document(self) -> bytes:
        """As it is stored."""
        return dumps({"erasures": [], **msgspec.to_builtins(self)})


_decode = msgspec.json.Decoder(LogEntry).decode


def read(document: bytes) -> LogEntry:
    """The entry of a stored document; ValueError when it is none."""
    try:
        return _decode(document)
    except msgspec.DecodeError as error:
        raise ValueError(f"no entry of the erasure log: {error}") from None


class ErasureStream:
    """The log on the bus. Errors of the bus, and StreamRefused, are raised as they are."""

    def __init__(self, client: Client, timeout_s: float = 5.0) -> None:
        self._client, self._timeout_s = client, timeout_s
        self._subject = contracts.streams().subjects["erasure"]

    async def ensure(self, replicas: int | None = None) -> streams.Ensured:
        """Make the stream where it is missing, and compare it with its contract."""
        request = contracts.streams().stream_request("erasures", 0, replicas=replicas)
        return await streams.ensure(self._client, request, self._timeout_s)

    async def put(self, entries: Sequence[LogEntry]) -> None:
        """Store entries; each was acknowledged when this returns."""
        for at in range(0, len(entries), _AT_ONCE):
            await asyncio.gather(*map(self._put, entries[at : at + _AT_ONCE]))

    async def entries(self) -> AsyncIterator[LogEntry]:
        """Everything that the stream holds, in its order; nothing where there is no stream."""
        info = await streams.inspect(self._client, STREAM, self._timeout_s)
        if info is None:
            return
        async for page in streams.read(self._client, info, 0, self._timeout_s):
            for message in page:
                yield read(message.data)

    async def _put(self, entry: LogEntry) -> None:
        if not self._client.is_connected:
            raise nats.errors.ConnectionClosedError
        subject = self._subject.subject(
            tenant_token=subject_token(entry.tenant_id), scope_token=subject_token(entry.tenant_id, entry.scope_id)
        )
        reply = await self._client.request(subject, entry.document(), timeout=self._timeout_s)
        answer = orjson.loads(reply.data or b"{}")
        if "error" in answer:
            raise streams.StreamRefused(subject, answer["error"])
        if answer.get("stream") != STREAM:
            raise nats.errors.NoRespondersError


class ErasureFiles:
    """The log in files of one directory, one entry a line; appended to, never removed."""

    def __init__(self, directory: Path) -> None:
        self._files = Segments(directory, "erasures")

    def append(self, entries: Sequence[LogEntry]) -> None:
        """Append entries; they are on disk when this returns. OSError when they are not."""
        self._files.append([entry.document() for entry in entries])

    def entries(self) -> Iterator[LogEntry]:
        """Everything in the files, in its order; a line that a crash has cut off is passed over."""
        for line in self._files.lines():
            try:
                yield read(line)
            except ValueError:
                continue
