"""TCP between a client and a server that a test cuts, slows down or swallows, or that loses answers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Self
from urllib.parse import urlsplit

from pamspec_cli.servers.process import LOOPBACK

CHUNK = 64 * 1024


class Wire:
    """Passes bytes between a port of its own and a server."""

    def __init__(self, target: str) -> None:
        self._target = urlsplit(target)
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()
        self.is_cut = False
        self.delay_s = 0.0
        """How long each piece of bytes is on its way, in both directions."""
        self._passing = asyncio.Event()
        self._passing.set()

    @classmethod
    @asynccontextmanager
    async def to(cls, target: str) -> AsyncIterator[Self]:
        """A wire to this URL, gone at the end."""
        async with cls(target).running() as wire:
            yield wire

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """Listens while the block runs."""
        self._server = await asyncio.start_server(self._connected, LOOPBACK, 0)
        try:
            yield self
        finally:
            self._server.close()
            self.cut()
            await asyncio.gather(*self._open, return_exceptions=True)

    @property
    def url(self) -> str:
        """The target's URL, but over this wire."""
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        return f"{self._target.scheme}://{LOOPBACK}:{port}"

    def cut(self) -> None:
        """Break every connection, and every new one at once."""
        self.is_cut = True
        for task in self._open:
            task.cancel()

    def swallow(self) -> None:
        """Nothing comes through, and nobody is told: a black hole, until it is mended."""
        self._passing.clear()

    def mend(self) -> None:
        """Everything passes again, at once."""
        self.is_cut, self.delay_s = False, 0.0
        self._passing.set()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._pass(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream: asyncio.StreamWriter | None = None
        try:
            if self.is_cut:
                return
            try:
                answers, upstream = await asyncio.open_connection(self._target.hostname, self._target.port)
            except OSError:
                return
            ways = [
                asyncio.ensure_future(self._copy(reader, upstream)),
                asyncio.ensure_future(self._back(answers, writer)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        finally:
            for end in (writer, upstream):
                if end is not None:
                    end.transport.abort()

    async def _back(self, answers: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._copy(answers, writer)

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while chunk := await reader.read(CHUNK):
                await self._passing.wait()
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                writer.write(chunk)
                await writer.drain()


class AnswerLosingWire(Wire):
    """Breaks the connection when the server answers, so many times: what was asked for is done by then."""

    losses = 0

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self.lost = 0

    @classmethod
    @asynccontextmanager
    async def to(cls, target: str, losses: int = 1) -> AsyncIterator[Self]:
        """A wire that loses so many answers, then none."""
        wire = cls(target)
        wire.losses = losses
        async with wire.running():
            yield wire

    async def _back(self, answers: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await answers.read(CHUNK)
        if first and self.lost < self.losses:
            self.lost += 1
            return
        writer.write(first)
        await self._copy(answers, writer)
