"""The same memory for MCP hosts: a thin door that maps tools and resources onto operations."""
