"""What decides in a scope besides its objects, as one version: every change of it is a new one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pamspec_common.errors import UnsupportedObjectType
from pamspec_common.scope_policy import STRICT, ScopePolicy, rule_id

OBJECT = "o"
"""The kind of a head that is an object; relationships and grants are of other kinds."""


@dataclass(frozen=True, slots=True)
class Hold:
    """A legal hold over the objects of a type, or over everything where it names none."""

    hold_id: str
    object_type: str | None

    def covers(self, kind: str, object_type: str) -> bool:
        """Whether an object, or a relationship, of that type is held."""
        return self.object_type is None or (kind == OBJECT and self.object_type == object_type)


@dataclass(frozen=True, slots=True)
class ScopeRules:
    """The rules of a scope at `version`, which grows with every change; 0 stands for none at all."""

    version: int = 0
    policy_version: int = 0
    policy: ScopePolicy = STRICT
    holds: tuple[Hold, ...] = ()
    """The holds in force, in the order in which they were placed."""
    schemas: Mapping[str, bytes] = field(default_factory=dict)
    """The digests of the registered schemas, by schema_id."""

    def rule(self, rule: str) -> str:
        """The `policy_rule_id` of a place in the policy."""
        return rule_id(self.policy_version, rule)

    def check_type(self, object_type: str) -> None:
        """Raise UnsupportedObjectType for a type that the policy keeps out of the scope (P59)."""
        rule = self.policy.type_refusal(object_type)
        if rule is not None:
            raise UnsupportedObjectType(details={"field": "object_type"}, policy_rule_id=self.rule(rule))

    def hold_over(self, kind: str, object_type: str) -> Hold | None:
        """The first hold that covers an object or a relationship of that type, or None."""
        return next((hold for hold in self.holds if hold.covers(kind, object_type)), None)


NO_RULES = ScopeRules()
