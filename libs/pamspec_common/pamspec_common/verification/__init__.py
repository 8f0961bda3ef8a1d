"""The verification of a ledger: its rules, the pages that it reads, and the walk over them."""
