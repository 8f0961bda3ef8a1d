"""The conveniences over HTTP: each becomes the operation document that it stands for."""

import re
from typing import Any

import orjson
import pytest

from pamspec_common import contracts
from pamspec_common.calls import Answer
from pamspec_common.contracts.catalogues import Convenience
from services.gateway.tests.behind import Door, refusal_of


@pytest.mark.parametrize(
    ("path", "operation", "document"),
    [
        ("/v1/objects?scope_id=scope:a&object_id=obj:1", "read", {"scope_id": "scope:a", "object_id": "obj:1"}),
        (
            "/v1/objects?scope_id=scope:a&object_id=obj:1&version_id=ver:1&min_sequence=4&wait_ms=10",
            "read",
            {"scope_id": "scope:a", "object_id": "obj:1", "version_id": "ver:1", "min_sequence": 4, "wait_ms": 10},
        ),
        (
            "/v1/operations/op:1%2F2?scope_id=scope:a",
            "get_operation",
            {"operation_id": "op:1/2", "scope_id": "scope:a"},
        ),
        ("/v1/ledger/checkpoint?scope_id=scope:a", "get_checkpoint", {"scope_id": "scope:a"}),
        (
            "/v1/ledger/proof?scope_id=scope:a&sequence=7&from=5",
            "prove_ledger",
            {"scope_id": "scope:a", "sequence": 7, "from": 5},
        ),
        ("/v1/scopes?limit=5&cursor=c", "list_scopes", {"pagination": {"limit": 5, "cursor": "c"}}),
        ("/v1/scopes?cursor=c", "list_scopes", {"pagination": {"limit": 50, "cursor": "c"}}),
        (
            "/v1/snapshots?scope_id=scope:a&limit=5",
            "list_snapshots",
            {"scope_id": "scope:a", "pagination": {"limit": 5}},
        ),
        ("/v1/snapshots/snap:1", "list_snapshots", {"snapshot_id": "snap:1"}),
        (
            "/v1/erasures?scope_id=scope:a&limit=5",
            "list_erasures",
            {"scope_id": "scope:a", "pagination": {"limit": 5}},
        ),
        ("/v1/erasures/erasure:1", "list_erasures", {"erasure_id": "erasure:1"}),
        ("/v1/subscriptions?scope_id=scope:a", "list_subscriptions", {"scope_id": "scope:a"}),
        ("/v1/subscriptions/sub:1", "list_subscriptions", {"subscription_id": "sub:1"}),
        (
            "/v1/subscriptions/sub:1/events?max=100&wait_ms=0&after_sequence=7",
            "poll",
            {"subscription_id": "sub:1", "max": 100, "wait_ms": 0, "after_sequence": 7},
        ),
    ],
)
async def test_get(door: Door, path: str, operation: str, document: dict[str, Any]) -> None:
    status, body, headers = await door.get(path)
    assert (status, body, headers["Pamspec-Ledger-Sequence"]) == (200, b'{"told":true}', "7")
    assert headers["Content-Type"] == "application/json"
    told = door.behind.calls[0]
    assert (told.operation, orjson.loads(told.body)) == (operation, document)
    contracts.request_validator(operation).validate(orjson.loads(told.body))


CONVENIENCES = [
    pytest.param(name, one, id=f"{one.method} {one.path}")
    for name, operation in contracts.operations().items()
    for one in operation.conveniences
    if one.query
]
SAMPLES = {"integer": "3", "string": "scope:a", None: "reader"}
NAMED = {
    "outcome": "denied",
    "operation": "create",
    "since": "2026-01-01T00:00:00Z",
    "until": "2026-01-02T00:00:00Z",
    "state": "suspended",
    "consumer": "indexing",
}
"""Values of members that take no text at will."""


@pytest.mark.parametrize(("operation", "convenience"), CONVENIENCES)
async def test_each_query_parameter_alone_keeps_the_contract(
    door: Door, operation: str, convenience: Convenience
) -> None:
    """Whatever the contract lets a client send, alone and all together, arrives with each member of its type."""
    path = re.sub(r"\{[^}]*\}", "sub:1", convenience.path)
    required = set(contracts.schema(f"pamspec:operation:{operation}:request").get("required", ()))
    values = {name: NAMED.get(name) or SAMPLES[contracts.member_type(operation, name)] for name in convenience.query}
    needed = {name: value for name, value in values.items() if name in required}
    for query in [values, *({**needed, name: value} for name, value in values.items())]:
        sent = {"Authorization": f"Bearer {door.key}"}
        async with door.session.request(convenience.method, door.url + path, params=query, headers=sent) as response:
            assert response.status == 200, await response.text()
        document = orjson.loads(door.behind.calls[-1].body)
        misfits = [one for one in contracts.request_validator(operation).iter_errors(document) if one.absolute_path]
        assert not misfits, (query, misfits)


@pytest.mark.parametrize(
    ("path", "body", "operation", "document"),
    [
        ("/v1/scopes", {"scope_id": "scope:a"}, "create_scope", {"scope_id": "scope:a"}),
        ("/v1/snapshots", {"scope_id": "scope:a"}, "seal_snapshot", {"scope_id": "scope:a"}),
        ("/v1/subscriptions/sub:1/ack", {"sequence": 3}, "ack", {"subscription_id": "sub:1", "sequence": 3}),
        (
            "/v1/subscriptions/sub:1/reset",
            {"after_sequence": 0, "subscription_id": "sub:1"},
            "reset",
            {"subscription_id": "sub:1", "after_sequence": 0},
        ),
    ],
)
async def test_post(door: Door, path: str, body: Any, operation: str, document: dict[str, Any]) -> None:
    door.behind.answer = Answer(201, b"{}")
    status, _, _ = await door.post(path, body, Idempotency_Key="k")
    assert status == 201
    told = door.behind.calls[0]
    assert (told.operation, orjson.loads(told.body), told.idempotency_key) == (operation, document, "k")


