"""The commands of steps: items of a batch of the write service, the same however often they are made."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from pamspec_common.scope_policy import rule_id
from pamspec_retention_sweeper.model.steps import Facts, Step

MAX_NAMED = 1000
"""So many versions one redaction names at most."""

_MOVES = {
    "expire": ("retention", "expired"),
    "retain": ("retention", "retained"),
    "mark_for_deletion": ("retention", "pending_deletion"),
    "archive": ("lifecycle", "archived"),
}


def command_of(facts: Facts, step: Step, policy_version: int, tries: int = 0) -> Mapping[str, Any]:
    """What carries a step out on the version that was looked at.

    Its operation_id follows from the object, the version and the rule, so that two processes, or one that was killed
    and another, do it once; the policy_basis names the policy's version and the rule.
    """
    command: dict[str, Any] = {
        "object_id": facts.object_id,
        "expected_version_id": facts.version_id,
        "policy_basis": rule_id(policy_version, step.rule),
        "operation_id": operation_id(facts, step, policy_version, tries),
    }
    if step.action in _MOVES:
        dimension, target = _MOVES[step.action]
        return command | {"operation": "transition", "dimension": dimension, "target_state": target}
    if step.action == "redact_versions":
        past = {"redaction_target": {"whole": True}, "version_ids": list(step.versions[:MAX_NAMED])}
        return command | {"operation": "redact", **past}
    return command | {"operation": step.action}


def operation_id(facts: Facts, step: Step, policy_version: int, tries: int) -> str:
    """The id of the operation that carries a step out; another after each refusal, whose record would be repeated."""
    named = "\0".join((facts.object_id, facts.version_id, step.action, step.rule, str(policy_version), str(tries)))
    return f"op:retention.{hashlib.sha256(named.encode()).hexdigest()[:40]}"
