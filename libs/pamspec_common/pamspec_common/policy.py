"""What a principal may be before any rights are asked for: a member of its tenant, a service, or who it speaks for.

What it may do in a scope is decided by `pamspec_common.authorization`. Invariant: a scope of another tenant is not
visible, so its existence never shows (PAMSPEC P13, S15).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pamspec_common.errors import AccessDenied
from pamspec_common.principal import RIGHT_ASSERT_ACTOR, RIGHT_SERVICE, Principal


def authorize(principal: Principal, action: str, tenant_id: str) -> None:
    """Raise AccessDenied outside the principal's own tenant, and for what only the services themselves do."""
    if principal.tenant_id != tenant_id:
        raise AccessDenied
    if action in ("record_event", "exercise_delegation") and not principal.has(RIGHT_SERVICE):
        raise AccessDenied(f"{action} is for the services themselves.")


_CLAIMS = frozenset({"on_behalf_of_actor_id", "delegation_id"})


def acting_actor(principal: Principal, asserted: Mapping[str, Any] | None) -> tuple[Mapping[str, Any], str | None]:
    """The actor of an operation and, when it was asserted for somebody else, the principal's own id (S9).

    Raises AccessDenied when a body names another actor, or says for whom or under which grant its own one acts, without
    the right assert_actor: both are recorded as provenance, so they are not anybody's to claim.
    """
    own = {"actor_id": principal.actor_id, "actor_kind": principal.actor_kind}
    if asserted is None:
        return own, None
    itself = asserted.get("actor_id") == principal.actor_id and asserted.get("actor_kind") == principal.actor_kind
    if not (principal.has(RIGHT_ASSERT_ACTOR) or principal.has(RIGHT_SERVICE)):
        if not itself:
            raise AccessDenied("The body names another actor than the key belongs to; leave `actor` out.")
        for claim in _CLAIMS & asserted.keys():
            raise AccessDenied(f"This key may not say whose authority it uses; leave actor.{claim} out.")
    return asserted, None if itself else principal.actor_id
