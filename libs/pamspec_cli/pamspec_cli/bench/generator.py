"""The bench's side of the load generator: a child process, and the requests that it is to send."""

import asyncio
import base64
import itertools
import json
import sys
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

CONNECTIONS = 64
COUNTER = b"@@@@@@@@@@@@"
"""Twelve bytes of a body in whose place the generator writes a number that it never used before."""


class LoadFailed(Exception):
    """Answers of the measured service were no successes; the message counts them by status."""


@dataclass(frozen=True)
class Load:
    """What one round of the generator saw."""

    count: int
    per_second: float
    p50_ms: float
    p99_ms: float
    put_off: int = 0
    """Answers that a limit refused, where the load was paced."""


class Generator:
    """One generator process, for as many rounds as wanted."""

    def __init__(self) -> None:
        self._child: asyncio.subprocess.Process | None = None
        self._numbers = itertools.count(1, 10_000_000)

    async def __aenter__(self) -> "Generator":
        self._child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "pamspec_cli.bench.load",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=16 * 1024 * 1024,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        child = self._child
        if child is not None and child.stdin is not None:
            child.stdin.close()
            await child.wait()

    async def post(
        self,
        url: str,
        path: str,
        body: bytes,
        key: str | None,
        seconds: float,
        connections: int = CONNECTIONS,
        pause_s: float = 0.0,
    ) -> Load:
        """Post a body again and again, with a new number in place of COUNTER each time.

        With a pause each connection waits so long between an answer and its next request.
        """
        whole = post_request(url, path, body, key)
        before, _, after = whole.partition(COUNTER)
        job = {"before": _text(before), "after": _text(after), "start": next(self._numbers)}
        if COUNTER not in whole:
            job = {"items": [_text(whole)]}
        return await self.drive(url, job | {"pause_s": pause_s}, seconds, connections)

    async def cycle(self, url: str, requests: list[bytes], seconds: float, connections: int = CONNECTIONS) -> Load:
        """Send these requests from the start again and again."""
        return await self.drive(url, {"items": [_text(request) for request in requests]}, seconds, connections)

    async def drive(self, url: str, job: dict[str, Any], seconds: float, connections: int) -> Load:
        """One round; LoadFailed when any answer was no success."""
        child, address = self._child, urlsplit(url)
        if child is None or child.stdin is None or child.stdout is None:
            raise RuntimeError("the generator is not running")
        job = {"host": address.hostname, "port": address.port, "connections": connections, "seconds": seconds, **job}
        child.stdin.write(json.dumps(job).encode() + b"\n")
        await child.stdin.drain()
        seen = json.loads(await child.stdout.readline())
        if seen["failed"] or not seen["count"]:
            raise LoadFailed(f"{url}: {seen['failed'] or 'no answer'} beside {seen['count']} successes")
        return Load(seen["count"], seen["per_second"], seen["p50"] * 1000, seen["p99"] * 1000, seen["put_off"])


def post_request(url: str, path: str, body: bytes, key: str | None) -> bytes:
    """The bytes of a POST."""
    head = [f"POST {path} HTTP/1.1", f"Host: {urlsplit(url).netloc}", "Content-Type: application/json"]
    if key is not None:
        head.append(f"Authorization: Bearer {key}")
    head.append(f"Content-Length: {len(body)}")
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
