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


_PLATFORM = "platform"
_CLAIMS = frozenset({"on_behalf_of_actor_id", "delegation_id"})


def may_assert(principal: Principal) -> bool:
    """Whether its credentials alone let a principal act for others (S9): by a right, or a role in the tenant."""
    return principal.has(RIGHT_ASSERT_ACTOR) or principal.has(RIGHT_SERVICE) or _PLATFORM in principal.roles


def needs_role(principal: Principal, actor_id: str, actor_kind: str) -> bool:
    """Whether acting as this actor takes the action assert_actor, by a role that is bound to the principal."""
    return (actor_id, actor_kind) != (principal.actor_id, principal.actor_kind) and not may_assert(principal)


def acting_actor(
    principal: Principal, asserted: Mapping[str, Any] | None, *, by_role: bool = False
) -> tuple[Mapping[str, Any], str | None]:
    """The actor of an operation and, when it was asserted for somebody else, the principal's own id (S9).

    Raises AccessDenied when a body names another actor, or says for whom or under which grant its own one acts, without
    credentials that allow it: both are recorded as provenance, so they are not anybody's to claim. With `by_role`
    another actor passes: whoever asks for the rights of one that `needs_role` gets none without that role.
    """
    own = {"actor_id": principal.actor_id, "actor_kind": principal.actor_kind}
    if asserted is None:
        return own, None
    itself = asserted.get("actor_id") == principal.actor_id and asserted.get("actor_kind") == principal.actor_kind
    if not may_assert(principal):
        if not itself and not by_role:
            raise AccessDenied("The body names another actor than the key belongs to; leave `actor` out.")
        claimed = sorted(name for name in _CLAIMS if asserted.get(name) is not None) if itself else []
        for claim in claimed:
            raise AccessDenied(f"This key may not say whose authority it uses; leave actor.{claim} out.")
    return asserted, None if itself else principal.actor_id
