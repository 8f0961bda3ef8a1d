"""Permission: by which actions an operation is decided, and what it may show.

Invariant: what may not be read is shown by no operation, whatever else is allowed; an end of a relationship counts.
"""

from __future__ import annotations

from collections.abc import Sequence

from pamspec_common.authorization.rights import Rights
from pamspec_common.authorization.sight import Sight, require, sight
from pamspec_common.authorization.vocabulary import ATTRIBUTES, IN_SIGHT
from pamspec_common.errors import AccessDenied

_ACTIONS: dict[str, tuple[str, ...]] = {
    "read": ("read",),
    "query": ("query",),
    "inspect_history": ("inspect_history",),
    "list_reads": ("read",),
    "list_snapshots": ("read",),
    "compare_snapshots": ("query",),
    "get_scope": IN_SIGHT,
    "list_scopes": IN_SIGHT,
    "get_schema": IN_SIGHT,
    "list_schemas": IN_SIGHT,
    "list_policy_versions": ("administer", "audit"),
    "list_holds": ("hold", "audit"),
    "forget": ("delete", "redact"),
    "list_erasures": ("delete", "redact", "audit"),
    "verify_ledger": ("verify",),
    "get_checkpoint": ("verify",),
    "prove_ledger": ("verify",),
    "export": ("export",),
}
_SEEN_BY = {"query": ("query",), "compare_snapshots": ("query",), "inspect_history": ("inspect_history",)}


def check_operation(operation: str, rights: Rights) -> None:
    """Raise unless the actor may do this to some memory of the scope: ScopeNotFound in a scope that it can't see.

    An export shows all that a scope holds, so it needs the right to all of it.
    """
    require(rights, *_ACTIONS[operation])
    if operation == "export" and not sight(rights, "export", "read").everything:
        raise AccessDenied(
            "An export holds all of a scope, and a rule keeps part of this one from you; query what you may see.",
            details={"action": "export"},
        )


def seen(operation: str, rights: Rights) -> Sight:
    """What an operation may show."""
    return sight(rights, "read", *_SEEN_BY.get(operation, ()))


def memory_of(values: Sequence[str]) -> dict[str, str]:
    """The attributes of a memory from their values, in the order of the vocabulary."""
    return dict(zip(ATTRIBUTES, values, strict=True))
