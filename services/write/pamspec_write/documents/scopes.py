"""Requests about scopes: a new one, and another policy."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from pamspec_common.documents import MAX_KEY, Position
from pamspec_common.ids import Id
from pamspec_write.documents.parts import Basis, Common


class CreateScope(Common, kw_only=True):
    scope_kind: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_KEY)] = "workspace"
    parent_scope_id: Id | None = None
    policy: dict[str, Any] | None = None


class UpdateScope(Common, kw_only=True):
    policy: dict[str, Any]
    expected_policy_version: Position
    policy_basis: Basis
