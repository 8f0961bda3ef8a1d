"""Storage quotas: what a scope and its tenant have stored, and whether a change still has room.

Invariant: the counts change with the rows that they count, in the overlay and in the store. What takes content away
always has room: only so can a tenant at its bound make some.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pamspec_common.quotas import StorageBounds, over_quota
from pamspec_write.model.facts import ScopeState, Stored
from pamspec_write.model.versions import Draft

RETRY_AFTER_S = 60
"""Room does not come by itself; a client that waits so long costs nothing."""
_NAMES = {"objects": "objects and relationships", "versions": "versions", "content_bytes": "bytes of content"}


class Growth(msgspec.Struct, frozen=True):
    """What a change would add."""

    objects: int
    versions: int
    content_bytes: int


def growth_of(drafts: Sequence[Draft]) -> Growth:
    """What the versions that these drafts describe would add."""
    return Growth(
        sum(draft.previous is None for draft in drafts),
        len(drafts),
        sum(len(draft.content or b"") for draft in drafts),
    )


def check_room(state: ScopeState, growth: Growth) -> None:
    """Raise ServiceUnavailable (429) when the scope or its tenant has no room for a change."""
    _check("scope", "This scope", state.quotas.scope, state.stored, growth)
    if state.tenant_stored is not None:
        _check("tenant", "This tenant", state.quotas.tenant, state.tenant_stored, growth)


def _check(whose: str, who: str, bounds: StorageBounds, stored: Stored, growth: Growth) -> None:
    for name, what in _NAMES.items():
        bound: int | None = getattr(bounds, name)
        more: int = getattr(growth, name)
        if bound is not None and more and getattr(stored, name) + more > bound:
            raise over_quota(
                f"{whose}.{name}",
                bound,
                f"{who} may store {bound} {what} and has no room for {more} more; delete or redact what is no longer"
                f" needed (versions stay counted), or ask the operator for a higher {whose}.{name}. The same key may"
                " be sent again.",
                RETRY_AFTER_S,
                used=getattr(stored, name),
            )


def has_storage_bound(bounds: StorageBounds) -> bool:
    """Whether anything of what may be stored is bounded."""
    return not (bounds.objects is None and bounds.versions is None and bounds.content_bytes is None)
