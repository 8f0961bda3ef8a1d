"""The bucket of checkpoints on the bus: compare-and-set per scope, many scopes in one atomic batch."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import nats.errors
import orjson
from nats.aio.client import Client

from pamspec_common import contracts, streams
from pamspec_common.checkpoints import STREAM

WRONG_LAST_SEQUENCE = 10071
_BATCH = 500
_SINGLES = 4
"""Up to here single messages are as fast as an atomic batch."""


class Entry(NamedTuple):
    """A checkpoint to be put, and the sequence of the one that it follows, 0 for none."""

    tenant_token: str
    scope_token: str
    document: bytes
    follows: int


class Held(NamedTuple):
    """What the bucket holds of a scope."""

    sequence: int
    document: bytes


class CheckpointBucket:
    """One bucket over one connection. Errors of the bus, and StreamRefused, are raised as they are."""

    def __init__(self, client: Client, timeout_s: float = 5.0) -> None:
        self._client, self._timeout_s = client, timeout_s
        self._subject = contracts.streams().subjects["checkpoint"]

    async def ensure(self, replicas: int | None = None) -> streams.Ensured:
        """Make the bucket where it is missing, and compare it with its contract."""
        request = contracts.streams().stream_request("checkpoints", 0, replicas=replicas)
        return await streams.ensure(self._client, request, self._timeout_s)

    async def get(self, tenant_token: str, scope_token: str) -> Held | None:
        """The newest checkpoint of a scope, as some replica has it; None when there is none."""
        subject = self._subject.subject(tenant_token=tenant_token, scope_token=scope_token)
        if not self._client.is_connected:
            raise nats.errors.ConnectionClosedError
        found = await self._client.request(f"$JS.API.DIRECT.GET.{STREAM}.{subject}", b"", timeout=self._timeout_s)
        headers = found.headers or {}
        status = headers.get("Status")
        if status == "404":
            return None
        if status is not None:
            raise streams.StreamRefused(subject, {"err_code": int(status), "description": headers.get("Description")})
        return Held(int(headers["Nats-Sequence"]), bytes(found.data))

    async def put(self, entries: Sequence[Entry]) -> list[int | None]:
        """The sequence of each in the bucket, None where something else stands there than what it follows."""
        found: list[int | None] = []
        for at in range(0, len(entries), _BATCH):
            found += await self._put(entries[at : at + _BATCH])
        return found

    async def _put(self, entries: Sequence[Entry]) -> list[int | None]:
        if len(entries) > _SINGLES:
            try:
                last = await self._batch(entries)
            except streams.StreamRefused as error:
                if error.code != WRONG_LAST_SEQUENCE:
                    raise
            else:
                return list(range(last - len(entries) + 1, last + 1))
        return list(await asyncio.gather(*map(self._single, entries)))

    async def _batch(self, entries: Sequence[Entry]) -> int:
        """All of them or none; the sequence of the last."""
        batch = secrets.token_hex(16)
        for number, entry in enumerate(entries, start=1):
            headers = {**_follows(entry), "Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)}
            if number < len(entries):
                await self._client.publish(self._of(entry), entry.document, headers=headers)
            else:
                return await self._request(entry, {**headers, "Nats-Batch-Commit": "1"})
        raise AssertionError("a batch has a last entry")

    async def _single(self, entry: Entry) -> int | None:
        try:
            return await self._request(entry, _follows(entry))
        except streams.StreamRefused as error:
            if error.code != WRONG_LAST_SEQUENCE:
                raise
            return None

    async def _request(self, entry: Entry, headers: Mapping[str, str]) -> int:
        if not self._client.is_connected:
            raise nats.errors.ConnectionClosedError
        subject = self._of(entry)
        reply = await self._client.request(subject, entry.document, timeout=self._timeout_s, headers=dict(headers))
        if not reply.data:
            raise nats.errors.NoRespondersError
        document = orjson.loads(reply.data)
        if "error" in document:
            raise streams.StreamRefused(subject, document["error"])
        return int(document["seq"])

    def _of(self, entry: Entry) -> str:
        return self._subject.subject(tenant_token=entry.tenant_token, scope_token=entry.scope_token)


def _follows(entry: Entry) -> dict[str, str]:
    return {"Nats-Expected-Last-Subject-Sequence": str(entry.follows)}
