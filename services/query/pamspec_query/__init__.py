"""Reads: heads, versions, past positions, structured queries and history."""
