"""Tools over streamable HTTP, as a host of either era sees them."""

import json
from typing import Any

import jsonschema
import mcp_types as types
import pytest
from mcp import Client, MCPError

from libs.pamspec_mcp.tests.conftest import MODES, host, made
from pamspec_common import contracts
from pamspec_mcp.model import catalogue
from services.gateway.tests.whole import SCOPE, Whole


async def all_tools(client: Client) -> list[types.Tool]:
    """The list, which has one page: many hosts read no second."""
    page = await client.list_tools()
    assert page.next_cursor is None
    return page.tools


@pytest.mark.parametrize("mode", MODES)
async def test_every_operation_is_a_tool_that_describes_itself(whole: Whole, mode: str) -> None:
    async with host(whole.url, whole.key, mode=mode) as client:
        tools = {tool.name: tool for tool in await all_tools(client)}
    operations = [name for name, one in contracts.operations().items() if one.public and one.streams is None]
    assert set(tools) == {f"pamspec.{name}" for name in [*operations, "continue"]}
    for name in operations:
        tool, described = tools[f"pamspec.{name}"], contracts.operations()[name]
        jsonschema.Draft202012Validator.check_schema(tool.input_schema)
        assert tool.input_schema["type"] == "object"
        assert not tool.input_schema.keys() & {"anyOf", "oneOf", "allOf", "$ref"}
        assert tool.output_schema is not None
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint is not described.writes
        assert "actor" not in tool.input_schema["properties"] or name in ("check_delegation", "explain_delegation")
    for name, destroys in {"delete": True, "forget": True, "create": False, "update": False}.items():
        annotations = tools[f"pamspec.{name}"].annotations
        assert annotations is not None
        assert annotations.destructive_hint is destroys


@pytest.mark.parametrize("mode", MODES)
async def test_a_memory_is_written_found_changed_and_erased(whole: Whole, mode: str) -> None:
    async with host(whole.url, whole.key, mode=mode) as client:
        first = await made(client, "The depot opens at six.")
        ids = {"scope_id": SCOPE, "object_id": first["object_id"]}
        changed = await client.call_tool(
            "pamspec_update",
            {
                **ids,
                "expected_version_id": first["version_id"],
                "canonical_content": {"statement": "It opens at seven."},
                "provenance": {"activity": "told"},
            },
        )
        assert changed.structured_content is not None
        assert changed.meta is not None
        assert int(changed.meta["pamspec/pamspec-ledger-sequence"]) > 0
        read = await client.call_tool("pamspec.read", ids)
        assert read.structured_content["envelope"]["canonical_content"] == {"statement": "It opens at seven."}
        block = read.content[0]
        assert isinstance(block, types.TextContent)
        assert json.loads(block.text) == read.structured_content
        again = await client.call_tool(
            "pamspec.update",
            {
                **ids,
                "expected_version_id": first["version_id"],
                "canonical_content": {"statement": "Lost."},
                "provenance": {"activity": "told"},
            },
        )
        assert again.is_error
        assert again.structured_content["error"]["code"] == "version_conflict"
        current = read.structured_content["envelope"]["version_id"]
        gone = await client.call_tool(
            "pamspec.delete", {**ids, "expected_version_id": current, "policy_basis": "a test"}
        )
        assert not gone.is_error, gone
        missing = await client.call_tool("pamspec.read", ids)
        assert missing.is_error
        assert missing.structured_content["error"]["code"] == "object_deleted"


@pytest.mark.parametrize("mode", MODES)
async def test_a_repeated_key_is_answered_with_the_first_outcome(whole: Whole, mode: str) -> None:
    async with host(whole.url, whole.key, mode=mode) as client:
        arguments = {
            "scope_id": SCOPE,
            "object_type": "claim",
            "canonical_content": {"statement": f"Once, in {mode}."},
            "provenance": {"activity": "told"},
            "idempotency_key": f"once {mode}",
        }
        first = await client.call_tool("pamspec.create", arguments)
        second = await client.call_tool("pamspec.create", arguments)
        assert first.structured_content == second.structured_content
        assert second.meta is not None
        assert second.meta["pamspec/idempotency-replayed"] == "true"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({}, "invalid_request"),
        ({"scope_id": SCOPE, "object_id": "obj:none"}, "object_not_found"),
        ({"scope_id": "workspace:none", "object_id": "obj:none"}, "scope_not_found"),
        ({"scope_id": SCOPE, "object_id": 7}, "invalid_request"),
        ({"scope_id": SCOPE, "object_id": "obj:a", "nonsense": True}, "invalid_request"),
        ({"scope_id": SCOPE, "object_id": "obj:a", "wait_ms": float("inf")}, "invalid_request"),
        ({"scope_id": SCOPE, "object_id": "obj:a", "actor": {"id": "agent:b", "kind": "agent"}}, "invalid_request"),
    ],
)
async def test_refusals_are_results(whole: Whole, arguments: dict[str, Any], code: str) -> None:
    async with host(whole.url, whole.key) as client:
        answer = await client.call_tool("pamspec.read", arguments)
        assert answer.is_error
        contracts.check("error", answer.structured_content)
        assert answer.structured_content["error"]["code"] == code
        await client.list_tools()


async def test_a_tool_that_nobody_has_is_the_protocols_error(whole: Whole) -> None:
    async with host(whole.url, whole.key) as client:
        for name in ("pamspec.record_event", "pamspec.embed_text", "pamspec.export", "create", "pamspec.", "x"):
            with pytest.raises(MCPError, match="Unknown tool"):
                await client.call_tool(name, {})


@pytest.mark.parametrize("mode", MODES)
async def test_a_batch_whose_items_name_an_actor_is_refused(whole: Whole, mode: str) -> None:
    item = {
        "operation": "create",
        "object_type": "claim",
        "canonical_content": {"statement": "As somebody else."},
        "provenance": {"activity": "told"},
        "actor": {"id": "agent:b", "kind": "agent"},
    }
    async with host(whole.url, whole.key, mode=mode) as client:
        answer = await client.call_tool("pamspec.batch", {"scope_id": SCOPE, "items": [item]})
        assert answer.is_error
        assert answer.structured_content["error"]["details"] == {"field": "actor"}


async def test_sets_and_names_are_chosen_by_the_address(whole: Whole) -> None:
    async with host(whole.url, whole.key, "/mcp/memory?names=underscores") as client:
        tools = await all_tools(client)
        assert sum(len(tool.model_dump_json(by_alias=True, exclude_none=True)) for tool in tools) < 60_000
        assert all(set(tool.input_schema["required"]) <= set(tool.input_schema["properties"]) for tool in tools[:8])
        names = [tool.name for tool in tools]
        assert names == [f"pamspec_{name}" for name in (*catalogue.EVERYDAY, "continue")]
    async with host(whole.url, whole.key, "/mcp?names=underscores") as client:
        assert all("." not in tool.name for tool in await all_tools(client))


def test_catalogues_name_operations_that_there_are() -> None:
    public = {name for name, one in contracts.operations().items() if one.public}
    assert set(catalogue.EVERYDAY) <= public
    assert public >= catalogue._DESTRUCTIVE
    assert public >= catalogue._REPEATED
    assert not any(catalogue.traits(name).reads_only and catalogue.traits(name).destroys for name in public)
