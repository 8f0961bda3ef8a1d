"""Requests about API keys."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from pamspec_common.documents import Key, Pagination
from pamspec_common.ids import Id
from pamspec_common.instants import Instant
from pamspec_write.documents.administration import Administrative, Role
from pamspec_write.documents.parts import Basis

Right = Literal["admin", "assert_actor", "audit", "operator"]


class TenantWide(Administrative, kw_only=True):
    """Administration of a tenant as a whole: the caller's own, or for operators any."""

    tenant_id: Id | None = None


class CreateKey(TenantWide, kw_only=True):
    actor_id: Id
    actor_kind: Key = "agent"
    roles: Annotated[list[Role], msgspec.Meta(max_length=8)] = msgspec.field(default_factory=list)
    rights: Annotated[list[Right], msgspec.Meta(max_length=4)] = msgspec.field(default_factory=list)
    expires_at: Instant | None = None
    policy_basis: Basis


class ListKeys(TenantWide, kw_only=True):
    actor_id: Id | None = None
    include_ended: bool = False
    pagination: Pagination | None = None


class RotateKey(TenantWide, kw_only=True):
    key_id: Id
    old_expires_at: Instant | None = None
    expires_at: Instant | None = None
    policy_basis: Basis


class RevokeKey(TenantWide, kw_only=True):
    key_id: Id
    policy_basis: Basis
