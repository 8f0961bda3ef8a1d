"""Resources: what lies at which address, who sees it; watching tells of every change and leaves nothing."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.shared.subscriptions import ResourceUpdated

from libs.pamspec_mcp.tests.conftest import MODES, host, made
from pamspec_common import contracts
from pamspec_conformance import PROFILES
from pamspec_mcp.model import catalogue, uris
from services.gateway.tests.whole import SCOPE, Whole


async def content(client: Client, uri: str) -> dict[str, Any]:
    """The document at an address."""
    block = (await client.read_resource(uri)).contents[0]
    assert isinstance(block, types.TextResourceContents)
    document: dict[str, Any] = json.loads(block.text)
    return document


async def open_subscriptions(whole: Whole) -> set[str]:
    """The subscriptions of the test's scope that are open."""
    status, body = await whole.post("list_subscriptions", {"scope_id": SCOPE, "pagination": {"limit": 1000}})
    assert status == 200, body
    listed = json.loads(body)["subscriptions"]
    return {one["subscription"]["subscription_id"] for one in listed if one["closed"] is None}


@pytest.mark.parametrize("mode", MODES)
async def test_every_kind_of_address(whole: Whole, mode: str) -> None:
    async with host(whole.url, whole.key, mode=mode) as client:
        first = await made(client, "Read me by address.")
        listed = (await client.list_resources()).resources
        assert {uris.MANIFEST, uris.address(SCOPE), uris.address(SCOPE, "events")} <= {one.uri for one in listed}
        assert len((await client.list_resource_templates()).resource_templates) == 5
        manifest = await content(client, uris.MANIFEST)
        assert SCOPE in manifest["scopes_visible"]
        assert manifest["operations"] == list(catalogue.operations())
        assert manifest["profiles"] == [profile.name for profile in PROFILES]
        contracts.check("memory-scope", (await content(client, uris.address(SCOPE)))["scope"])
        where = uris.address(SCOPE, "object", first["object_id"])
        assert (await content(client, where))["envelope"]["version_id"] == first["version_id"]
        version = f"{where}/version/{first['version_id']}"
        assert (await content(client, version))["envelope"] == first["envelope"]
        sealed = await client.call_tool("pamspec.seal_snapshot", {"scope_id": SCOPE})
        snapshot = sealed.structured_content["snapshot"]["snapshot_id"]
        assert (await content(client, uris.address(SCOPE, "snapshot", snapshot)))["snapshots"]
        events = await content(client, uris.address(SCOPE, "events"))
        assert "events" in events or "truncated" in events


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "uri",
    [
        "pamspec://scope/workspace:none",
        f"pamspec://scope/{SCOPE}/object/obj:none",
        f"pamspec://scope/{SCOPE}/object/",
        f"pamspec://scope/{SCOPE}/object/a/version/",
        f"pamspec://scope/{SCOPE}/objects/obj:a",
        f"pamspec://scope/{SCOPE}/..%2F..",
        "pamspec://scope/%ff",
        "pamspec://scope/",
        "pamspec://scope",
        "pamspec://manifest/more",
        "file:///etc/passwd",
        "pamspec://scope/" + "a" * 5000,
    ],
)
async def test_an_address_of_nothing(whole: Whole, mode: str, uri: str) -> None:
    async with host(whole.url, whole.key, mode=mode) as client:
        with pytest.raises(MCPError):
            await client.read_resource(uri)


@pytest.mark.parametrize("mode", MODES)
async def test_another_tenants_scope_is_not_there(whole: Whole, stranger: str, mode: str) -> None:
    async with host(whole.url, whole.key, mode=mode) as client:
        secret = await made(client, "Not for strangers.")
    where = uris.address(SCOPE, "object", secret["object_id"])
    async with host(whole.url, stranger, mode=mode) as client:
        for uri in (uris.address(SCOPE), uris.address(SCOPE, "events"), where):
            with pytest.raises(MCPError) as refusal:
                await client.read_resource(uri)
            assert refusal.value.data["error"]["code"] == "scope_not_found"
        assert uris.address(SCOPE) not in {one.uri for one in (await client.list_resources()).resources}
        assert SCOPE not in (await content(client, uris.MANIFEST))["scopes_visible"]


@asynccontextmanager
async def watching(client: Client, mode: str, told: asyncio.Queue[str], *where: str) -> AsyncIterator[None]:
    """Watch addresses in the way of an era."""
    if mode == "legacy":
        for uri in where:
            await client.subscribe_resource(uri)
        yield
        return
    async with client.listen(resource_subscriptions=list(where)) as stream:

        async def forward() -> None:
            async for event in stream:
                assert isinstance(event, ResourceUpdated)
                await told.put(event.uri)

        task = asyncio.create_task(forward())
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("mode", MODES)
async def test_watching_tells_of_changes_and_leaves_nothing(whole: Whole, mode: str) -> None:
    told: asyncio.Queue[str] = asyncio.Queue()

    async def heard(message: object) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            await told.put(str(message.params.uri))

    before = await open_subscriptions(whole)
    async with (
        host(whole.url, whole.key) as writer,
        host(whole.url, whole.key, mode=mode, message_handler=heard) as client,
    ):
        first, other = await made(writer, "Watched."), await made(writer, "Not watched.")
        where = uris.address(SCOPE, "object", first["object_id"])
        async with watching(client, mode, told, where):
            assert len(await open_subscriptions(whole) - before) == 1
            for one in (other, first):
                changed = await writer.call_tool(
                    "pamspec.update",
                    {
                        "scope_id": SCOPE,
                        "object_id": one["object_id"],
                        "expected_version_id": one["version_id"],
                        "canonical_content": {"statement": "Changed."},
                        "provenance": {"activity": "told"},
                    },
                )
                assert not changed.is_error, changed
            async with asyncio.timeout(60):
                assert await told.get() == where
    async with asyncio.timeout(60):
        while await open_subscriptions(whole) - before:
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("mode", MODES)
async def test_only_what_may_be_read_can_be_watched(whole: Whole, stranger: str, mode: str) -> None:
    told: asyncio.Queue[str] = asyncio.Queue()
    before = await open_subscriptions(whole)
    async with host(whole.url, stranger, mode=mode) as client:
        for uri in (uris.address(SCOPE), uris.MANIFEST, "pamspec://nothing"):
            with pytest.raises(MCPError):
                async with watching(client, mode, told, uri):
                    raise AssertionError("it was let in")
    assert await open_subscriptions(whole) == before
