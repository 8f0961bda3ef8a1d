"""All cases, in the order of the profiles."""

from __future__ import annotations

from pamspec_conformance.case import Case
from pamspec_conformance.cases import (
    core,
    core_content,
    delegation,
    erasure,
    evaluation,
    ledger,
    lite,
    lite_writes,
    protocol_binding,
    relationship,
    semantic_query,
    structured_query,
    structured_query_pages,
    subscribe,
    traversal,
    versioning,
)
from pamspec_conformance.profiles import PROFILES

_MODULES = (
    lite,
    lite_writes,
    delegation,
    subscribe,
    core,
    core_content,
    versioning,
    ledger,
    erasure,
    structured_query,
    structured_query_pages,
    semantic_query,
    relationship,
    traversal,
    protocol_binding,
    evaluation,
)


def cases(*profiles: str) -> list[Case]:
    """The cases of these profiles, or of all; KeyError for a name that is no profile."""
    known = {profile.name for profile in PROFILES}
    for name in profiles:
        if name not in known:
            raise KeyError(name)
    wanted = set(profiles) or known
    order = [profile.name for profile in PROFILES]
    found = [case for module in _MODULES for case in module.LIST.cases if case.profile in wanted]
    return sorted(found, key=lambda case: order.index(case.profile))
