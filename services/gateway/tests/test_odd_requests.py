"""What no proper client sends, byte by byte: it is refused in the envelope or closed, and harms nobody else."""

import asyncio
import socket

import orjson
import pytest

from pamspec_common import http_protocol
from pamspec_common.calls import Answer
from services.gateway.tests.behind import Door, refusal_of


async def _raw(door: Door, data: bytes, timeout_s: float = 5) -> tuple[int, dict[str, str], bytes]:
    """Send bytes and read one answer; status 0 when the connection was closed without one."""
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port, limit=2**20)
    try:
        writer.write(data)
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), timeout_s)
        lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:] if line)}
        body = await asyncio.wait_for(reader.readexactly(int(headers.get("content-length", 0))), timeout_s)
        return int(lines[0].split(" ")[1]), headers, body
    except (asyncio.IncompleteReadError, ConnectionResetError):
        return 0, {}, b""
    finally:
        writer.close()


def _request(door: Door, line: str, *headers: str, body: bytes = b"") -> bytes:
    head = "\r\n".join([f"{line} HTTP/1.1", "Host: x", f"Authorization: Bearer {door.key}", *headers])
    return head.encode("latin-1") + b"\r\n\r\n" + body


def _post(door: Door, body: bytes, *headers: str, path: str = "/v1/create") -> bytes:
    return _request(door, f"POST {path}", f"Content-Length: {len(body)}", *headers, body=body)


async def _is_well(door: Door) -> None:
    before = len(door.behind.calls)
    assert (await door.post("/v1/create"))[0] == 200
    assert len(door.behind.calls) == before + 1


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x01\x02\x03\r\n\r\n",
        b"GET\r\n\r\n",
        b"POST /v1/create HTTP/9.9\r\n\r\n",
        b"POST /v1/create HTTP/1.1\r\nHost: x\r\nContent-Length: ten\r\n\r\n",
        b"POST /v1/create HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/create HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
        b"POST /v1/create HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
        b"POST /v1/create HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n{}\r\n0\r\n\r\n",
        b"POST /v1/create HTTP/1.1\r\nHost: x\r\nX-Name: a\x00b\r\n\r\n",
        b"POST /v1/create HTTP/1.1\r\nHost: x\r\nBroken header\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
async def test_what_is_not_http(door: Door, data: bytes) -> None:
    status, headers, body = await _raw(door, data)
    assert status in (400, 401, 404, 0)
    if status:
        assert headers["content-type"] == "application/json"
        assert orjson.loads(body)["error"]["code"] in ("invalid_request", "access_denied")
    assert door.behind.calls == []
    await _is_well(door)


@pytest.mark.parametrize(
    "path",
    [
        *("/v1/%2e%2e/v1/create", "/v1//create", "/v1/create/", "/v1/create%00", "/v1/create%2f", "/V1/CREATE"),
        *("/v1/cre%ZZate", "/v1/%ff%fe", "http://elsewhere/v1/nothing", "/v1/create;x=1", "/" + "a" * 5000, "*"),
    ],
)
async def test_paths_that_are_not_quite_it(door: Door, path: str) -> None:
    status, _, body = await _raw(door, _post(door, b"{}", path=path))
    assert status in (400, 404)
    assert orjson.loads(body)["error"]["code"] == "invalid_request"
    assert door.behind.calls == []


async def test_an_encoded_path_is_the_same_path(door: Door) -> None:
    status, _, _ = await _raw(door, _post(door, b"{}", path="/v1/%63reate?x=1#y"))
    assert status in (200, 400)


async def test_ten_thousand_headers(door: Door) -> None:
    many = [f"X-Filler-{number}: {number}" for number in range(10_000)]
    status, _, body = await _raw(door, _post(door, b"{}", *many))
    assert status in (200, 431)
    if status == 431:
        assert "64 KiB" in orjson.loads(body)["error"]["message"]
    await _is_well(door)


