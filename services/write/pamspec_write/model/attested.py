"""Whether a command's actor is attested as its scope's policy asks (P51).

Invariant: without a rule in the policy an attestation is evidence that is kept and not judged; with one, no memory is
written by an actor whose attestation does not hold at that moment.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from pamspec_common.attestation import AttestationRule, Refused, check_window, verify
from pamspec_common.errors import PolicyDenied
from pamspec_write.model.commands import Command
from pamspec_write.model.facts import ScopeState

_OF_MEMORY = frozenset({"create", "update", "transition", "relate", "redact", "delete", "promote"})
"""What a rule is about; who administers a scope must be able to correct the rule."""


def attest_ahead(state: ScopeState, command: Command) -> None:
    """Verify the signature before the scope is locked; the outcome is used when the command is decided."""
    rule = state.policy.attestation
    if rule is not msgspec.UNSET and command.operation in _OF_MEMORY and command.rights is not None:
        _refusal(rule, command)


def check_attested(state: ScopeState, command: Command, now: datetime) -> None:
    """Raise PolicyDenied, naming the reason, where the scope's policy asks for an attestation and this one fails."""
    rule = state.policy.attestation
    if rule is msgspec.UNSET or command.operation not in _OF_MEMORY or command.rights is None:
        return
    try:
        refused = _refusal(rule, command)
        if refused is not None:
            raise refused
        if command.actor.attestation is not None:
            check_window(command.actor.attestation, now)
    except Refused as refused:
        raise PolicyDenied(
            refused.text,
            details={"field": "actor.attestation", "reason": refused.reason},
            policy_rule_id=state.rules.rule("attestation"),
        ) from None


def _refusal(rule: AttestationRule, command: Command) -> Refused | None:
    """What the rule says, asked once."""
    if command.attested is None or command.attested[0] != rule:
        about = {"scope_id": command.scope.scope_id, "object_id": command.object_id}
        refusal: Refused | None = None
        try:
            verify(rule, command.actor, about)
        except Refused as refused:
            refusal = refused
        command.attested = (rule, refusal)
    return command.attested[1]
