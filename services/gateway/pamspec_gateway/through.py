"""How doors in front of the operation door reach it: each call as the request that carries it.

Invariant: what goes through is admitted, limited and traced as if it had come by itself, with the credential of the
request that carries it and none of its other headers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from pamspec_common.asgi import ASGIApp, Message, Scope
from pamspec_common.calls import Answer
from pamspec_common.errors import ServiceUnavailable
from pamspec_gateway.limits.holders import Holder

_CREDENTIALS = (b"authorization", b"x-api-key", b"traceparent")


class Messages:
    """Messages of one door that each tenant has under way.

    What they ask of operations is counted and bounded as every door's; a message that counted there too would need a
    second place while it holds the first.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: Counter[str] = Counter()

    @contextmanager
    def room(self, holder: Holder) -> Iterator[None]:
        """Room for one more; ServiceUnavailable (429) beyond a limit."""
        tenant = holder.tenant.tenant_id
        if self._held[tenant] >= self._most:
            raise ServiceUnavailable("Too many messages of this tenant are under way; try again shortly.", status=429)
        self._held[tenant] += 1
        try:
            yield
        finally:
            self._held[tenant] -= 1
            if not self._held[tenant]:
                del self._held[tenant]


class Through:
    """The operation door, as the request that carries a call of another door."""

    def __init__(self, door: ASGIApp, headers: Iterable[tuple[bytes, bytes]], client: object) -> None:
        self._door, self._client = door, client
        kept = [(name, value) for name, value in headers if name in _CREDENTIALS]
        self._headers = [*kept, (b"content-type", b"application/json")]

    async def __call__(self, operation: str, document: bytes) -> Answer:
        """The answer of the operation door."""
        path = f"/v1/{operation}"
        scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": [*self._headers, (b"content-length", b"%d" % len(document))],
            "client": self._client,
            "server": None,
        }
        taken: list[Message] = []
        sent = False

        async def receive() -> Message:
            nonlocal sent
            if sent:
                return {"type": "http.disconnect"}
            sent = True
            return {"type": "http.request", "body": document, "more_body": False}

        async def send(message: Message) -> None:
            taken.append(message)

        await self._door(scope, receive, send)
        start = taken[0]
        headers = {name.decode().title(): value.decode("latin-1") for name, value in start["headers"]}
        for name in ("Content-Type", "Content-Length"):
            headers.pop(name, None)
        return Answer(start["status"], b"".join(message.get("body", b"") for message in taken[1:]), headers)
