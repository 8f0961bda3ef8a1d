"""One function for each operation, and what an entry of the ledger does."""
