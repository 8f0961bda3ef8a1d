"""The four state dimensions and their edges (PAMSPEC P92-P98).

Invariant: the dimensions are independent; an edge that needs a policy's override is refused until a policy lists it
(S10). Availability reaches `redacted` and `deleted` only through Redact and Delete.
"""

from __future__ import annotations

from pamspec_common.errors import InvalidRequest, InvalidStateTransition, LegalHold, ObjectDeleted, RetentionRestriction

DIMENSIONS = ("lifecycle", "availability", "retention", "validation")

EDGES: dict[str, dict[str, frozenset[str]]] = {
    "lifecycle": {
        "scratch": frozenset({"candidate", "archived"}),
        "candidate": frozenset({"active", "deprecated", "archived"}),
        "active": frozenset({"superseded", "deprecated", "archived"}),
        "superseded": frozenset({"archived", "deprecated"}),
        "deprecated": frozenset({"archived", "active"}),
        "archived": frozenset({"active", "deprecated"}),
    },
    "validation": {
        "unverified": frozenset({"corroborated", "disputed", "rejected"}),
        "corroborated": frozenset({"disputed", "rejected", "unverified"}),
        "disputed": frozenset({"corroborated", "rejected"}),
        "rejected": frozenset({"disputed", "corroborated"}),
    },
    "availability": {
        "available": frozenset({"partially_redacted", "redacted", "deleted"}),
        "partially_redacted": frozenset({"available", "redacted", "deleted"}),
        "redacted": frozenset({"available", "deleted"}),
        "deleted": frozenset(),
    },
    "retention": {
        "retained": frozenset({"expired", "pending_deletion", "legal_hold"}),
        "expired": frozenset({"retained", "pending_deletion", "legal_hold"}),
        "pending_deletion": frozenset({"retained", "legal_hold"}),
        "legal_hold": frozenset({"retained", "expired", "pending_deletion"}),
    },
}

ALL_STATES = frozenset(state for edges in EDGES.values() for state in edges)

# Edges of the tables that only a policy opens (P93, P95, P97).
NEEDS_POLICY = frozenset(
    {
        ("lifecycle", "deprecated", "active"),
        ("lifecycle", "archived", "active"),
        ("validation", "corroborated", "unverified"),
        ("validation", "rejected", "corroborated"),
        ("availability", "redacted", "available"),
    }
)


def check_edge(dimension: str, current: str, target: str) -> None:
    """Raise unless `current -> target` is an edge that a plain transition may take.

    InvalidStateTransition names the states that can follow.
    """
    following = EDGES[dimension].get(current, frozenset())
    if target in following and (dimension, current, target) not in NEEDS_POLICY:
        return
    open_targets = sorted(state for state in following if (dimension, current, state) not in NEEDS_POLICY)
    reason = "needs_policy" if target in following else "no_such_edge"
    raise InvalidStateTransition(
        f"{dimension} cannot go from {current} to {target} here.",
        details={"dimension": dimension, "from": current, "allowed": open_targets, "reason": reason},
    )


def check_availability_target(target: str) -> None:
    """Availability changes through Redact and Delete; a plain transition only leads back to available (S21)."""
    if target == "partially_redacted":
        raise InvalidRequest("Availability becomes partially_redacted through redact; send a redact operation.")
    if target == "redacted":
        raise InvalidRequest("Availability becomes redacted through redact, which this service does not offer yet.")


def check_present(availability: str, retention: str) -> None:
    """Raise ObjectDeleted for a tombstone: no dimension of it moves any more (S12)."""
    if availability == "deleted":
        raise ObjectDeleted


def check_removable(availability: str, retention: str) -> None:
    """Raise unless an object in these states may be deleted (S12)."""
    if availability == "deleted":
        raise ObjectDeleted
    if retention == "legal_hold":
        raise LegalHold


def check_changeable(availability: str, retention: str) -> None:
    """Raise unless an object in these states may be updated."""
    if availability == "deleted":
        raise ObjectDeleted
    if retention == "pending_deletion":
        raise RetentionRestriction(
            "The object is pending deletion; transition its retention to retained before you update it."
        )
