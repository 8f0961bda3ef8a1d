"""An export as a test takes it: through the service's door, whole or a piece at a time."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Any

import orjson

from pamspec_common import contracts
from pamspec_common.asgi import Message
from pamspec_common.principal import PRINCIPAL_HEADER, Principal, TokenSigner
from pamspec_common.service import Service
from pamspec_common.transfer import manifest_digest
from services.query.tests.door import KEY, Door


class Taking:
    """A client of an export that takes an answer as fast as a test lets it."""

    def __init__(self, service: Service, principal: Principal, body: bytes) -> None:
        assert service.app is not None
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.body = bytearray()
        self.pieces = 0
        self.go = asyncio.Event()
        self.go.set()
        self.waiting = asyncio.Event()
        self._step = False
        self.leave = asyncio.Event()
        self._asked = [{"type": "http.request", "body": body}]
        token = TokenSigner("k1", KEY).sign(principal).encode()
        scope: dict[str, Any] = {"type": "http", "method": "POST", "path": "/v1/export", "headers": []}
        scope["headers"].append((PRINCIPAL_HEADER, token))
        self.task = asyncio.ensure_future(service.app(scope, self._receive, self._send))

    async def step(self) -> None:
        """Take one piece; returns when the next one waits to be taken."""
        assert not self.go.is_set()
        self._step = True
        self.go.set()
        while self.go.is_set():
            await asyncio.sleep(0)
        await self.waiting.wait()

    async def _receive(self) -> Message:
        if self._asked:
            return self._asked.pop()
        await self.leave.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], dict(message["headers"])
            return
        self.waiting.set()
        await self.go.wait()
        if self._step:
            self._step = False
            self.go.clear()
            self.waiting.clear()
        self.body += message["body"]
        self.pieces += 1


async def taken(door: Door, **document: Any) -> Taking:
    """The whole answer to an export of these members."""
    taking = Taking(door.service, door.principal, orjson.dumps(document))
    await taking.task
    return taking


async def exported(door: Door, scope_id: str, **document: Any) -> bytes:
    """A whole export; every line keeps its contract and the last one adds up."""
    taking = await taken(door, scope_id=scope_id, **document)
    assert taking.status == 200, bytes(taking.body)
    body = bytes(taking.body)
    check_export(body)
    return body


def check_export(body: bytes) -> None:
    """A file is what the format says."""
    lines = body.splitlines(keepends=True)
    documents = [json.loads(line) for line in lines]
    validator = contracts.answer_validator("export")
    for document in documents:
        validator.validate(document)
        if document["kind"] == "entry":
            contracts.check("memory-event", document["event"])
    kinds = [document["kind"] for document in documents]
    assert kinds == ["manifest", "scope", *["entry"] * (len(lines) - 3), "end"]
    assert documents[0]["digest"] == manifest_digest(lines[0])
    end = documents[-1]
    assert end["digest"] == "sha256:" + hashlib.sha256(b"".join(lines[1:-1])).hexdigest()
    entries = documents[2:-1]
    assert (end["entries"], end["sequence"]) == (len(entries), len(entries))
    assert end["versions"] == sum("version" in entry for entry in entries)
    assert end["operations"] == sum("operation" in entry for entry in entries)
    assert end["source_events"] == sum("source_event" in entry.get("operation", {}) for entry in entries)


def without_manifest(body: bytes) -> bytes:
    """All that two exports of the same state have in common."""
    return body.partition(b"\n")[2]
