"""API keys."""

from __future__ import annotations

import msgspec

from pamspec_client.models.document import Document


class ApiKey(msgspec.Struct, kw_only=True):
    """A key, without its text."""

    key_id: str
    tenant_id: str
    actor_id: str
    actor_kind: str
    roles: list[str]
    rights: list[str]
    created_at: str
    state: str
    created_by: str | None = None
    expires_at: str | None = None
    last_used_at: str | None = None
    revoked_at: str | None = None
    replaced_by: str | None = None


class KeyMade(Document, kw_only=True):
    """A new key; its text `secret` is shown here alone, and kept out of what is printed."""

    key: ApiKey
    secret: str
    replaced: ApiKey | None = None
    """The key that it takes the place of, where it does."""
    operation_id: str = ""

    def __repr__(self) -> str:
        return f"KeyMade(key={self.key!r}, replaced={self.replaced!r}, operation_id={self.operation_id!r})"


class KeyPage(Document, kw_only=True):
    """A page of keys."""

    keys: list[ApiKey]
    next_cursor: str | None = None


class KeyRevoked(Document, kw_only=True):
    """A key that is at its end; `changed` is False where it was before."""

    key: ApiKey
    changed: bool
    operation_id: str = ""
