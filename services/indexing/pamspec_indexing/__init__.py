"""The indexing service: what the ledger tells becomes findable, and what it ends is found no more."""
