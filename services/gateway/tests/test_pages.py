"""Health, metrics, and the description of the doors."""

import asyncio
import re

import orjson
import pytest

from pamspec_common import contracts
from services.gateway.tests.behind import Door, refusal_of


async def test_health_needs_no_key(door: Door) -> None:
    async with door.session.get(door.url + "/healthz") as response:
        assert (response.status, await response.read()) == (200, b'{"service":"gateway","status":"alive"}')
    async with door.session.get(door.url + "/readyz") as response:
        assert response.status == 200
        document = orjson.loads(await response.read())
    assert document["status"] == "ready"
    assert set(document["parts"]) == {
        "keys",
        *(f"{name}.storage" for name in ("write", "query", "subscription", "delegation", "indexing")),
    }


async def test_readiness_names_the_part_that_is_not_well(door: Door) -> None:
    door.behind.ready = False
    async with door.session.get(door.url + "/readyz") as response:
        assert response.status == 503
        document = orjson.loads(await response.read())
    assert document["status"] == "not_ready"
    assert document["parts"]["write.storage"] == {"ok": False, "essential": True}
    assert document["parts"]["subscription.storage"] == {"ok": False, "essential": False}
    assert document["parts"]["keys"]["ok"]


async def test_requests_are_counted(door: Door) -> None:
    await door.post("/v1/unsubscribe")

    async def counted() -> bool:
        async with door.session.get(door.url + "/metrics") as response:
            text = await response.text()
        return (
            re.search(r'pamspec_gateway_requests_total\{operation="unsubscribe",.*status="200"\} \d', text) is not None
        )

    async with asyncio.timeout(30):
        while not await counted():
            await asyncio.sleep(0.05)


async def test_the_description_holds_every_path(door: Door) -> None:
    async with door.session.get(door.url + "/openapi.json") as response:
        assert response.status == 200
        document = orjson.loads(await response.read())
    for name, operation in contracts.operations().items():
        assert (f"/v1/{name}" in document["paths"]) == operation.public
        for convenience in operation.conveniences:
            assert convenience.method.lower() in document["paths"][convenience.path]
    assert {"/v1/subscriptions/{subscription_id}/stream", "/healthz", "/readyz", "/metrics"} <= set(document["paths"])


async def test_the_page_of_the_description_needs_nothing_from_elsewhere(door: Door) -> None:
    async with door.session.get(door.url + "/docs") as response:
        assert response.status == 200
        assert response.headers["Content-Type"].startswith("text/html")
        page = await response.text()
    assert "openapi.json" in page
    assert not re.search(r"(?:https?:)?//[a-z]", page)


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/", "/v1/nothing", "/v1/create/", "/internal/operations"])
async def test_a_path_that_nobody_has(door: Door, path: str) -> None:
    status, body, _ = await door.post(path, b"{}")
    assert status == 404
    assert refusal_of(body)["code"] == "invalid_request"
    assert door.behind.calls == []
