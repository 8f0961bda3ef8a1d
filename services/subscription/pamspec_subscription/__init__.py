"""Durable subscriptions: catch-up from the ledger, live delivery over every channel."""
