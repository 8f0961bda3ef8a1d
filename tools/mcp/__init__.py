"""The public conformance suite of the protocol, run against the door for MCP hosts."""
