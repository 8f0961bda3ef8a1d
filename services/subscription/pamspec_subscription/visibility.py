"""Whose subscription it is: its owner receives; its owner and administrators manage it; nobody else learns of it."""

from __future__ import annotations

from pamspec_common.errors import ObjectNotFound, ServiceUnavailable
from pamspec_common.principal import RIGHT_ADMIN, Principal
from pamspec_subscription.model import Subscription

_UNKNOWN = "No such subscription is visible to this actor; check subscription_id, or subscribe first."


def own(found: Subscription | None, principal: Principal) -> Subscription:
    """The subscription, for its owner, once it is open; ObjectNotFound else (PAMSPEC S15)."""
    if found is None or found.principal.actor_id != principal.actor_id:
        raise ObjectNotFound(_UNKNOWN)
    return _opened(found)


def managed(found: Subscription | None, principal: Principal) -> Subscription:
    """The subscription, for its owner and for administrators of the tenant; ObjectNotFound else."""
    if found is None or not (found.principal.actor_id == principal.actor_id or administers(principal)):
        raise ObjectNotFound(_UNKNOWN)
    return _opened(found)


def administers(principal: Principal) -> bool:
    """Whether its credential makes it an administrator of the whole tenant."""
    return principal.has(RIGHT_ADMIN) or "admin" in principal.roles


def _opened(found: Subscription) -> Subscription:
    if found.state == "opening":
        raise ServiceUnavailable("The subscription is being opened; try again shortly.")
    return found
