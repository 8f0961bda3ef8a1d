"""The typed client of a memory service, synchronous and asynchronous."""
