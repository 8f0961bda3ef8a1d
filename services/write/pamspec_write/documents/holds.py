"""Requests about legal holds; `HoldObject` is the job's own."""

from __future__ import annotations

from typing import Annotated

import msgspec

from pamspec_common.documents import MAX_KEY, Retention
from pamspec_common.ids import Id
from pamspec_write.documents.parts import Basis, Common


class PlaceHold(Common, kw_only=True):
    policy_basis: Basis
    object_type: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_KEY)] | None = None


class ReleaseHold(Common, kw_only=True):
    hold_id: Id
    policy_basis: Basis


class HoldObject(Common, kw_only=True):
    """What the job does to one object: `target` legal_hold, or what it was before."""

    object_id: Id
    policy_basis: Basis
    target: Retention
