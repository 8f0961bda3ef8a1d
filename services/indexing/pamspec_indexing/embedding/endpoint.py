"""Any endpoint that speaks OpenAI's embeddings API (`POST {url}/embeddings`).

Texts leave this deployment only here, and only where an operator has named the endpoint. Redirects are refused: what is
posted goes to the named host and to no other. Neither texts nor the key are ever logged.
"""

from __future__ import annotations

import asyncio
import random
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import aiohttp
import msgspec

from pamspec_common.embedding_spaces import EmbeddingSpace
from pamspec_common.errors import PamspecError
from pamspec_common.service import Part
from pamspec_indexing.embedding.embedder import Kind, Unavailable, Vector

_RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_TRIES = 4
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 30.0
_MAX_ANSWER = 64 * 1024 * 1024
_OPEN_AFTER, _OPEN_S = 5, 15.0
_AT_ONCE = 4


class _Row(msgspec.Struct):
    index: int
    embedding: list[float]


class _Answer(msgspec.Struct):
    data: list[_Row]


@dataclass(frozen=True)
class Endpoint:
    """Where an endpoint is and what it is asked for."""

    url: str
    model: str
    key: str | None
    query_prefix: str = ""
    passage_prefix: str = ""
    timeout_s: float = 20.0
    send_dimensions: bool = False


class _Refused(Exception):
    """An answer that another try cannot mend."""


class _Later(Exception):
    """A failure that another try may mend, after so many seconds where the endpoint said so."""

    def __init__(self, cause: str, after_s: float | None = None) -> None:
        super().__init__(cause)
        self.after_s = after_s


class EndpointEmbedder:
    """An endpoint (Embedder), behind a circuit breaker: after five failures in a row it is left alone for a while."""

    batch = 64

    def __init__(self, space: EmbeddingSpace, endpoint: Endpoint) -> None:
        self.space, self._endpoint = space, endpoint
        self._session: aiohttp.ClientSession | None = None
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._failures, self._closed_until, self._error = 0, 0.0, ""

    async def start(self) -> None:
        """Open a session."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=self._endpoint.timeout_s, sock_connect=5),
                cookie_jar=aiohttp.DummyCookieJar(),
            )

    async def stop(self) -> None:
        """Close it."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def embed(self, texts: Sequence[str], kind: Kind, within_s: float) -> list[Vector]:
        """The vectors; Unavailable when the endpoint gives none within the time or was left alone."""
        if time.monotonic() < self._closed_until:
            raise self._unavailable("left alone after failures", self._closed_until - time.monotonic())
        try:
            async with asyncio.timeout(within_s), self._room:
                return await self._tried(texts, kind)
        except TimeoutError:
            self._failed("too slow")
            raise self._unavailable("too slow", 1) from None

    def part(self) -> Part:
        """Whether the last request was answered."""
        detail = {"space": self.space.embedding_space_id}
        return Part(
            "embedder_endpoint", not self._error, detail | ({"error": self._error} if self._error else {}), False
        )

    async def _tried(self, texts: Sequence[str], kind: Kind) -> list[Vector]:
        pause = _FIRST_PAUSE_S
        for attempt in range(_TRIES):
            try:
                vectors = await self._asked(texts, kind)
            except _Refused as refused:
                self._failed(str(refused))
                raise self._unavailable(str(refused), 5) from None
            except _Later as later:
                if attempt == _TRIES - 1:
                    self._failed(str(later))
                    raise self._unavailable(str(later), later.after_s or 1) from None
                wait = pause * random.uniform(0.5, 1.5) if later.after_s is None else later.after_s
                await asyncio.sleep(min(_LONGEST_PAUSE_S, wait))
                pause *= 2
            else:
                self._failures, self._error = 0, ""
                return vectors
        raise AssertionError("unreachable")

    async def _asked(self, texts: Sequence[str], kind: Kind) -> list[Vector]:
        if self._session is None:
            raise _Refused("not started")
        of = self._endpoint
        prefix = of.query_prefix if kind == "query" else of.passage_prefix
        body: dict[str, object] = {"model": of.model, "input": [prefix + text for text in texts]}
        body["encoding_format"] = "float"
        if of.send_dimensions:
            body["dimensions"] = self.space.dimensions
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {of.key}"} if of.key else {})
        url = of.url.rstrip("/") + "/embeddings"
        try:
            async with self._session.post(
                url, data=msgspec.json.encode(body), headers=headers, allow_redirects=False
            ) as answer:
                if answer.status in _RETRIED:
                    raise _Later(f"status {answer.status}", _retry_after(answer.headers.get("Retry-After")))
                if answer.status != 200:
                    raise _Refused(f"status {answer.status}")
                raw = await answer.content.read(_MAX_ANSWER + 1)
                while len(raw) <= _MAX_ANSWER and (more := await answer.content.read(_MAX_ANSWER + 1 - len(raw))):
                    raw += more
        except TimeoutError:
            raise _Later("no answer in time") from None
        except aiohttp.ClientError as error:
            raise _Later(type(error).__name__) from None
        return self._rows(raw, len(texts))

    def _rows(self, raw: bytes, count: int) -> list[Vector]:
        try:
            rows = {row.index: array("f", row.embedding) for row in msgspec.json.decode(raw, type=_Answer).data}
        except (msgspec.DecodeError, OverflowError):
            raise _Refused("no answer of an embeddings API") from None
        if sorted(rows) != list(range(count)) or any(len(row) != self.space.dimensions for row in rows.values()):
            raise _Refused("another number of vectors or of dimensions")
        return [rows[index] for index in range(count)]

    def _failed(self, cause: str) -> None:
        self._failures, self._error = self._failures + 1, cause
        if self._failures >= _OPEN_AFTER:
            self._closed_until = time.monotonic() + _OPEN_S

    def _unavailable(self, cause: str, after_s: float) -> PamspecError:
        return Unavailable(
            "The embedding endpoint gives no vectors now; try again, send a vector, or look by words.",
            details={"reason": "embedder", "cause": cause},
            retry_after=max(1, round(after_s)),
        )


def _retry_after(text: str | None) -> float | None:
    """Seconds; None where nothing usable was said (a date is not used: clocks differ)."""
    return min(_LONGEST_PAUSE_S, float(text)) if text is not None and text.isdigit() else None
