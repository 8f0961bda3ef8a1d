"""The types of ledger events; `contracts/events.yaml` lists them with their producers and readers."""

from __future__ import annotations

from typing import Literal, get_args

EventType = Literal[
    "object_created",
    "object_updated",
    "provenance_updated",
    "lifecycle_transitioned",
    "availability_transitioned",
    "retention_transitioned",
    "validation_transitioned",
    "relationship_created",
    "relationship_updated",
    "object_redacted",
    "object_deleted",
    "working_memory_promoted",
    "tool_invoked",
    "tool_completed",
    "embedding_generated",
    "index_rebuilt",
    "access_denied",
    "subscription_opened",
    "subscription_closed",
    "delegation_granted",
    "delegation_revoked",
    "delegation_exercised",
]
EVENT_TYPES: tuple[str, ...] = get_args(EventType)

PARTY_TYPES: frozenset[str] = frozenset(
    {
        "access_denied",
        "subscription_opened",
        "subscription_closed",
        "delegation_granted",
        "delegation_revoked",
        "delegation_exercised",
    }
)
"""Seen by auditors, administrators and the parties that the event names (PAMSPEC P133)."""
