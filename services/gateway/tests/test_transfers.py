"""Exports and imports through the gateway: the right caller, backpressure in both directions, whatever length."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from pamspec_common import contracts
from pamspec_common.asgi import Receive, Scope, Send, send_answer
from pamspec_common.calls import Answer, refusal
from pamspec_common.errors import InvalidRequest
from pamspec_common.principal import TokenVerifier
from services.gateway.tests.behind import TOKEN_KEYS, Door, refusal_of

MIB = 1024 * 1024
LINES = "application/x-ndjson"


class Exporter:
    """A service that streams as much as is taken."""

    def __init__(self, pieces: int, piece: bytes = b"x" * MIB) -> None:
        self.pieces, self.piece, self.sent = pieces, piece, 0
        self.scope: Scope = {}
        self.body = b""
        self.ended = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.body = (await receive()).get("body", b"")
        gone = asyncio.ensure_future(receive())
        try:
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", LINES.encode())]})
            for _ in range(self.pieces):
                await send({"type": "http.response.body", "body": self.piece, "more_body": True})
                self.sent += 1
                await asyncio.sleep(0)
                if gone.done():
                    return
            await send({"type": "http.response.body", "body": b""})
        finally:
            gone.cancel()
            self.ended.set()


class Importer:
    """A service that takes a body as fast as a test lets it."""

    def __init__(self, *, refuse_after: int | None = None) -> None:
        self.taken, self.refuse_after = 0, refuse_after
        self.scope: Scope = {}
        self.go = asyncio.Event()
        self.go.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        while True:
            await self.go.wait()
            message = await receive()
            if message["type"] != "http.request":
                return
            self.taken += len(message.get("body", b""))
            if self.refuse_after is not None and self.taken > self.refuse_after:
                await send_answer(send, refusal(InvalidRequest("Line 2 is none of this format; export again.")))
                return
            if not message.get("more_body"):
                await send_answer(send, Answer(200, b'{"taken":%d}' % self.taken))
                return


def actor_behind(scope: Scope) -> str:
    service = contracts.operations()[scope["path"].removeprefix("/v1/")].service
    tokens = [value for name, value in scope["headers"] if name == b"x-pamspec-principal"]
    assert len(tokens) == 1
    return TokenVerifier(TOKEN_KEYS, service).verify(tokens[0].decode()).actor_id


async def test_every_streamed_operation_is_a_path_of_the_door(door: Door) -> None:
    streamed = {name for name, one in contracts.operations().items() if one.public and one.streams is not None}
    assert "export" in streamed
    for name in streamed:
        door.behind.stream = Exporter(1)
        async with door.session.get(f"{door.url}/v1/{name}") as response:
            assert response.status == 405
            assert response.headers["Allow"] == "POST, OPTIONS"
        assert door.behind.calls == []


async def test_an_export_passes_as_it_comes(door: Door) -> None:
    exporter = door.behind.stream = Exporter(20)
    sent = {"Authorization": f"Bearer {door.key}", "X-Pamspec-Principal": "forged", "Content-Type": "application/json"}
    async with door.session.post(door.url + "/v1/export", data=b'{"scope_id":"a:b"}', headers=sent) as response:
        assert response.headers["Content-Type"] == LINES
        assert len(await response.read()) == 20 * MIB
    assert actor_behind(exporter.scope) == "agent:a"
    assert exporter.body == b'{"scope_id":"a:b"}'


async def test_what_a_client_does_not_take_is_not_read(door: Door) -> None:
    exporter = door.behind.stream = Exporter(300)
    sent = {"Authorization": f"Bearer {door.key}", "Content-Type": "application/json"}
    async with door.session.post(door.url + "/v1/export", data=b"{}", headers=sent) as response:
        await response.content.read(1)
        before = -1
        while exporter.sent != before:
            before = exporter.sent
            await asyncio.sleep(0.3)
        assert exporter.sent < 150, "the rest waits at the service"
        assert len(await response.read()) == 300 * MIB - 1


async def test_a_client_that_leaves_ends_the_export(door: Door) -> None:
    exporter = door.behind.stream = Exporter(10_000)
    sent = {"Authorization": f"Bearer {door.key}", "Content-Type": "application/json"}
    async with door.session.post(door.url + "/v1/export", data=b"{}", headers=sent) as response:
        await response.content.read(1)
    async with asyncio.timeout(30):
        await exporter.ended.wait()
    assert exporter.sent < 1000


async def test_a_revoked_key_loses_its_export(own_door: Door) -> None:
    exporter = own_door.behind.stream = Exporter(100_000, b"x")
    exporter.piece = b"x" * MIB
    sent = {"Authorization": f"Bearer {own_door.key}", "Content-Type": "application/json"}
    async with own_door.session.post(own_door.url + "/v1/export", data=b"{}", headers=sent) as response:
        await response.content.read(1)
        await own_door.revoke()
        async with asyncio.timeout(60):
            while await response.content.readany():
                pass
    assert exporter.sent < 100_000


@pytest.mark.parametrize(
    ("headers", "status"),
    [({}, 401), ({"Authorization": "Bearer pam_wrongwrongwrongwrong"}, 401)],
)
async def test_nobody_exports_without_a_key(door: Door, headers: dict[str, str], status: int) -> None:
    exporter = door.behind.stream = Exporter(1)
    async with door.session.post(door.url + "/v1/export", data=b"{}", headers=headers) as response:
        assert response.status == status
        assert refusal_of(await response.read())["code"] == "access_denied"
    assert exporter.scope == {}


async def test_other_types_are_refused(door: Door) -> None:
    door.behind.stream = Exporter(1)
    status, body, _ = await door.post("/v1/export", b"<a/>", Content_Type="text/xml")
    assert (status, refusal_of(body)["code"]) == (415, "invalid_request")
    status, body, _ = await door.post("/v1/export", b" " * (257 * 1024))
    assert (status, refusal_of(body)["code"]) == (413, "invalid_request")


async def test_an_import_of_any_length_passes_as_it_comes(door: Door) -> None:
    """Far beyond the limit for other bodies, and nothing of it is kept here."""
    importer = door.behind.stream = Importer()

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(60):
            yield b"x" * MIB

    sent = {"Authorization": f"Bearer {door.key}", "Content-Type": LINES, "Idempotency-Key": "k-1"}
    async with door.session.post(door.url + "/v1/import?remap=a:b", data=pieces(), headers=sent) as response:
        assert (response.status, await response.json()) == (200, {"taken": 60 * MIB})
    assert actor_behind(importer.scope) == "agent:a"
    assert importer.scope["query_string"] == b"remap=a:b"
    assert (b"idempotency-key", b"k-1") in importer.scope["headers"]


async def test_what_the_service_does_not_take_is_not_read_from_the_client(door: Door) -> None:
    importer = door.behind.stream = Importer()
    importer.go.clear()
    sent_so_far = 0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal sent_so_far
        for _ in range(300):
            yield b"x" * MIB
            sent_so_far += 1

    sent = {"Authorization": f"Bearer {door.key}", "Content-Type": LINES}
    posting = asyncio.ensure_future(door.session.post(door.url + "/v1/import", data=pieces(), headers=sent))
    before = -1
    while sent_so_far != before:
        before = sent_so_far
        await asyncio.sleep(0.3)
    assert sent_so_far < 150
    importer.go.set()
    async with await posting as response:
        assert await response.json() == {"taken": 300 * MIB}


async def test_a_refusal_comes_before_the_file_has_ended(door: Door) -> None:
    door.behind.stream = Importer(refuse_after=3 * MIB)
    sent_so_far = 0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal sent_so_far
        for _ in range(1000):
            yield b"x" * MIB
            sent_so_far += 1

    sent = {"Authorization": f"Bearer {door.key}", "Content-Type": LINES}
    async with asyncio.timeout(60):
        async with door.session.post(door.url + "/v1/import", data=pieces(), headers=sent) as response:
            assert response.status == 400
            assert refusal_of(await response.read())["message"].startswith("Line 2")
    assert sent_so_far < 1000


async def test_imports_take_lines_only(door: Door) -> None:
    importer = door.behind.stream = Importer()
    for headers in ({"Content_Type": "application/json"}, {"Content_Type": LINES, "Content_Encoding": "gzip"}):
        status, body, _ = await door.post("/v1/import", b"{}", **headers)
        assert (status, refusal_of(body)["code"]) == (415, "invalid_request")
    assert importer.scope == {}
