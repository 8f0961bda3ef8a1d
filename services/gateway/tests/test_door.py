"""The operation door: what it passes on, what it refuses, and what it holds."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest

from pamspec_cli.servers.databases import Database
from pamspec_common import contracts
from pamspec_common.calls import Answer
from pamspec_common.keys import new_key
from pamspec_common.peers import LocalPeer, RemotePeer, peer_session
from pamspec_common.server import serving
from pamspec_gateway.app import build
from services.gateway.tests.behind import Behind, Door, echo_service, gateway_settings, insert_key, refusal_of

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


async def test_a_call_passes_as_it_came(door: Door) -> None:
    status, body, headers = await door.post(
        "/v1/create",
        b'{ "a" : 1.0 }',
        Idempotency_Key="k-1",
        traceparent=TRACE,
    )
    assert (status, body) == (200, b'{"told":true}')
    assert headers["Pamspec-Ledger-Sequence"] == "7"
    assert headers["Content-Type"] == "application/json"
    told = door.behind.calls[0]
    assert (told.operation, told.body) == ("create", b'{ "a" : 1.0 }')
    assert (told.idempotency_key, told.traceparent) == (
        "k-1",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    )
    assert (told.principal.tenant_id, told.principal.actor_id) == ("tenant:t", "agent:a")
    assert told.principal.has("assert_actor")


async def test_every_public_operation_has_its_door(door: Door) -> None:
    calls = {name: operation for name, operation in contracts.operations().items() if operation.streams is None}
    for name, operation in calls.items():
        status, body, _ = await door.post(f"/v1/{name}")
        if operation.public:
            assert (status, body) == (200, b'{"told":true}'), name
        else:
            assert status == 404
            assert refusal_of(body)["code"] == "invalid_request"
    assert [told.operation for told in door.behind.calls] == [
        name for name, operation in calls.items() if operation.public
    ]


async def test_answers_of_services_come_back_whole(door: Door) -> None:
    door.behind.answer = Answer(201, b"{}" * 100_000, {"ETag": '"v"', "Retry-After": "3"})
    status, body, headers = await door.post("/v1/create")
    assert (status, body) == (201, b"{}" * 100_000)
    assert (headers["ETag"], headers["Retry-After"]) == ('"v"', "3")


@pytest.mark.parametrize(
    "content_type",
    ["application/json", "Application/JSON; charset=UTF-8", "application/vnd.memory+json", "application/json;x=y"],
)
async def test_variants_of_json_pass(door: Door, content_type: str) -> None:
    status, _, _ = await door.post("/v1/create", b"{}", Content_Type=content_type)
    assert status == 200


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "json", ""])
async def test_other_content_types_are_refused(door: Door, content_type: str) -> None:
    status, body, _ = await door.post("/v1/create", b"{}", Content_Type=content_type)
    assert status == 415
    assert "application/json" in refusal_of(body)["message"]
    assert door.behind.calls == []


async def test_an_encoded_body_is_refused(door: Door) -> None:
    status, body, _ = await door.post("/v1/create", b"{}", Content_Encoding="gzip")
    assert status == 415
    assert "Content-Encoding" in refusal_of(body)["message"]


async def test_a_body_of_16_mib_passes_and_one_more_byte_does_not(door: Door) -> None:
    limit = 16 * 1024 * 1024
    status, _, _ = await door.post("/v1/create", b" " * limit)
    assert status == 200
    assert len(door.behind.calls[0].body) == limit
    status, body, _ = await door.post("/v1/create", b" " * (limit + 1))
    assert status == 413
    error = refusal_of(body)
    assert (error["code"], error["details"]) == ("invalid_request", {"limit": limit})


async def test_a_chunked_body_has_the_same_limit(door: Door) -> None:
    async def parts(count: int) -> AsyncIterator[bytes]:
        for _ in range(count):
            yield b" " * 1024 * 1024

    headers = {"Authorization": f"Bearer {door.key}", "Content-Type": "application/json"}
    for count, expected in ((3, 200), (17, 413)):
        async with door.session.post(door.url + "/v1/create", data=parts(count), headers=headers) as response:
            assert response.status == expected, await response.read()
    assert [len(told.body) for told in door.behind.calls] == [3 * 1024 * 1024]


@pytest.mark.parametrize("key", ["ü", "k" * 1025])
async def test_an_idempotency_key_that_cannot_be_one(door: Door, key: str) -> None:
    status, body, _ = await door.post("/v1/create", b"{}", Idempotency_Key=key)
    assert status == 400
    assert "Idempotency-Key" in refusal_of(body)["message"]


async def test_other_methods_learn_what_there_is(door: Door) -> None:
    for method, expected in (("GET", 405), ("PUT", 405), ("DELETE", 405), ("HEAD", 405), ("OPTIONS", 204)):
        async with door.session.request(method, door.url + "/v1/create") as response:
            assert response.status == expected
            assert response.headers["Allow"] == "POST, OPTIONS"
            body = await response.read()
            if method in ("GET", "PUT", "DELETE"):
                assert refusal_of(body)["code"] == "invalid_request"


async def test_a_client_that_leaves_cancels_nothing(door: Door) -> None:
    door.behind.gate = asyncio.Event()
    leaving = asyncio.create_task(door.post("/v1/create", b'{"left":1}'))
    await asyncio.wait_for(door.behind.started.wait(), 30)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    door.behind.gate.set()
    status, _, _ = await door.post("/v1/create", b'{"left":2}')
    assert status == 200
    assert [told.body for told in door.behind.calls] == [b'{"left":1}', b'{"left":2}']


async def test_too_much_under_way_is_put_off(database: Database) -> None:
    behind, key, other = Behind(), new_key(), new_key()
    await insert_key(database.dsn, key)
    await insert_key(database.dsn, other, tenant="tenant:u", key_id="key:2")
    behind.gate = asyncio.Event()
    echo = echo_service("echo", behind)
    peers = dict.fromkeys(("write", "query", "subscription", "delegation", "indexing"), LocalPeer(echo))
    settings = gateway_settings(database, max_requests=2, max_buffered_bytes=4096, max_waiting=1)
    async with aiohttp.ClientSession() as session, serving(gateway := build(settings, peers)) as url:
        door = Door(url, key, behind, session, database.dsn, gateway)
        held = [asyncio.create_task(door.post("/v1/create", Authorization=f"Bearer {one}")) for one in (key, other)]
        while len(behind.calls) < 2:
            behind.started.clear()
            await asyncio.wait_for(behind.started.wait(), 30)
        await _assert_put_off(door, "/v1/create", b"{}")
        await _assert_put_off(door, "/v1/read", b"{}")
        poll = asyncio.create_task(door.post("/v1/poll"))
        while len(behind.calls) < 3:
            behind.started.clear()
            await asyncio.wait_for(behind.started.wait(), 30)
        await _assert_put_off(door, "/v1/poll", b"{}")
        behind.gate.set()
        assert [(await one)[0] for one in [*held, poll]] == [200, 200, 200]
        await _assert_put_off(door, "/v1/create", b" " * 5000)
        assert (await door.post("/v1/create"))[0] == 200


async def test_bytes_that_are_announced_and_do_not_come_hold_up_nobody(database: Database) -> None:
    behind, key = Behind(), new_key()
    await insert_key(database.dsn, key)
    peers = dict.fromkeys(
        ("write", "query", "subscription", "delegation", "indexing"), LocalPeer(echo_service("echo", behind))
    )
    settings = gateway_settings(database, max_buffered_bytes=8192)
    async with aiohttp.ClientSession() as session, serving(gateway := build(settings, peers)) as url:
        door = Door(url, key, behind, session, database.dsn, gateway)
        head = f"Host: x\r\nAuthorization: Bearer {key}\r\n"
        uploads = []
        for length in ("Content-Length: 8000", "Transfer-Encoding: chunked"):
            for path in ("/v1/create", "/v1/scopes"):
                answer, upload = await asyncio.open_connection("127.0.0.1", door.port)
                upload.write(f"POST {path} HTTP/1.1\r\n{head}{length}\r\nExpect: 100-continue\r\n\r\n".encode())
                assert b" 100 " in await asyncio.wait_for(answer.readline(), 60)
                uploads.append(upload)
        assert (await door.post("/v1/create", b" " * 8000))[0] == 200
        for upload in uploads:
            upload.close()


async def _assert_put_off(door: Door, path: str, body: bytes) -> None:
    status, answer, headers = await door.post(path, body)
    assert (status, headers["Retry-After"]) == (503, "1")
    error = refusal_of(answer)
    assert (error["code"], error["retryable"]) == ("service_unavailable", True)


async def test_a_service_that_is_away_is_told_as_unavailable(database: Database) -> None:
    key = new_key()
    await insert_key(database.dsn, key)
    async with peer_session() as to_peers, aiohttp.ClientSession() as session:
        peers = dict.fromkeys(
            ("write", "query", "subscription", "delegation", "indexing"), RemotePeer(to_peers, "http://127.0.0.1:9")
        )
        async with serving(gateway := build(gateway_settings(database), peers)) as url:
            door = Door(url, key, Behind(), session, database.dsn, gateway)
            status, body, headers = await door.post("/v1/create")
            assert (status, headers["Retry-After"]) == (503, "1")
            assert refusal_of(body)["code"] == "service_unavailable"
