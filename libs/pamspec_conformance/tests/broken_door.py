"""A proxy in front of a sound gateway: whatever comes under `/<variant>/` passes through that variant, which breaks one
promise; under `/sound/` everything passes as it is.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web

from pamspec_conformance.binding import parsed

Document = dict[str, Any]


@dataclass
class Answer:
    """What the gateway answered; a variant may change it."""

    status: int
    document: Any
    headers: dict[str, str]
    raw: bytes | None = None
    """The bytes as they came, while nobody changed the document."""

    @property
    def code(self) -> str | None:
        """The error code of a refusal."""
        inner = self.document.get("error") if isinstance(self.document, dict) else None
        return inner["code"] if inner else None

    def changed(self, document: Any, status: int | None = None) -> Answer:
        """The same answer with another body."""
        return Answer(status or self.status, document, self.headers)


@dataclass
class Exchange:
    """One request on its way through a variant."""

    door: BrokenDoor
    method: str
    operation: str
    document: Any
    headers: dict[str, str]
    body: bytes
    memory: Document
    """What the variant keeps between requests."""

    async def forward(
        self, document: Any = None, *, operation: str | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """What the gateway answers, to the request as it came or to another one."""
        body = self.body if document is None else json.dumps(document).encode()
        return await self.door.send(
            self.method, operation or self.operation, body, self.headers if headers is None else headers
        )


class Variant:
    """Breaks one promise; `breaks` names a case that must notice."""

    breaks: str = ""
    stranger: bool = False
    """Whether the case has a second principal."""

    async def __call__(self, exchange: Exchange) -> Answer:
        """The answer to give."""
        return await exchange.forward()


@dataclass
class BrokenDoor:
    """The running proxy."""

    gateway: str
    key: str = field(repr=False)
    session: aiohttp.ClientSession
    variants: dict[str, Variant] = field(default_factory=dict)
    memories: dict[str, Document] = field(default_factory=dict)
    address: str = ""

    def of(self, name: str, variant: Variant) -> str:
        """The address under which this variant answers."""
        self.variants[name] = variant
        self.memories[name] = {}
        return f"{self.address}/{name}"

    async def handle(self, request: web.Request) -> web.Response:
        """One request."""
        name = request.match_info["variant"]
        body = await request.read()
        try:
            document = json.loads(body)
        except ValueError:
            document = None
        kept = ("Authorization", "Content-Type", "Idempotency-Key")
        headers = {header: request.headers[header] for header in kept if header in request.headers}
        operation = request.match_info["path"].removeprefix("v1/")
        exchange = Exchange(self, request.method, operation, document, headers, body, self.memories[name])
        answer = await self.variants[name](exchange)
        raw = answer.raw if answer.raw is not None else json.dumps(answer.document).encode()
        return web.Response(status=answer.status, body=raw, headers=answer.headers, content_type="application/json")

    async def send(self, method: str, operation: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """What the gateway answers."""
        async with self.session.request(
            method, f"{self.gateway}/v1/{operation}", data=body or None, headers=headers
        ) as got:
            raw = await got.read()
            beside = {
                name: value
                for name, value in got.headers.items()
                if name.startswith(("Pamspec-", "pamspec-")) or name.lower() == "idempotency-replayed"
            }
            return Answer(got.status, parsed(raw), beside, raw)


@asynccontextmanager
async def broken_door(gateway: str, key: str) -> AsyncIterator[BrokenDoor]:
    """A proxy on a free port of loopback."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        door = BrokenDoor(gateway, key, session)
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{variant}/{path:.*}", door.handle)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        door.address = f"http://{host}:{port}"
        try:
            yield door
        finally:
            await runner.cleanup()
