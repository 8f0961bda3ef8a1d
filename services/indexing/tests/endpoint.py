"""A stub of an embeddings endpoint: vectors that follow from the words of a text, and trouble where a test asks."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

DIMENSIONS = 32
MODEL = "stub-1"


def vector_of(text: str) -> list[float]:
    """A direction that texts share as far as they share words."""
    found = [0.0] * DIMENSIONS
    for word, count in Counter(text.lower().split()).items():
        digest = hashlib.blake2b(word.encode(), digest_size=DIMENSIONS).digest()
        for place, byte in enumerate(digest):
            found[place] += (byte - 127.5) * count
    length = math.hypot(*found) or 1.0
    return [number / length for number in found]


@dataclass
class Stub:
    """What it was asked, and how it answers."""

    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    trouble: list[web.Response] = field(default_factory=list)
    """Answers instead of vectors, the first first."""
    open: asyncio.Event = field(default_factory=asyncio.Event)
    """Nothing is answered before."""
    runner: web.AppRunner | None = None

    @property
    def texts(self) -> list[str]:
        """All texts that it was asked to embed."""
        return [text for one in self.asked for text in one["input"]]

    async def start(self) -> None:
        """Listen on a free port of loopback."""
        self.open.set()
        app = web.Application()
        app.router.add_post("/v1/embeddings", self._answer)
        app.router.add_post("/elsewhere", self._answer)
        self.runner = web.AppRunner(app)
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", 0)
        await site.start()
        host, port = self.runner.addresses[0][:2]
        self.url = f"http://{host}:{port}/v1"

    async def stop(self) -> None:
        """End."""
        self.open.set()
        if self.runner is not None:
            await self.runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        document = await request.json()
        self.asked.append(document)
        self.keys.append(request.headers.get("Authorization"))
        await self.open.wait()
        if self.trouble:
            return self.trouble.pop(0)
        rows = [{"index": n, "embedding": vector_of(text)} for n, text in enumerate(document["input"])]
        return web.json_response({"data": rows[::-1], "model": MODEL})
