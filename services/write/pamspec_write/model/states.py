"""The four state dimensions and their edges (PAMSPEC P92-P98).

Invariant: the dimensions are independent; an edge that needs an override is refused unless the scope's policy lists it
(S10). Availability reaches `redacted` and `deleted` only through Redact and Delete.
"""

from __future__ import annotations

from pamspec_common.errors import (
    InvalidRequest,
    InvalidStateTransition,
    LegalHold,
    ObjectDeleted,
    ObjectRedacted,
    RetentionRestriction,
)
from pamspec_common.scope_policy import OVERRIDABLE, Edge, ScopePolicy
from pamspec_write.model.rules import ScopeRules

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

PROMOTABLE = frozenset({"scratch", "candidate", "active"})
"""Where Promote's own edge to superseded begins (S1), and where the plain one does."""

ALL_STATES = frozenset(state for edges in EDGES.values() for state in edges)


def check_edge(rules: ScopeRules, dimension: str, current: str, target: str, roles: frozenset[str] | None) -> None:
    """Raise unless `current -> target` is an edge that a holder of these roles may take under these rules.

    InvalidStateTransition names the states that can follow, and where an override is missing the policy's place for it.
    """
    if _is_open(rules.policy, (dimension, current, target), roles):
        return
    by_policy = (dimension, current, target) in OVERRIDABLE
    allowed = [
        state for state in sorted(EDGES[dimension]) if _is_open(rules.policy, (dimension, current, state), roles)
    ]
    raise InvalidStateTransition(
        f"{dimension} cannot go from {current} to {target} here"
        + ("; the scope's policy would have to list that override." if by_policy else "."),
        details={
            "dimension": dimension,
            "from": current,
            "allowed": allowed,
            "reason": "needs_policy" if by_policy else "no_such_edge",
        },
        policy_rule_id=rules.rule("overrides") if by_policy else None,
    )


def check_promotable(current: str) -> None:
    """Raise unless working memory in that state is superseded by what it is promoted to (S1)."""
    if current not in PROMOTABLE:
        raise InvalidStateTransition(
            f"Working memory that is {current} is not promoted; only scratch, candidate and active ones are.",
            details={"dimension": "lifecycle", "from": current, "allowed": [], "reason": "no_such_edge"},
        )


def check_correction(dimension: str, current: str, target: str, *, has_provenance: bool) -> None:
    """Raise unless going back from corroborated to unverified brings the provenance that corrects it (P95)."""
    if (dimension, current, target) == ("validation", "corroborated", "unverified") and not has_provenance:
        raise InvalidStateTransition(
            "Going back to unverified is a correction of provenance; send the corrected provenance with it.",
            details={"dimension": dimension, "from": current, "allowed": [], "reason": "needs_provenance"},
        )


def _is_open(policy: ScopePolicy, edge: Edge, roles: frozenset[str] | None) -> bool:
    if edge in OVERRIDABLE:
        return policy.opens(*edge, roles)
    dimension, current, target = edge
    return target in EDGES[dimension].get(current, frozenset())


def check_availability_target(target: str) -> None:
    """Raise InvalidRequest for the one state that a transition cannot say enough of (S21)."""
    if target == "partially_redacted":
        raise InvalidRequest(
            "Availability becomes partially_redacted through redact; send a redact operation with paths."
        )


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


def check_redactable(availability: str, retention: str) -> None:
    """Raise unless an object in these states may be redacted: one that is redacted has nothing left (S12)."""
    check_removable(availability, retention)
    if availability == "redacted":
        raise ObjectRedacted


def check_changeable(availability: str, retention: str) -> None:
    """Raise unless an object in these states may be updated; what is redacted comes back by a transition (P97)."""
    if availability == "deleted":
        raise ObjectDeleted
    if availability == "redacted":
        raise ObjectRedacted
    if retention == "pending_deletion":
        raise RetentionRestriction(
            "The object is pending deletion; transition its retention to retained before you update it."
        )