async def test_delete(door: Door) -> None:
    async with door.session.delete(
        door.url + "/v1/subscriptions/sub:1", headers={"Authorization": f"Bearer {door.key}"}
    ) as response:
        assert response.status == 200
    assert orjson.loads(door.behind.calls[0].body) == {"subscription_id": "sub:1"}
    assert door.behind.calls[0].operation == "unsubscribe"


async def test_numbers_of_a_body_stay_as_written(door: Door) -> None:
    await door.post(
        "/v1/scopes", b'{"scope_id": "scope:a", "policy": {"big": 123456789012345678901234567890, "f": 1.50}}'
    )
    assert door.behind.calls[0].body == (
        b'{"policy":{"big":123456789012345678901234567890,"f":1.50},"scope_id":"scope:a"}'
    )


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/v1/objects?scope_id=scope:a&object_id=obj:1&colour=red", "no such query parameter"),
        ("/v1/objects?scope_id=scope:a&scope_id=scope:b", "scope_id stands twice"),
        ("/v1/objects?scope_id=scope:a&wait_ms=soon", "wait_ms takes an integer"),
        ("/v1/objects?scope_id=scope:a&wait_ms=-1", "wait_ms takes an integer"),
        ("/v1/subscriptions/sub:1/events?max=1e3", "max takes an integer"),
        ("/v1/subscriptions/sub:1/events?max=" + "9" * 30, "max takes an integer"),
        ("/v1/subscriptions/sub:1/events?max=%D9%A3", "max takes an integer"),
    ],
)
async def test_query_parameters_that_do_not_fit(door: Door, path: str, names: str) -> None:
    status, body, _ = await door.get(path)
    assert status == 400
    error = refusal_of(body)
    assert error["code"] == "invalid_request"
    assert names in error["message"]
    assert door.behind.calls == []


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"[]", 400),
        (b'"text"', 400),
        (b"{", 400),
        (b'{"sequence":1,"sequence":2}', 400),
        (b'{"sequence":"\\ud800"}', 400),
        (b'{"sequence":"\xff"}', 400),
        (b'{"subscription_id":"sub:2"}', 400),
        (b" " * (16 * 1024 * 1024 + 1), 413),
    ],
)
async def test_bodies_that_do_not_fit(door: Door, body: bytes, status: int) -> None:
    answered, answer, _ = await door.post("/v1/subscriptions/sub:1/ack", body)
    assert answered == status
    assert refusal_of(answer)["code"] == "invalid_request"
    assert door.behind.calls == []


async def test_other_content_is_refused_there_too(door: Door) -> None:
    status, body, _ = await door.post("/v1/scopes", b"scope_id=a", Content_Type="application/x-www-form-urlencoded")
    assert status == 415
    assert refusal_of(body)["code"] == "invalid_request"


async def test_a_version_that_the_client_has_is_not_sent_again(door: Door) -> None:
    path = "/v1/objects?scope_id=scope:a&object_id=obj:1"
    door.behind.answer = Answer(200, b'{"envelope":{}}', {"ETag": '"ver:1.0"', "Pamspec-As-Of-Sequence": "9"})
    status, body, headers = await door.get(path)
    assert (status, body, headers["ETag"]) == (200, b'{"envelope":{}}', '"ver:1.0"')
    for held in ('"ver:1.0"', 'W/"ver:1.0"', '"ver:0.0", "ver:1.0"', "*"):
        status, body, headers = await door.get(path, If_None_Match=held)
        assert (status, body, headers["ETag"]) == (304, b"", '"ver:1.0"')
        assert headers["Pamspec-As-Of-Sequence"] == "9"
    for held in ('"ver:1.1"', "", "nonsense"):
        assert (await door.get(path, If_None_Match=held))[0] == 200
    door.behind.answer = Answer(410, b'{"error":{}}', {"ETag": '"ver:1.0"'})
    assert (await door.get(path, If_None_Match='"ver:1.0"'))[0] == 410


async def test_head_and_options(door: Door) -> None:
    path = door.url + "/v1/objects?scope_id=scope:a&object_id=obj:1"
    headers = {"Authorization": f"Bearer {door.key}"}
    async with door.session.head(path, headers=headers) as response:
        assert (response.status, response.headers["Pamspec-Ledger-Sequence"]) == (200, "7")
        assert await response.read() == b""
    async with door.session.options(door.url + "/v1/scopes") as response:
        assert (response.status, response.headers["Allow"]) == (204, "DELETE, GET, HEAD, OPTIONS, PATCH, POST")
    async with door.session.put(door.url + "/v1/scopes", headers=headers) as response:
        assert (response.status, response.headers["Allow"]) == (405, "DELETE, GET, HEAD, OPTIONS, PATCH, POST")
        assert refusal_of(await response.read())["code"] == "invalid_request"


async def test_conveniences_want_a_key(door: Door) -> None:
    async with door.session.get(door.url + "/v1/scopes") as response:
        assert (response.status, response.headers["WWW-Authenticate"]) == (401, 'Bearer realm="pamspec"')
        assert refusal_of(await response.read())["code"] == "access_denied"
