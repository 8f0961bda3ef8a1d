"""The eleven profiles of PAMSPEC 18.1 to 18.11, and which of them stand on another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

VERSION: Final = "0.1.0-draft"
"""The object model revision that the profiles belong to."""


@dataclass(frozen=True)
class Profile:
    """A profile: it is complete only when those that it stands on are complete too."""

    name: str
    section: str
    title: str
    stands_on: tuple[str, ...] = ()


PROFILES: Final = (
    Profile("LITE", "18.1", "Scope, envelope, states, ledger, expected versions and durable idempotency"),
    Profile("DELEGATION", "18.2", "Delegated authority: grant, check, revoke, limits", ("LITE",)),
    Profile("SUBSCRIBE", "18.3", "Delivery of events with a stable cursor", ("LITE",)),
    Profile("CORE", "18.4", "The whole envelope, four independent dimensions, errors, export"),
    Profile("VERSIONING", "18.5", "Immutable versions, conflicts and historical reads"),
    Profile("LEDGER", "18.6", "Append-only, linked, ordered, compatible with erasure and hold"),
    Profile("STRUCTURED-QUERY", "18.7", "Filters, times, stable order, pages and repeatability"),
    Profile("SEMANTIC-QUERY", "18.8", "Embedding spaces, result metadata and disclosure"),
    Profile("RELATIONSHIP", "18.9", "Versioned relationships, cross-scope policy and traversal"),
    Profile("PROTOCOL-BINDING", "18.10", "Semantics, errors, idempotency and preconditions across the binding"),
    Profile("EVALUATION", "18.11", "Sealed snapshots, deterministic clock and isolation"),
)
