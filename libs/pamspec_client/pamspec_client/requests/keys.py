"""What operations on API keys take. `tenant_id` names another tenant than the caller's own, which takes an operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Required

from pamspec_client.requests.common import PageRequest, Time, Writing


class CreateKeyRequest(Writing, total=False):
    """A new key for an actor."""

    tenant_id: str
    actor_id: Required[str]
    actor_kind: str
    roles: Sequence[str]
    rights: Sequence[str]
    expires_at: Time
    policy_basis: Required[str]


class ListKeysRequest(PageRequest, total=False):
    """A page of keys."""

    tenant_id: str
    actor_id: str
    include_ended: bool


class RotateKeyRequest(Writing, total=False):
    """A key in place of another, which ends at `old_expires_at`."""

    tenant_id: str
    key_id: Required[str]
    old_expires_at: Time
    expires_at: Time
    policy_basis: Required[str]


class RevokeKeyRequest(Writing, total=False):
    """The end of a key."""

    tenant_id: str
    key_id: Required[str]
    policy_basis: Required[str]
