"""The HTTP binding: `POST {url}/v1/{operation}` with one JSON document, an API key as bearer token.

An operation is not offered when the address has none of that name (status 404, 405 or 501 with invalid_request, or
without an error envelope at all), or when the refusal says `details.reason` = `not_offered`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Self
from urllib.parse import urlencode

import aiohttp

from pamspec_conformance.binding import Document, Refusal, Reply, parsed, refusal_of

NO_SUCH_DOOR: Final = frozenset({404, 405, 501})
PLACES: Final[Mapping[str, str]] = {"register_embedding_space": "/v1/embedding_spaces", "put_vectors": "/v1/vectors"}
"""Doors that are no operation's own."""
LISTS: Final[Mapping[str, str]] = {"list_indexes": "/v1/indexes"}
"""Doors to GET, with the document's members as the query."""


class HttpBinding:
    """One gateway and one key; use it as `async with`, or call `aclose`."""

    def __init__(self, url: str, key: str | None, *, timeout_s: float = 30.0) -> None:
        self.url = url.rstrip("/")
        self._key = key
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self.aclose()

    @property
    def credentials(self) -> Mapping[str, str]:
        """The header of the key."""
        return {"Authorization": f"Bearer {self._key}"} if self._key else {}

    async def call(self, operation: str, document: Document, *, idempotency_key: str | None = None) -> Reply:
        """The answer to one operation."""
        headers = {**self.credentials, "Content-Type": "application/json"}
        if idempotency_key is not None:
            headers["Idempotency-Key"] = idempotency_key
        if operation in LISTS:
            return await self.request("GET", f"{LISTS[operation]}?{urlencode(document)}", None, self.credentials)
        place = PLACES.get(operation, f"/v1/{operation}")
        return await self.request("POST", place, json.dumps(document).encode(), headers)

    async def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """The answer to one request with exactly these headers."""
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=self._timeout)
        async with self._session.request(method, self.url + path, data=body, headers=headers) as answer:
            return _reply(answer.status, await answer.read(), answer.headers)

    async def name(self) -> tuple[str, str] | None:
        """What the implementation calls itself and its version, from its OpenAPI document; None without one."""
        document = (await self.request("GET", "/openapi.json")).document
        info = document.get("info") if isinstance(document, Mapping) else None
        if not isinstance(info, Mapping):
            return None
        return str(info.get("title", "")), str(info.get("version", ""))

    async def aclose(self) -> None:
        """Closes the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None


def _reply(status: int, body: bytes, headers: Mapping[str, str]) -> Reply:
    document = parsed(body)
    refusal = refusal_of(document)
    return Reply(
        body,
        document,
        refusal,
        _number(headers.get("Pamspec-Ledger-Sequence")),
        _number(headers.get("Pamspec-As-Of-Sequence")),
        headers.get("Idempotency-Replayed") == "true",
        _not_offered(status, refusal, document),
        status,
        {name.lower(): value for name, value in headers.items()},
    )


def _not_offered(status: int, refusal: Refusal | None, document: Any) -> bool:
    if refusal is not None and refusal.details.get("reason") == "not_offered":
        return True
    return status in NO_SUCH_DOOR and (refusal is None or refusal.code == "invalid_request")


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None
