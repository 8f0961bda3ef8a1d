"""The request by which the query service begins a forget: the set that it found."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from pamspec_common.documents import Position
from pamspec_common.ids import Id
from pamspec_write.documents.parts import Basis, Common

MAX_ITEMS = 100_000


class ForgetItem(msgspec.Struct, forbid_unknown_fields=True):
    """An object or a relationship, all of it or some of its versions."""

    id: Id
    kind: Literal["o", "r"]
    version_ids: Annotated[list[Id], msgspec.Meta(min_length=1)] | None = None


class BeginForget(Common, kw_only=True):
    policy_basis: Basis
    token: Annotated[str, msgspec.Meta(max_length=128)]
    ledger_sequence: Position
    items: Annotated[list[ForgetItem], msgspec.Meta(max_length=MAX_ITEMS)]
