"""Requests about other requests and about scopes: batch, look-up, a new scope."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from pamspec_common.documents import MAX_KEY
from pamspec_common.ids import Id
from pamspec_write.documents.parts import Common

MAX_BATCH = 1000


class Batch(Common, kw_only=True):
    items: Annotated[list[msgspec.Raw], msgspec.Meta(min_length=1, max_length=MAX_BATCH)]
    atomic: bool = False


class GetOperation(Common, kw_only=True):
    operation: Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z_]*\Z", max_length=64)] | None = None


class CreateScope(Common, kw_only=True):
    scope_kind: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_KEY)] = "workspace"
    parent_scope_id: Id | None = None
    policy: dict[str, Any] | None = None
