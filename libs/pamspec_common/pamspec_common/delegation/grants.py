"""A grant as rules look at it: its terms, which never change, and how it stands now."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, get_args

import msgspec

from pamspec_common.authorization.rights import Asker

Delegable = Literal[
    "create",
    "read",
    "update",
    "transition",
    "relate",
    "query",
    "inspect_history",
    "redact",
    "delete",
    "promote",
    "subscribe",
    "unsubscribe",
]
"""What can be delegated (PAMSPEC P176)."""
OPERATIONS: tuple[str, ...] = get_args(Delegable)
MAX_DEPTH = 8
"""How often a grant can be passed on, one after another."""


class Party(msgspec.Struct, frozen=True):
    """An actor as a grant names it."""

    actor_id: str
    actor_kind: str


class Terms(msgspec.Struct, frozen=True):
    """What a grant permits; none of it ever changes."""

    operations: frozenset[str]
    not_before: datetime
    not_after: datetime
    object_types: frozenset[str] | None = None
    """None: objects of every type."""
    object_ids: frozenset[str] | None = None
    """None: every object."""
    usage_limit: int | None = None
    """How often it may be used in all; None: without a limit."""
    redelegation_depth: int = 0
    """How often it may be passed on, one after another."""


class Grant(msgspec.Struct, frozen=True):
    """A grant with its terms and its standing."""

    delegation_id: str
    scope_key: int
    scope_id: str
    """Where it was granted, and has its history."""
    target_key: int
    target_scope_id: str
    """Where it works."""
    grantor: Party
    principal_id: str
    """The principal that granted it: the grantor itself, or who spoke for it."""
    delegate: Party
    terms: Terms
    revocable: bool = True
    revoked: bool = False
    used: int = 0
    """How often it was used; counted only where it has a limit."""
    credential_roles: frozenset[str] = frozenset()
    """The roles that the live API keys of `principal_id` carry; known of the first grant of a chain."""

    @property
    def remaining(self) -> int | None:
        """How often it may still be used; None: without a limit."""
        limit = self.terms.usage_limit
        return None if limit is None else max(0, limit - self.used)


Chain = tuple[Grant, ...]
"""A grant behind those that it was passed on under, the first one first."""


def remaining_uses(chain: Chain) -> int | None:
    """How often the last grant of a chain may still be used; None: no grant of it has a limit."""
    return min((left for grant in chain if (left := grant.remaining) is not None), default=None)


def is_party(chain: Chain, actor_id: str) -> bool:
    """Whether an actor may know of the last grant: who has it, who gave it, or who gave one above it."""
    return actor_id == chain[-1].delegate.actor_id or any(grant.grantor.actor_id == actor_id for grant in chain)


def authority(chain: Chain, tenant_id: str) -> Asker:
    """Whose rights the delegate acts with: those that the first grantor has by itself, in the scope of the grant."""
    first = chain[0]
    return Asker(
        tenant_id,
        first.grantor.actor_id,
        first.grantor.actor_kind,
        first.principal_id,
        first.credential_roles,
        chain[-1].delegation_id,
    )