async def test_a_head_without_end(door: Door) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
    writer.write(b"POST /v1/create HTTP/1.1\r\n" + b"X-Filler: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n" * 2000)
    answer = await asyncio.wait_for(reader.read(), 60)
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b"64 KiB" in answer
    writer.close()
    await _is_well(door)


async def test_a_slow_head_is_closed(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "HEAD_TIMEOUT_S", 0.3)
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
    writer.write(b"POST /v1/create HTTP/1.1\r\nHost:")
    assert b"408" in await asyncio.wait_for(reader.read(20), 60)
    writer.close()
    silent, writer = await asyncio.open_connection("127.0.0.1", door.port)
    await asyncio.wait_for(silent.read(), 60)
    writer.close()
    await _is_well(door)


async def test_a_slow_body_is_closed_and_a_steady_one_is_not(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "BODY_GRACE_S", 0.3)
    monkeypatch.setattr(http_protocol, "BODY_MIN_BYTES_PER_S", 100)
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
    writer.write(_request(door, "POST /v1/create", "Content-Length: 100", body=b"{"))
    answer = await asyncio.wait_for(reader.read(), 60)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert refusal_of(answer.partition(b"\r\n\r\n")[2])["code"] == "invalid_request"
    writer.close()
    assert door.behind.calls == []
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
    writer.write(_request(door, "POST /v1/create", "Content-Length: 600"))
    for _ in range(15):
        writer.write(b" " * 40)
        await asyncio.sleep(0.1)
    assert (await asyncio.wait_for(reader.read(12), 60)) == b"HTTP/1.1 200"
    writer.close()


async def _untaken(door: Door, number: int) -> list[socket.socket]:
    """Connections that ask for 4 MB each and take nothing."""
    door.behind.answer = Answer(200, b'"' + b"x" * 4_000_000 + b'"')
    clients = []
    for asked in range(1, number + 1):
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await asyncio.get_running_loop().run_in_executor(None, client.connect, ("127.0.0.1", door.port))
        client.sendall(_post(door, b"{}"))
        clients.append(client)
        async with asyncio.timeout(60):
            while len(door.behind.calls) < asked:
                await asyncio.sleep(0.01)
    return clients


def _is_cut_off(client: socket.socket) -> bool:
    """Whether the answer ends before its end."""
    client.settimeout(60)
    received = 0
    try:
        while received < 4_000_000 and (part := client.recv(2**20)):
            received += len(part)
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True
    finally:
        client.close()
    return received < 4_000_000


@pytest.mark.parametrize("limit", [("ANSWER_STALL_S", 0.5), ("MAX_UNTAKEN_BYTES", 3_000_000)])
async def test_answers_that_nobody_takes_are_not_kept(
    door: Door, monkeypatch: pytest.MonkeyPatch, limit: tuple[str, float]
) -> None:
    monkeypatch.setattr(http_protocol, *limit)
    clients = await _untaken(door, 3)
    await asyncio.sleep(6)
    assert any([await asyncio.to_thread(_is_cut_off, client) for client in clients])
    door.behind.answer = Answer(200, b"{}")
    await _is_well(door)


async def test_a_slow_reader_gets_its_answer_whole(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "ANSWER_STALL_S", 4.0)
    (client,) = await _untaken(door, 1)
    client.settimeout(60)
    received, pauses = 0, 0
    while received < 4_000_000:
        received += len(await asyncio.to_thread(client.recv, 400_000))
        if received > 500_000 * (pauses + 1):
            pauses += 1
            await asyncio.sleep(0.6)
    client.close()


async def test_a_burst_buys_no_silence(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "BODY_GRACE_S", 0.3)
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
    writer.write(_request(door, "POST /v1/create", "Content-Length: 5000000", body=b" " * 4_000_000))
    assert (await asyncio.wait_for(reader.read(), 60)).startswith(b"HTTP/1.1 408 ")
    writer.close()


