"""A scope's policy: which overrides it opens, which types it takes, and how it may be joined to other scopes.

Invariant: what a policy does not name is closed (S10, P13): the policy of a scope that has none is `STRICT`, and only
`object_types` is about taking away. The form is contracts/schemas/scope-policy.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from pamspec_common.attestation import AttestationRule, unusable_key
from pamspec_common.documents import MAX_KEY, STANDARD_TYPES, is_extension_type, misfit
from pamspec_common.errors import InvalidRequest
from pamspec_common.ids import Id, is_id
from pamspec_common.retention import Retention, check_retention
from pamspec_common.strict_json import canonical

MAX_POLICY_BYTES = 64 * 1024
MAX_RULES = 1000

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_KEY)]
Roles = Annotated[tuple[Name, ...], msgspec.Meta(min_length=1, max_length=MAX_RULES)]
Names = Annotated[tuple[Name, ...], msgspec.Meta(max_length=MAX_RULES)]
Edge = tuple[str, str, str]
"""Dimension, state before, state after."""

# Every edge that a policy can open (P93, P95, P97); whatever else the tables leave out stays closed.
OVERRIDABLE: frozenset[Edge] = frozenset(
    {
        *(("lifecycle", "scratch", target) for target in ("active", "superseded", "deprecated")),
        ("lifecycle", "candidate", "superseded"),
        ("lifecycle", "active", "scratch"),
        ("lifecycle", "superseded", "active"),
        *(("lifecycle", "deprecated", target) for target in ("scratch", "active")),
        *(("lifecycle", "archived", target) for target in ("scratch", "candidate", "active")),
        ("validation", "corroborated", "unverified"),
        ("validation", "rejected", "corroborated"),
        ("availability", "redacted", "available"),
    }
)


class Override(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One edge that is open here, to everybody or to the holders of some roles."""

    dimension: str
    from_: str = msgspec.field(name="from")
    to: str
    roles: Roles | msgspec.UnsetType = msgspec.UNSET


class ObjectTypes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Types by name, or by a pattern with one `*` for any run of characters; `deny` wins over `allow`."""

    allow: Names | msgspec.UnsetType = msgspec.UNSET
    deny: Names = ()


class Neighbour(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Another scope of the tenant, and the relationship types that may join it; all where none are named."""

    scope_id: Id
    relationship_types: Names | msgspec.UnsetType = msgspec.UNSET


class Visitor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Another scope of the tenant."""

    scope_id: Id


Neighbours = Annotated[tuple[Neighbour, ...], msgspec.Meta(max_length=MAX_RULES)]
Visitors = Annotated[tuple[Visitor, ...], msgspec.Meta(max_length=MAX_RULES)]


class CrossScope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How this scope may be joined to others: both sides must agree (P13, P183)."""

    relate_to: Neighbours = ()
    accept_from: Neighbours = ()
    traverse_from: Visitors = ()


class ScopePolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A scope's policy. Roles are None for a principal that holds every role."""

    overrides: Annotated[tuple[Override, ...], msgspec.Meta(max_length=MAX_RULES)] = ()
    object_types: ObjectTypes = ObjectTypes()
    retention: Retention = Retention()
    cross_scope: CrossScope = CrossScope()
    evaluation_runs: Names = ()
    attestation: AttestationRule | msgspec.UnsetType = msgspec.UNSET

    def opens(self, dimension: str, current: str, target: str, roles: frozenset[str] | None = None) -> bool:
        """Whether an override opens this edge to a holder of these roles (S10)."""
        return any(
            (one.dimension, one.from_, one.to) == (dimension, current, target) and _permits(one, roles)
            for one in self.overrides
        )

    def type_refusal(self, object_type: str) -> str | None:
        """The rule that keeps objects of a type out of the scope, or None (P59)."""
        for index, pattern in enumerate(self.object_types.deny):
            if matches(pattern, object_type):
                return f"object_types/deny/{index}"
        allow = self.object_types.allow
        if allow is msgspec.UNSET or any(matches(pattern, object_type) for pattern in allow):
            return None
        return "object_types/allow"

    def relates_to(self, scope_id: str, relationship_type: str) -> bool:
        """Whether a relationship of that type may lead from here to an object of that scope."""
        return _joins(self.cross_scope.relate_to, scope_id, relationship_type)

    def accepts_from(self, scope_id: str, relationship_type: str) -> bool:
        """Whether a relationship of that type may lead from that scope to an object here."""
        return _joins(self.cross_scope.accept_from, scope_id, relationship_type)

    def traversable_from(self, scope_id: str) -> bool:
        """Whether a traversal that comes from that scope may go on here (P183)."""
        return any(one.scope_id == scope_id for one in self.cross_scope.traverse_from)

    def permits_run(self, evaluation_run_id: str) -> bool:
        """Whether an evaluation run may write here, though the scope is not one for evaluations (P232)."""
        return any(matches(pattern, evaluation_run_id) for pattern in self.evaluation_runs)


