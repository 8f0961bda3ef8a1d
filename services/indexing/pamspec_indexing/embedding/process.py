"""A model in a process of its own: started, watched, started again, and asked one small thing after another.

Invariants: at most one request is with the process, so a query waits for one batch of passages and not for all of them;
queries go before passages; a process that has not answered within the time is ended, and so is one that broke off. The
next is started after a pause that doubles while none answers.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import sys
from array import array
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from pamspec_common.embedding_spaces import EmbeddingSpace
from pamspec_common.service import Part
from pamspec_indexing.embedding.embedder import Kind, Unavailable, Vector
from pamspec_indexing.embedding.frames import LENGTH, MAX_FRAME, Reply, Request, framed
from pamspec_indexing.embedding.models import LOADING

_log = logging.getLogger(__name__)
_MAX_WAITING = 64
_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 30.0
_PASSED_ON = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "HOME", "LANG", "VIRTUAL_ENV")
"""What of the environment the process gets: no secret of the service is among it."""


@dataclass(order=True)
class _Job:
    urgency: tuple[int, int]
    kind: Kind = field(compare=False)
    texts: list[str] = field(compare=False)
    answer: asyncio.Future[list[Vector]] = field(compare=False)


class ProcessEmbedder:
    """A built-in model (Embedder)."""

    batch = 4

    def __init__(self, name: str, *, threads: int = 1, nice: int = 10, patience_s: float = 60.0) -> None:
        self.space: EmbeddingSpace = LOADING[name][0]
        self._command = (sys.executable, "-m", "pamspec_indexing.embedding", name, str(threads), str(nice))
        self._patience_s = patience_s
        self._numbers = itertools.count()
        self._jobs: asyncio.PriorityQueue[_Job] = asyncio.PriorityQueue()
        self._process: asyncio.subprocess.Process | None = None
        self._running: asyncio.Task[None] | None = None
        self._pause_s, self._starts, self._error = 0.0, 0, "starting"

    @property
    def pid(self) -> int | None:
        """The process that answers now."""
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Begin; the process comes up beside the service."""
        if self._running is None:
            self._running = asyncio.create_task(self._run(), name="embedding")

    async def stop(self) -> None:
        """End the process and all that waits."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
            self._running = None
        await self._end()
        while not self._jobs.empty():
            self._fail(self._jobs.get_nowait(), "stopping")

    async def embed(self, texts: Sequence[str], kind: Kind, within_s: float) -> list[Vector]:
        """The vectors; Unavailable when too much waits already, or when there are none within the time."""
        if self._running is None or self._jobs.qsize() >= _MAX_WAITING:
            raise _unavailable("too much waits")
        answer: asyncio.Future[list[Vector]] = asyncio.get_running_loop().create_future()
        urgency = (0 if kind == "query" else 1, next(self._numbers))
        self._jobs.put_nowait(_Job(urgency, kind, list(texts), answer))
        try:
            async with asyncio.timeout(within_s):
                return await answer
        except TimeoutError:
            raise _unavailable("too slow") from None

    def part(self) -> Part:
        """Whether the process answers."""
        detail = {"space": self.space.embedding_space_id, "waiting": self._jobs.qsize(), "starts": self._starts}
        return Part("embedder", not self._error, detail | ({"error": self._error} if self._error else {}), False)

    async def _run(self) -> None:
        while True:
            job = await self._jobs.get()
            if job.answer.done():
                continue
            try:
                vectors = await self._answered(job)
            except (OSError, EOFError, TimeoutError, ValueError, msgspec.DecodeError) as error:
                self._error = type(error).__name__
                _log.warning("the embedding process failed", extra={"action": "embedder_failed", "error": self._error})
                await self._end()
                self._pause_s = min(_LONGEST_PAUSE_S, max(_PAUSE_S, self._pause_s * 2))
                self._fail(job, self._error)
            else:
                self._pause_s, self._error = 0.0, ""
                if not job.answer.done():
                    job.answer.set_result(vectors)

    async def _answered(self, job: _Job) -> list[Vector]:
        async with asyncio.timeout(self._patience_s + self._pause_s):
            process = await self._started()
            assert process.stdin is not None
            assert process.stdout is not None
            number = next(self._numbers)
            process.stdin.write(framed(Request(number, job.kind, job.texts)))
            await process.stdin.drain()
            size = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))[0]
            if size > MAX_FRAME:
                raise ValueError("the answer is too large")
            reply = msgspec.msgpack.decode(await process.stdout.readexactly(size), type=Reply)
        if reply.id != number or reply.error is not None:
            raise ValueError(reply.error or "another answer")
        return _rows(reply.vectors, len(job.texts), self.space.dimensions)

    async def _started(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            await self._end()
            if self._pause_s:
                await asyncio.sleep(self._pause_s)
            self._starts += 1
            pipe = asyncio.subprocess.PIPE
            environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdin=pipe, stdout=pipe, env=environment, start_new_session=True
            )
        return self._process

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    def _fail(self, job: _Job, reason: str) -> None:
        if not job.answer.done():
            job.answer.set_exception(_unavailable(reason))


def _rows(packed: bytes, count: int, dimensions: int) -> list[Vector]:
    numbers = array("f", packed)
    if len(numbers) != count * dimensions:
        raise ValueError("the answer has other dimensions")
    return [numbers[row * dimensions : (row + 1) * dimensions] for row in range(count)]


def _unavailable(reason: str) -> Unavailable:
    return Unavailable(
        "The embedder gives no vectors now; try again, send a vector, or look by words.",
        details={"reason": "embedder", "cause": reason},
        retry_after=1,
    )
