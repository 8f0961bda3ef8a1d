"""Requests about other requests: batch and look-up."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from pamspec_common.documents import CommonFields
from pamspec_common.ids import Id
from pamspec_write.documents.parts import Common

MAX_BATCH = 1000


class Batch(Common, kw_only=True):
    items: Annotated[list[msgspec.Raw], msgspec.Meta(min_length=1, max_length=MAX_BATCH)]
    atomic: bool = False


class GetOperation(Common, kw_only=True):
    operation: Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z_]*\Z", max_length=64)] | None = None


class RecordDenial(CommonFields, kw_only=True):
    scope_id: Id | None = None
    actor: msgspec.Raw
    payload: dict[str, Any]
    asked_by: Id | None = None
