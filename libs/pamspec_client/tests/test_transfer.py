"""Exports and imports by the client: against the whole product, and against answers that are cut."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from libs.conftest import Product
from libs.pamspec_client.tests.conftest import FAST
from pamspec_client import (
    AsyncClient,
    Client,
    DuplicateOperation,
    InvalidRequest,
    NoAnswer,
    PamspecError,
    ProtocolError,
    ScopeNotFound,
)

_numbers = itertools.count(1)


async def filled(client: AsyncClient) -> str:
    scope = f"workspace:transfer-{next(_numbers)}"
    await client.create_scope(scope_id=scope, scope_kind="workspace")
    for number in range(3):
        await client.create(
            scope_id=scope, object_type="claim", canonical_content=number, provenance={"activity": "test"}
        )
    return scope


async def whole(client: AsyncClient, scope: str) -> bytes:
    return b"".join([piece async for piece in client.export(scope_id=scope)])


async def test_a_scope_goes_out_and_in_again(agent_client: AsyncClient, tmp_path: Path) -> None:
    scope = await filled(agent_client)
    body = await whole(agent_client, scope)
    path = tmp_path / "scope.ndjson"
    path.write_bytes(body)
    sent: list[int] = []
    copy = f"{scope}-copy"
    taken = await agent_client.import_(path, progress=sent.append, remap={"scope_id": copy})
    assert (taken.scope_id, taken.imported, taken.entries, taken.versions) == (copy, True, 3, 3)
    assert taken.remapped_from is not None
    assert taken.remapped_from.scope_id == scope
    assert sent[-1] == len(body)
    assert not taken.replayed
    for again in (str(path), body, [body[:100], body[100:]], _pieces(body)):
        assert (await agent_client.import_(again, remap={"scope_id": copy})).replayed
    contents = [item.envelope.content async for item in agent_client.query_items(
        scope_id=copy, query={"kind": "structured", "trust": "working"})]  # fmt: skip
    assert sorted(contents) == [0, 1, 2]
    assert (await agent_client.import_(body)).replayed, "the scope of the file itself"


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    yield body


async def test_refusals(agent_client: AsyncClient) -> None:
    scope = await filled(agent_client)
    body = await whole(agent_client, scope)
    with pytest.raises(InvalidRequest, match="Line 4") as caught:
        await agent_client.import_(body.replace(b'"content":1', b'"content":7'), remap={"scope_id": f"{scope}-x"})
    assert caught.value.details == {"line": 4}
    with pytest.raises(ScopeNotFound):
        await agent_client.get_scope(scope_id=f"{scope}-x")
    with pytest.raises(DuplicateOperation):
        await agent_client.import_(body, remap={"scope_id": await filled(agent_client)})
    left = await agent_client.import_(body, remap={"scope_id": await filled(agent_client)}, on_conflict="skip")
    assert not left.imported
    with pytest.raises(ScopeNotFound):
        await whole(agent_client, "workspace:none")


async def test_without_an_event_loop(product: Product, agent_client: AsyncClient, tmp_path: Path) -> None:
    scope = await filled(agent_client)

    def work() -> None:
        with Client(product.url, product.key) as client:
            path = tmp_path / "scope.ndjson"
            with path.open("wb") as file:
                for piece in client.export(scope_id=scope):
                    file.write(piece)
            assert client.import_(path, remap={"scope_id": f"{scope}-sync"}).entries == 3

    await asyncio.to_thread(work)


@asynccontextmanager
async def answering(*answers: bytes | int) -> AsyncIterator[AsyncClient]:
    """A client of a gateway that answers with these bodies, or statuses, one after the other."""
    waiting = list(answers)

    async def answer(request: web.Request) -> web.StreamResponse:
        await request.read()
        found = waiting.pop(0)
        if isinstance(found, int):
            return web.Response(status=found)
        return web.Response(body=found, content_type="application/x-ndjson")

    app = web.Application()
    app.router.add_post("/v1/{operation}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    async with AsyncClient(f"http://127.0.0.1:{port}", "key", retry=FAST) as client:
        yield client
    await runner.cleanup()


END = b'{"kind":"end","sequence":0}\n'
FAILED = (
    b'{"kind":"failure","error":{"code":"service_unavailable","message":"away","retryable":true,'
    b'"operation_id":"op:1","details":{}}}\n'
)


@pytest.mark.parametrize(
    "body",
    [b"", b'{"kind":"manifest"}\n', b'{"kind":"manifest"}\n' + END[:-1], END + b'{"kind":"entry"}\n', b"x" * 3_000_000],
)
async def test_an_export_without_its_end_raises(body: bytes) -> None:
    async with answering(body) as client:
        with pytest.raises(ProtocolError, match="cut"):
            await whole(client, "a:b")


async def test_an_export_that_failed_raises_what_failed() -> None:
    async with answering(b'{"kind":"manifest"}\n' + FAILED) as client:
        with pytest.raises(PamspecError, match="away"):
            await whole(client, "a:b")


async def test_a_call_that_did_not_begin_is_tried_again() -> None:
    async with answering(502, 503, b'{"kind":"manifest"}\n' + END) as client:
        assert (await whole(client, "a:b")).endswith(END)
    answer = (
        b'{"operation_id":"op:1","scope_id":"a:b","imported":true,"entries":0,"versions":0,"operations":0,'
        b'"source_events":0,"head_hash":"sha256:0","digest":"sha256:0"}'
    )
    async with answering(502, answer) as client:
        assert (await client.import_(b"file")).imported
    async with answering(502, answer) as client:
        with pytest.raises(NoAnswer):
            await client.import_([b"pieces that cannot be read again"])
