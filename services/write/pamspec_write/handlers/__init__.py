"""Handlers: one plain asynchronous function per operation, and the group commit that they share."""
