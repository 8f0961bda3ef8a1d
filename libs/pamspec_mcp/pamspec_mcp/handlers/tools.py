"""Tools: one for each operation, and one that goes on with a large answer.

Invariant: who calls is the principal of the request, whatever the arguments say; an argument `actor` is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import mcp_types as types

from pamspec_common import contracts
from pamspec_common.errors import InvalidRequest
from pamspec_common.operating import Caller
from pamspec_mcp.handlers import results
from pamspec_mcp.model import catalogue, schemas
from pamspec_mcp.model.bounds import Bounds
from pamspec_mcp.model.catalogue import CONTINUE, Naming, ToolSet

_CONTINUE_SUMMARY = (
    "Get the next part of an answer that was too large for one result: send the cursor that stands in `truncated`."
)


def tool(operation: str, naming: Naming, *, brief: bool = False) -> types.Tool:
    """The tool of an operation."""
    if operation == CONTINUE:
        return _continue_tool(naming)
    described, traits = contracts.operations()[operation], catalogue.traits(operation)
    return types.Tool(
        name=catalogue.tool_name(operation, naming),
        title=described.summary.removesuffix("."),
        description=_description(operation),
        input_schema=schemas.input_schema(operation, brief=brief),
        output_schema=None if brief else schemas.output_schema(operation),
        annotations=types.ToolAnnotations(
            title=described.summary.removesuffix("."),
            read_only_hint=traits.reads_only,
            destructive_hint=traits.destroys,
            idempotent_hint=traits.idempotent,
            open_world_hint=False,
        ),
    )


def _description(operation: str) -> str:
    summary = contracts.operations()[operation].summary
    more = contracts.schema(f"pamspec:operation:{operation}:request").get("description", "")
    return summary if not more or more == summary else f"{summary} {more}"


def _continue_tool(naming: Naming) -> types.Tool:
    return types.Tool(
        name=catalogue.tool_name(CONTINUE, naming),
        title="Go on with a large answer",
        description=_CONTINUE_SUMMARY,
        input_schema={
            "type": "object",
            "properties": {"cursor": {"type": "string", "description": "truncated.cursor of the part before."}},
            "required": ["cursor"],
            "additionalProperties": False,
        },
        output_schema={
            "type": "object",
            "properties": {"truncated": schemas.TRUNCATED, "error": {"type": "object"}},
        },
        annotations=types.ToolAnnotations(
            read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
        ),
    )


@cache
def listed(tools: ToolSet, naming: Naming) -> tuple[types.Tool, ...]:
    """The tools of a set, all together: many hosts, and the SDK's own client, read no second page of them."""
    brief = tools == "memory"
    return tuple(tool(one, naming, brief=brief) for one in (*catalogue.tool_set(tools), CONTINUE))


async def call(caller: Caller, operation: str, arguments: Mapping[str, Any], bounds: Bounds) -> types.CallToolResult:
    """The result of a tool."""
    if operation == CONTINUE:
        return await results.continued(caller, arguments.get("cursor"), bounds)
    if _names_actor(operation, arguments):
        message = "Who calls is the principal of the session; leave actor out."
        return results.refused(InvalidRequest(message, details={"field": "actor"}))
    return await results.bounded(caller, operation, dict(arguments), bounds)


def _names_actor(operation: str, arguments: Mapping[str, Any]) -> bool:
    if "actor" in arguments and not schemas.takes_actor(operation):
        return True
    items = arguments.get("items") if operation == "batch" else None
    return isinstance(items, list) and any(isinstance(item, dict) and "actor" in item for item in items)
