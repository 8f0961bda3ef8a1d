"""What decides in a scope besides its objects, as one version: every change of it is a new one."""

from __future__ import annotations

from dataclasses import dataclass

from pamspec_common.errors import UnsupportedObjectType
from pamspec_common.scope_policy import STRICT, ScopePolicy, rule_id


@dataclass(frozen=True, slots=True)
class ScopeRules:
    """The rules of a scope at `version`, which grows with every change; 0 stands for none at all."""

    version: int = 0
    policy_version: int = 0
    policy: ScopePolicy = STRICT

    def rule(self, rule: str) -> str:
        """The `policy_rule_id` of a place in the policy."""
        return rule_id(self.policy_version, rule)

    def check_type(self, object_type: str) -> None:
        """Raise UnsupportedObjectType for a type that the policy keeps out of the scope (P59)."""
        rule = self.policy.type_refusal(object_type)
        if rule is not None:
            raise UnsupportedObjectType(details={"field": "object_type"}, policy_rule_id=self.rule(rule))


NO_RULES = ScopeRules()
