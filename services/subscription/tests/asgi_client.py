"""A client of a stream whose pace is in the test's hands: it takes a chunk only when the test says so."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

import orjson

from pamspec_common.service import Service
from services.subscription.tests.world import Document, token


class SlowClient:
    """An SSE request straight into the service's ASGI application."""

    def __init__(self, service: Service, subscription_id: str, last_event_id: str | None = None) -> None:
        self._taking = asyncio.Semaphore(0)
        self._leaving = asyncio.Event()
        self.chunks: list[bytes] = []
        self.status = 0
        headers = [(b"x-pamspec-principal", token().encode())]
        if last_event_id is not None:
            headers.append((b"last-event-id", last_event_id.encode()))
        scope = {
            "type": "http",
            "method": "GET",
            "path": f"/v1/subscriptions/{subscription_id}/stream",
            "query_string": b"",
            "headers": headers,
        }
        assert service.app is not None
        self.done = asyncio.ensure_future(service.app(scope, self._receive, self._send))

    def take(self, chunks: int = 1) -> None:
        """Allow so many chunks more."""
        for _ in range(chunks):
            self._taking.release()

    def leave(self) -> None:
        self._leaving.set()

    async def _receive(self) -> MutableMapping[str, Any]:
        await self._leaving.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            return
        await self._taking.acquire()
        self.chunks.append(message.get("body", b""))

    @property
    def frames(self) -> list[Document]:
        """The frames taken so far."""
        lines = b"".join(self.chunks).split(b"\n")
        return [orjson.loads(line.removeprefix(b"data: ")) for line in lines if line.startswith(b"data: ")]

    @property
    def sequences(self) -> list[int]:
        """The sequences of the events taken so far."""
        return [frame["event"]["sequence"] for frame in self.frames if "event" in frame]