STRICT = ScopePolicy()
"""The policy of a scope that has none."""


def rule_id(policy_version: int, rule: str) -> str:
    """What `policy_rule_id` of a refusal names: the version of the policy and the place in it."""
    return f"scope-policy/{policy_version}/{rule}"


def matches(pattern: str, name: str) -> bool:
    """Whether a name is the one of a rule, or of its pattern."""
    before, star, after = pattern.partition("*")
    if not star:
        return name == pattern
    return len(name) >= len(before) + len(after) and name.startswith(before) and name.endswith(after)


def parse_policy(document: Mapping[str, Any], where: str = "policy") -> ScopePolicy:
    """The policy of a document; InvalidRequest names the member that breaks a rule."""
    size = len(canonical(document))
    if size > MAX_POLICY_BYTES:
        raise InvalidRequest(
            f"{where} is larger than {MAX_POLICY_BYTES} bytes; use patterns instead of many names.",
            details={"limit": MAX_POLICY_BYTES, "size": size, "field": where},
        )
    try:
        policy = msgspec.convert(document, ScopePolicy)
    except msgspec.ValidationError as problem:
        raise misfit(ScopePolicy, str(problem), InvalidRequest, where) from None
    _check_overrides(policy, where)
    _check_types(policy, where)
    check_retention(policy.retention, f"{where}.retention")
    _check_runs(policy, where)
    _check_authorities(policy, where)
    return policy


def stored_policy(policy: bytes) -> ScopePolicy:
    """A policy that was checked when it was stored."""
    return msgspec.json.decode(policy, type=ScopePolicy)


def _permits(override: Override, roles: frozenset[str] | None) -> bool:
    return override.roles is msgspec.UNSET or roles is None or not roles.isdisjoint(override.roles)


def _joins(neighbours: Neighbours, scope_id: str, relationship_type: str) -> bool:
    return any(
        one.scope_id == scope_id
        and (
            one.relationship_types is msgspec.UNSET
            or any(matches(pattern, relationship_type) for pattern in one.relationship_types)
        )
        for one in neighbours
    )


def _check_overrides(policy: ScopePolicy, where: str) -> None:
    for index, one in enumerate(policy.overrides):
        if (one.dimension, one.from_, one.to) not in OVERRIDABLE:
            place = f"{where}.overrides[{index}]"
            raise InvalidRequest(
                f"{place} is no edge that a policy can open; leave it out.",
                details={"field": place, "overridable": [list(edge) for edge in sorted(OVERRIDABLE)]},
            )


def _check_types(policy: ScopePolicy, where: str) -> None:
    lists = {"allow": policy.object_types.allow, "deny": policy.object_types.deny}
    for name, patterns in lists.items():
        for index, pattern in enumerate(() if patterns is msgspec.UNSET else patterns):
            if pattern.count("*") > 1 or not ("*" in pattern or _is_type(pattern)):
                _refuse_type(f"{where}.object_types.{name}[{index}]", "or a pattern with one *")
    for name in policy.retention.by_type:
        if not _is_type(name):
            _refuse_type(f"{where}.retention.by_type", "for each of its members")


def _check_runs(policy: ScopePolicy, where: str) -> None:
    for index, pattern in enumerate(policy.evaluation_runs):
        if pattern.count("*") > 1 or not ("*" in pattern or is_id(pattern)):
            place = f"{where}.evaluation_runs[{index}]"
            raise InvalidRequest(f"{place} takes an id, or a pattern with one *.", details={"field": place})


def _check_authorities(policy: ScopePolicy, where: str) -> None:
    if policy.attestation is msgspec.UNSET:
        return
    place = unusable_key(policy.attestation)
    if place is not None:
        field = f"{where}.attestation.{place}"
        raise InvalidRequest(
            f"{field} is no public key for its method; send an Ed25519 JSON Web Key, or for jws also one of P-256,"
            " without its private part.",
            details={"field": field},
        )


def _is_type(name: str) -> bool:
    return name in STANDARD_TYPES or is_extension_type(name)


def _refuse_type(place: str, besides: str) -> None:
    raise InvalidRequest(
        f"{place} takes a standard type, a reverse-domain name or a URI, {besides}.", details={"field": place}
    )
