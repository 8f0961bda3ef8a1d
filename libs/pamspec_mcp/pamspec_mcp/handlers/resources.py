"""Resources: what a host shows and watches, by addresses.

Invariants: an address that names nothing, nothing visible or something erased is the protocol's "not found" with the
error envelope of the operation as its data; a resource says no more than the operation that reads it would.
"""

from __future__ import annotations

from typing import Any

import mcp_types as types
from mcp import MCPError
from mcp_types import INVALID_PARAMS

from pamspec_common import strict_json
from pamspec_common.operating import Caller, Refused, document
from pamspec_mcp.handlers import results
from pamspec_mcp.model import catalogue, uris
from pamspec_mcp.model.bounds import Bounds

NOT_FOUND = -32002
_JSON = "application/json"
_SCOPES = 200
_SCOPES_ON_A_PAGE = 50


async def listed(caller: Caller, cursor: str | None) -> types.ListResourcesResult:
    """The manifest and the scopes that the caller sees, each with its events."""
    page: dict[str, Any] = {"limit": _SCOPES_ON_A_PAGE, **({"cursor": cursor} if cursor else {})}
    try:
        found = await document(caller, "list_scopes", {"pagination": page})
    except Refused as refusal:
        raise _error(refusal.error, INVALID_PARAMS) from None
    resources = [] if cursor else [_resource(uris.MANIFEST, "manifest", "What this memory is, and what it can do.")]
    for scope in found["scopes"]:
        scope_id = scope["scope_id"]
        resources.append(_resource(uris.address(scope_id), scope_id, "The scope's document."))
        resources.append(_resource(uris.address(scope_id, "events"), f"{scope_id} events", "The scope's ledger."))
    return types.ListResourcesResult(resources=resources, next_cursor=found.get("next_cursor"))


def templates() -> types.ListResourceTemplatesResult:
    """The forms of addresses."""
    return types.ListResourceTemplatesResult(
        resource_templates=[
            types.ResourceTemplate(uri_template=form, name=name, description=told, mime_type=_JSON)
            for name, (form, told) in uris.TEMPLATES.items()
        ]
    )


async def read(caller: Caller, uri: str, bounds: Bounds) -> types.ReadResourceResult:
    """What lies at an address, as JSON; of something large the first part, with its cursor for `pamspec.continue`."""
    if uri == uris.MANIFEST:
        return _contents(uri, strict_json.dumps(await manifest(caller)).decode())
    place = uris.place(uri)
    if place is None:
        message = "No resource has this address; resources/templates/list tells their forms."
        raise MCPError(NOT_FOUND, message, {"uri": uri[:200]})
    operation, arguments = place.request()
    found = await results.bounded(caller, operation, arguments, bounds)
    if found.is_error:
        raise _error(found.structured_content["error"], NOT_FOUND)
    block = found.content[0]
    return _contents(uri, block.text if isinstance(block, types.TextContent) else "")


async def manifest(caller: Caller) -> dict[str, Any]:
    """What this memory is and can do, and which scopes the caller sees (PAMSPEC P169)."""
    try:
        found = await document(caller, "list_scopes", {"pagination": {"limit": _SCOPES}})
    except Refused as refusal:
        raise _error(refusal.error, NOT_FOUND) from None
    return {
        "spec_version": catalogue.SPEC_VERSION,
        "binding_version": catalogue.BINDING_VERSION,
        "profiles": list(catalogue.PROFILES),
        "scopes_visible": [scope["scope_id"] for scope in found["scopes"]],
        "scopes_complete": found.get("next_cursor") is None,
        "operations": list(catalogue.operations()),
    }


def _resource(uri: str, name: str, told: str) -> types.Resource:
    return types.Resource(uri=uri, name=name, description=told, mime_type=_JSON)


def _contents(uri: str, text: str) -> types.ReadResourceResult:
    return types.ReadResourceResult(contents=[types.TextResourceContents(uri=uri, mime_type=_JSON, text=text)])


def _error(error: dict[str, Any], code: int) -> MCPError:
    return MCPError(code, str(error.get("message", "Refused.")), {"error": error})
