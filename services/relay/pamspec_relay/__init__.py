"""Moves committed outbox rows to the bus, in ledger order, fenced by the stream's last sequence."""
