"""Requests that move a state."""

from __future__ import annotations

import msgspec

from pamspec_common.ids import Id
from pamspec_write.documents.parts import Basis, Common, MaybeRaw


class Transition(Common, kw_only=True):
    expected_version_id: Id
    dimension: str
    target_state: str
    policy_basis: Basis
    object_id: Id | None = None
    relationship_id: Id | None = None
    provenance: MaybeRaw = msgspec.UNSET
    canonical_content: MaybeRaw = msgspec.UNSET