@pytest.mark.parametrize("key", ["Bearer nobody", None])
@pytest.mark.parametrize("filler", [b"X-Filler: " + b"y" * 1000 + b"\r\n", b"y" * 1000, b"X: y\r\n" * 200])
async def test_trailers_without_end(door: Door, key: str | None, filler: bytes) -> None:
    """Neither many nor long ones are kept, whoever sends them and whether or not the answer has gone out."""
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
    head = f"POST /v1/create HTTP/1.1\r\nHost: x\r\nAuthorization: {key or 'Bearer ' + door.key}\r\n"
    writer.write(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX: ")
    writer.write(filler * 2000)
    try:
        answer = await asyncio.wait_for(reader.read(), 60)
    except ConnectionResetError:
        answer = b""
    assert answer.startswith(b"HTTP/1.1 431 ") or key is not None
    assert door.behind.calls == []
    writer.close()
    await _is_well(door)


async def test_trailers_are_no_headers(door: Door) -> None:
    body = b"2\r\n{}\r\n0\r\nIdempotency-Key: k\r\n\r\n"
    status, _, _ = await _raw(door, _request(door, "POST /v1/create", "Transfer-Encoding: chunked", body=body))
    assert status == 200
    assert door.behind.calls[0].idempotency_key is None


async def test_an_upload_that_was_refused_does_not_hold_its_connection(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_protocol, "LINGER_S", 0.3)
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
    writer.write(_request(door, "POST /v1/create", "Content-Length: 99999999999", body=b"{" * 1000))
    answer = await asyncio.wait_for(reader.read(), 60)
    assert answer.startswith(b"HTTP/1.1 413 ")
    writer.close()


async def test_more_connections_than_there_may_be(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    await _is_well(door)
    monkeypatch.setattr(http_protocol, "MAX_CONNECTIONS", 0)
    status, headers, body = await _raw(door, _post(door, b"{}"))
    assert (status, headers["retry-after"]) == (503, "1")
    assert refusal_of(body)["code"] == "service_unavailable"
    monkeypatch.undo()
    await _is_well(door)


async def test_pipelined_requests_are_answered_in_order(door: Door) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
    writer.write(b"".join(_post(door, b'{"n":%d}' % number) for number in range(20)))
    for _ in range(20):
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
        assert head.startswith(b"HTTP/1.1 200")
        await reader.readexactly(len(b'{"told":true}'))
    assert [told.body for told in door.behind.calls] == [b'{"n":%d}' % number for number in range(20)]
    writer.close()


async def test_garbage_after_a_request_never_stands_in_its_answer(door: Door) -> None:
    door.behind.gate = asyncio.Event()
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
    writer.write(_post(door, b"{}") + b"\x00\x01 garbage\r\n\r\n")
    assert b"HTTP" not in await asyncio.wait_for(reader.read(), 60)
    writer.close()
    door.behind.gate.set()
    await asyncio.wait_for(door.behind.started.wait(), 60)
    door.behind.gate = None
    await _is_well(door)


async def test_expect_continue(door: Door) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
    writer.write(_request(door, "POST /v1/create", "Content-Length: 2", "Expect: 100-continue"))
    assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60) == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"{}")
    assert (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)).startswith(b"HTTP/1.1 200")
    writer.close()


async def test_headers_cannot_be_injected_through_a_key(door: Door) -> None:
    status, headers, _ = await _raw(door, _post(door, b"{}", "Idempotency-Key: a%0d%0aX-Evil: 1", "traceparent: x y z"))
    assert status == 200
    assert "x-evil" not in headers
    assert door.behind.calls[0].idempotency_key == "a%0d%0aX-Evil: 1"


async def test_a_key_that_stands_twice_is_one_of_both(door: Door) -> None:
    other = "Authorization: Bearer pam_" + "x" * 43
    status, _, body = await _raw(door, _post(door, b"{}", other))
    assert status == 400
    assert "Authorization" in refusal_of(body)["message"]
    assert door.behind.calls == []
