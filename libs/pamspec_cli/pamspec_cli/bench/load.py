"""A load generator for HTTP/1.1 that costs little: raw sockets, keep-alive, requests that are bytes already.

It runs in a process of its own and takes one job per line on standard input, so that the same generator drives the
product and its floor in turns. It checks the status of every answer and nothing else.
"""

import asyncio
import base64
import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import uvloop

_LENGTH = b"content-length:"


class Job:
    """What to send, where, and what came of it."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.host: str = document["host"]
        self.port: int = document["port"]
        self.connections: int = document["connections"]
        self.seconds: float = document["seconds"]
        self.pause_s: float = document.get("pause_s", 0.0)
        """How long a connection waits before its next request."""
        self.put_off = 0
        """Answers that a limit refused (429): what a load beyond a limit is there for."""
        self.next_request = requests(document)
        self.latencies: list[float] = []
        self.failed: dict[str, int] = {}
        self.deadline = 0.0
        self.ended = 0.0


def requests(document: dict[str, Any]) -> Callable[[], bytes]:
    """The next request's bytes: a counter between two halves, or a list from the start again and again."""
    if "items" in document:
        items = [base64.b64decode(item) for item in document["items"]]
        return iter(_cycle(items)).__next__
    before, after = base64.b64decode(document["before"]), base64.b64decode(document["after"])
    number = document["start"]

    def counted() -> bytes:
        nonlocal number
        number += 1
        return before + b"%012d" % number + after

    return counted


def _cycle(items: list[bytes]) -> Iterator[bytes]:
    while True:
        yield from items


class Connection(asyncio.Protocol):
    """One keep-alive connection: the next request goes out when the answer before it is whole."""

    def __init__(self, job: Job, done: asyncio.Future[None]) -> None:
        self._job, self._done = job, done
        self._buffer = b""
        self._sent = 0.0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._send()

    def _send(self) -> None:
        self._sent = time.perf_counter()
        if self._transport is not None:
            self._transport.write(self._job.next_request())

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer + data if self._buffer else data
        head = buffer.find(b"\r\n\r\n")
        if head < 0 or len(buffer) < head + 4 + _content_length(buffer, head):
            self._buffer = buffer
            return
        self._buffer = b""
        now = time.perf_counter()
        job = self._job
        if buffer[9:10] == b"2":
            job.latencies.append(now - self._sent)
        elif buffer[9:12] == b"429" and job.pause_s:
            job.put_off += 1
        else:
            status = buffer[9:12].decode("ascii", "replace")
            job.failed[status] = job.failed.get(status, 0) + 1
        if now < job.deadline:
            if job.pause_s:
                asyncio.get_running_loop().call_later(job.pause_s, self._send)
            else:
                self._send()
        else:
            job.ended = max(job.ended, now)
            self._close()

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._job.ended == 0.0 and time.perf_counter() < self._job.deadline:
            self._job.failed["lost"] = self._job.failed.get("lost", 0) + 1
        if not self._done.done():
            self._done.set_result(None)


def _content_length(buffer: bytes, head: int) -> int:
    at = buffer.find(_LENGTH, 0, head)
    if at < 0:
        at = buffer[:head].lower().find(_LENGTH)
        if at < 0:
            return 0
    end = buffer.find(b"\r\n", at)
    return int(buffer[at + len(_LENGTH) : end])


async def drive(job: Job) -> dict[str, Any]:
    """Run one job; requests per second, latencies in seconds, and answers that were no success."""
    loop = asyncio.get_running_loop()
    started = time.perf_counter()
    job.deadline = started + job.seconds
    ends = []
    for _ in range(job.connections):
        done: asyncio.Future[None] = loop.create_future()
        await loop.create_connection(partial(Connection, job, done), job.host, job.port)
        ends.append(done)
    await asyncio.wait(ends, timeout=job.seconds + 30)
    took = (job.ended or time.perf_counter()) - started
    ordered = sorted(job.latencies)
    count = len(ordered)
    return {
        "count": count,
        "seconds": took,
        "per_second": count / took,
        "p50": ordered[count // 2] if count else None,
        "p99": ordered[int(count * 0.99)] if count else None,
        "failed": job.failed,
        "put_off": job.put_off,
    }


def main() -> None:
    """One JSON line in, one JSON line out, until the input ends."""
    for line in sys.stdin:
        print(json.dumps(uvloop.run(drive(Job(json.loads(line))))), flush=True)


if __name__ == "__main__":
    main()
