"""Standard input and output: one host, one principal, for as long as the process lives."""

from __future__ import annotations

from mcp.server.stdio import stdio_server

from pamspec_mcp.app import Host, build
from pamspec_mcp.model.bounds import Bounds


async def serve(host: Host, bounds: Bounds) -> None:
    """Answer the host until it closes its end; what it watches ends with it."""
    server = build(bounds, host)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())
