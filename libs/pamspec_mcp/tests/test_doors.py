"""One memory behind every door: what goes in by one comes out by the others, and what one erases is gone for all."""

import asyncio
import json
from typing import Any

import pytest
from mcp import MCPError

from libs.pamspec_mcp.tests.conftest import MODES, host, made
from libs.pamspec_mcp.tests.test_graph import done, entity, relation
from libs.pamspec_mcp.tests.test_resources import content
from pamspec_common.ids import mint
from pamspec_mcp.model import uris
from services.gateway.tests.whole import SCOPE, Whole


async def asked(whole: Whole, operation: str, **document: Any) -> dict[str, Any]:
    """The answer of an operation over HTTP that must succeed."""
    status, body = await whole.post(operation, document)
    assert status < 300, body
    answer: dict[str, Any] = json.loads(body)
    return answer


@pytest.mark.parametrize("mode", MODES)
async def test_a_tools_memory_is_everybodys(whole: Whole, mode: str) -> None:
    opened = await asked(whole, "subscribe", scope_id=SCOPE)
    async with host(whole.url, whole.key, mode=mode) as client:
        first = await made(client, "Told to a tool.")
        ids = {"scope_id": SCOPE, "object_id": first["object_id"]}
        where = uris.address(SCOPE, "object", first["object_id"])
        page = await asked(whole, "poll", subscription_id=opened["subscription_id"], wait_ms=20_000)
        assert first["event_id"] in [event["event_id"] for event in page["events"]]
        changed = await asked(
            whole,
            "update",
            **ids,
            expected_version_id=first["version_id"],
            canonical_content={"statement": "Changed over HTTP."},
            provenance={"activity": "told"},
        )
        assert (await content(client, where))["envelope"]["version_id"] == changed["version_id"]
        history = await client.call_tool("pamspec.inspect_history", ids)
        assert [one["version_id"] for one in history.structured_content["versions"]].count(changed["version_id"]) == 1
        await asked(whole, "delete", **ids, expected_version_id=changed["version_id"], policy_basis="a test")
        gone = await client.call_tool("pamspec.read", ids)
        assert gone.structured_content["error"]["code"] == "object_deleted"
        with pytest.raises(MCPError) as refusal:
            await client.read_resource(where)
        assert refusal.value.data["error"]["code"] == "object_deleted"


async def test_the_graph_is_made_of_objects_that_every_door_has(whole: Whole) -> None:
    scope_id = mint("workspace")
    await asked(whole, "create_scope", scope_id=scope_id)
    ada = await asked(
        whole,
        "create",
        scope_id=scope_id,
        object_type="entity",
        canonical_content={"name": "Ada", "entity_type": "person"},
        provenance={"activity": "told over HTTP"},
    )
    async with host(whole.url, whole.key, f"/mcp/graph?scope={scope_id}") as client:
        assert (await done(client, "create_entities", entities=[entity("Ada"), entity("Bert")]))["entities"] == [
            entity("Bert")
        ]
        told = [{"entityName": "Ada", "contents": ["speaks Welsh"]}]
        assert (await done(client, "add_observations", observations=told))["results"][0]["addedObservations"]
        await done(client, "create_relations", relations=[relation("Ada", "knows", "Bert")])
        search = {"kind": "hybrid", "text": "Welsh", "modes": ["lexical"], "trust": "working"}
        found = await asked(whole, "query", scope_id=scope_id, query=search)
        async with asyncio.timeout(90):
            while not found["items"]:
                # The index of words follows the ledger.
                await asyncio.sleep(0.1)
                found = await asked(whole, "query", scope_id=scope_id, query=search)
        assert [one["envelope"]["canonical_content"]["text"] for one in found["items"]] == ["speaks Welsh"]
        said = found["items"][0]["envelope"]
        await asked(
            whole,
            "delete",
            scope_id=scope_id,
            object_id=said["object_id"],
            expected_version_id=said["version_id"],
            policy_basis="a test",
        )
        assert entity("Ada") in (await done(client, "read_graph"))["entities"]
        await done(client, "delete_entities", entityNames=["Ada"])
    status, body = await whole.post("read", {"scope_id": scope_id, "object_id": ada["object_id"]})
    assert (status, json.loads(body)["error"]["code"]) == (410, "object_deleted")
