"""A gateway that misbehaves on command, to prove what the client does about it.

It keeps one ledger in memory and answers in the forms of the contract. Each fault is set by a test: answers dropped
after the commit, refusals with Retry-After, streams cut between two frames, frames left out.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import WSMsgType, web

SCOPE = "workspace:tests"
SUBSCRIPTION = "sub:one"


def event(sequence: int, **members: Any) -> dict[str, Any]:
    """A ledger entry with this sequence."""
    return {
        "event_id": f"evt:{sequence}",
        "operation_id": f"op:{sequence}",
        "scope_id": SCOPE,
        "event_type": "object_created",
        "recorded_at": "2026-01-01T00:00:00.000000Z",
        "sequence": sequence,
        "actor": {"actor_id": "agent:a", "actor_kind": "agent"},
        "object_id": f"obj:{sequence}",
        "version_id": f"ver:{sequence}",
        "payload": {"object_type": "claim"},
        **members,
    }


def error(code: str, status: int, reason: str | None = None, **headers: str) -> web.Response:
    """An answer in the error envelope."""
    inner = {"code": code, "message": "Refused.", "retryable": status == 503, "operation_id": "op:e"}
    document = {"error": {**inner, "details": {"reason": reason} if reason else {}}}
    return web.json_response(document, status=status, headers=headers)


@dataclass
class Faults:
    """What goes wrong, and how often still."""

    drop_after_commit: int = 0
    refuse: list[web.Response] = field(default_factory=list)
    cut_stream_after: list[int] = field(default_factory=list)
    """Frames that each of the next streams carries before its connection is cut."""
    refuse_sockets: int = 0
    leave_out: set[int] = field(default_factory=set)
    """Sequences whose frames are lost on their way, once each."""


class ScriptedGateway:
    """The state, what was asked, and the faults."""

    def __init__(self) -> None:
        self.faults = Faults()
        self.ledger: list[dict[str, Any]] = []
        self.outcomes: dict[str, dict[str, Any]] = {}
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.last_event_ids: list[str | None] = []
        self.executions = 0
        self.cursor = 0
        self.epoch = 1
        self.filter: Callable[[dict[str, Any]], bool] = lambda _: True
        self.closed: dict[str, Any] | None = None
        self.ending: str | None = None
        self.channel_ref = ""
        self.arrived = asyncio.Event()
        self.url = ""

    def append(self, count: int) -> None:
        """Commit so many events."""
        for _ in range(count):
            self.ledger.append(event(len(self.ledger) + 1))
        self.arrived.set()
        self.arrived = asyncio.Event()

    def after(self, sequence: int) -> list[dict[str, Any]]:
        """The events of the subscription after a position."""
        return [entry for entry in self.ledger[sequence:] if self.filter(entry)]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        """Serve on a free port of loopback; the base URL."""
        app = web.Application()
        app.router.add_post("/v1/{operation}", self._operation)
        app.router.add_get("/v1/subscriptions/{id}/stream", self._stream)
        app.router.add_get("/v1/subscriptions/{id}/ws", self._socket)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        try:
            yield self.url
        finally:
            await runner.cleanup()

    async def _operation(self, request: web.Request) -> web.StreamResponse:
        operation, body = request.match_info["operation"], await request.read()
        document = json.loads(body)
        self.requests.append((operation, document))
        if self.faults.refuse:
            return self.faults.refuse.pop(0)
        handler = getattr(self, f"_{operation}", None)
        if handler is None:
            return error("invalid_request", 404)
        answer: web.Response = await handler(document)
        if operation == "create" and self.faults.drop_after_commit > 0:
            self.faults.drop_after_commit -= 1
            if request.transport is not None:
                request.transport.close()
        return answer

    async def _create(self, document: dict[str, Any]) -> web.Response:
        key = document.get("idempotency_key") or document["operation_id"]
        replayed = key in self.outcomes
        if not replayed:
            self.executions += 1
            self.append(1)
            self.outcomes[key] = outcome(len(self.ledger), document)
        headers = {
            "Pamspec-Ledger-Sequence": str(self.outcomes[key]["ledger_sequence"]),
            "Pamspec-Ledger-Epoch": str(self.epoch),
        }
        if replayed:
            headers["Idempotency-Replayed"] = "true"
        return web.json_response(self.outcomes[key], status=201, headers=headers)

    async def _read(self, document: dict[str, Any]) -> web.Response:
        if document.get("ledger_epoch", self.epoch) != self.epoch:
            return outdated(self.epoch, 0)
        return web.json_response(
            {"envelope": outcome(1, {"canonical_content": None})["envelope"]},
            headers={"Pamspec-As-Of-Sequence": str(len(self.ledger)), "Pamspec-Ledger-Epoch": str(self.epoch)},
        )

    async def _query(self, document: dict[str, Any]) -> web.Response:
        start = int(document["pagination"].get("cursor", "0"))
        end = start + document["pagination"]["limit"]
        items = [{"envelope": outcome(n + 1, {"canonical_content": n})["envelope"]} for n in range(start, min(end, 7))]
        return web.json_response({"items": items, "next_cursor": str(end) if end < 7 else None})

    async def _assemble(self, document: dict[str, Any]) -> web.Response:
        empty: dict[str, Any] = {"text": "", "instructions": [], "evidence": [], "conflicts": []}
        omitted = {"budget": 0, "duplicate": 0, "superseded": 0}
        return web.json_response({**empty, "omitted": omitted, "budget": {"max_tokens": 2000, "used_tokens": 0}})

    async def _list_subscriptions(self, document: dict[str, Any]) -> web.Response:
        entry = {
            "subscription": {"subscription_id": SUBSCRIPTION, "scope_id": SCOPE, "channel_ref": self.channel_ref},
            "channel": "poll",
            "include_content": False,
            "next_after_sequence": self.cursor,
            "ledger_epoch": self.epoch,
            "closed": self.closed,
        }
        return web.json_response({"subscriptions": [entry], "next_cursor": None})

    async def _poll(self, document: dict[str, Any]) -> web.Response:
        after = document.get("after_sequence", self.cursor)
        if document.get("ledger_epoch", self.epoch) != self.epoch:
            return outdated(self.epoch, 0)
        self.cursor = max(self.cursor, after)
        if not self.after(after) and self.closed is None and document.get("wait_ms"):
            await asyncio.wait([asyncio.ensure_future(self.arrived.wait())], timeout=document["wait_ms"] / 1000)
        events = self.after(after)[: document.get("max", 100)]
        head = events[-1]["sequence"] if events else max(after, len(self.ledger))
        answer = {"events": events, "next_after_sequence": head, "ledger_epoch": self.epoch, "closed": self.closed}
        return web.json_response(answer)

    async def _ack(self, document: dict[str, Any]) -> web.Response:
        self.cursor = max(self.cursor, document["sequence"])
        moved = {"subscription_id": SUBSCRIPTION, "next_after_sequence": self.cursor, "ledger_epoch": self.epoch}
        return web.json_response({**moved, "operation_id": "op:a"})

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        last = request.headers.get("Last-Event-ID")
        self.last_event_ids.append(last)
        if self.faults.refuse:
            return self.faults.refuse.pop(0)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        async for frame in self._frames(int(last.split("-")[1]) if last else self.cursor):
            if frame is None:
                break
            name = f"id: {self.epoch}-{frame['event']['sequence']}\n" if "event" in frame else ": progress\n"
            # In two pieces, so that the reader meets a message that is not whole.
            data = f"{name}data: {json.dumps(frame)}\n\n".encode()
            await response.write(data[:20])
            await response.write(data[20:])
        if request.transport is not None:
            request.transport.close()
        return response

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        if self.faults.refuse_sockets > 0:
            self.faults.refuse_sockets -= 1
            return error("invalid_request", 400)
        after = request.query.get("after_sequence")
        self.last_event_ids.append(after)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        frames = self._frames(int(after) if after else self.cursor)
        gone = asyncio.ensure_future(socket.receive())
        async for frame in frames:
            if frame is None or (gone.done() and gone.result().type in (WSMsgType.CLOSE, WSMsgType.CLOSED)):
                break
            await socket.send_str(json.dumps(frame))
        gone.cancel()
        if request.transport is not None:
            request.transport.close()
        return socket

    async def _frames(self, after: int) -> AsyncIterator[dict[str, Any] | None]:
        """Frames from a position on; None where the connection is to be cut."""
        budget = self.faults.cut_stream_after.pop(0) if self.faults.cut_stream_after else None
        previous, position, sent = after, after, 0
        while True:
            for entry in self.after(position):
                if budget is not None and sent >= budget:
                    yield None
                frame = {"event": entry, "prev_sequence": previous, "ledger_epoch": self.epoch}
                previous = position = entry["sequence"]
                if position in self.faults.leave_out:
                    self.faults.leave_out.discard(position)
                    continue
                sent += 1
                yield frame
            if budget is not None and sent >= budget:
                yield None
            if self.closed is not None:
                yield {"closed": self.closed, "ledger_epoch": self.epoch}
                yield None
            if self.ending is not None:
                reason, self.ending = self.ending, None
                yield {"ended": {"reason": reason, "last_sequence": position}, "ledger_epoch": self.epoch}
                yield None
            position = max(position, len(self.ledger))
            yield {"progress": position, "ledger_epoch": self.epoch}
            await self.arrived.wait()


def outdated(epoch: int, resume_after: int) -> web.Response:
    """The refusal of a position of an older epoch."""
    details = {"reason": "position_outdated", "ledger_epoch": epoch, "head_sequence": 9, "resume_after": resume_after}
    inner = {"code": "invalid_request", "message": "Outdated.", "retryable": False, "operation_id": "op:x"}
    return web.json_response({"error": {**inner, "details": details}}, status=400)


def outcome(sequence: int, document: dict[str, Any]) -> dict[str, Any]:
    """The answer of a create."""
    envelope = {
        "spec_version": "0.1.0-draft",
        "object_id": f"obj:{sequence}",
        "version_id": f"ver:{sequence}",
        "scope_id": SCOPE,
        "object_type": "claim",
        "canonical_content": document.get("canonical_content"),
        "lifecycle_state": "active",
        "availability_state": "available",
        "retention_state": "retained",
        "validation_state": "unverified",
        "committed_at": "2026-01-01T00:00:00.000000Z",
        "recorded_at": "2026-01-01T00:00:00.000000Z",
        "sequence": 1,
        "actor": {"actor_id": "agent:a", "actor_kind": "agent", "later_member": 1},
        "provenance": {"provenance_id": "prov:1", "activity": "test"},
        "later_member": {"kept": True},
    }
    return {
        "object_id": envelope["object_id"],
        "version_id": envelope["version_id"],
        "scope_id": SCOPE,
        "sequence": 1,
        "ledger_sequence": sequence,
        "event_id": f"evt:{sequence}",
        "operation_id": document.get("operation_id", "op:none"),
        "envelope": envelope,
    }
