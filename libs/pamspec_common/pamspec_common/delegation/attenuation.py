"""Attenuation: a grant that is passed on permits no more than the one above it, in any respect."""

from __future__ import annotations

from collections.abc import Iterator

from pamspec_common.delegation.grants import Chain, Party, Terms
from pamspec_common.errors import PolicyDenied

_MESSAGES = {
    "not_after": "The grant ends before it begins; correct not_before and not_after.",
    "delegate": "The delegate has a place in the chain of grants already; grant it to somebody else.",
}


def check_window(terms: Terms) -> None:
    """Raise PolicyDenied for a window that ends before it begins (P209)."""
    if terms.not_before > terms.not_after:
        raise _denied("not_after")


def check_parties(above: Chain, grantor: Party, delegate: Party) -> None:
    """Raise PolicyDenied where a grant would lead back to somebody from whom it comes."""
    givers = {grantor.actor_id, *(grant.grantor.actor_id for grant in above)}
    if delegate.actor_id in givers:
        raise _denied("delegate")


def check_narrower(above: Chain, grantor: Party, terms: Terms, scope_id: str, target_scope_id: str) -> None:
    """Raise PolicyDenied, naming the member, where a grant under the last of `above` would permit more than it."""
    for field in _broader(above, grantor, terms, scope_id, target_scope_id):
        raise _denied(field)


def _broader(above: Chain, grantor: Party, terms: Terms, scope_id: str, target_scope_id: str) -> Iterator[str]:
    parent = above[-1]
    outer = parent.terms
    if parent.delegate != grantor:
        yield "delegation_id"
    if outer.redelegation_depth < 1 or terms.redelegation_depth >= outer.redelegation_depth:
        yield "redelegation_depth"
    if scope_id != parent.target_scope_id:
        yield "scope_id"
    if target_scope_id != parent.target_scope_id:
        yield "target_scope_id"
    if not terms.operations <= outer.operations:
        yield "granted_operations"
    if _exceeds(terms.object_types, outer.object_types):
        yield "granted_object_types"
    if _exceeds(terms.object_ids, outer.object_ids):
        yield "granted_object_ids"
    if terms.not_before < outer.not_before:
        yield "not_before"
    if terms.not_after > outer.not_after:
        yield "not_after"
    if outer.usage_limit is not None and (terms.usage_limit is None or terms.usage_limit > outer.usage_limit):
        yield "usage_limit"


def _exceeds(inner: frozenset[str] | None, outer: frozenset[str] | None) -> bool:
    return outer is not None and (inner is None or not inner <= outer)


def _denied(field: str) -> PolicyDenied:
    message = _MESSAGES.get(field) or (
        f"The grant would permit more than the one that it is passed on under; narrow its {field}."
    )
    return PolicyDenied(message, details={"field": field})
