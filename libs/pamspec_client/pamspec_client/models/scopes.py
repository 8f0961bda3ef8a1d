"""Scopes with their policies, holds and schemas."""

from __future__ import annotations

from typing import Any

import msgspec

from pamspec_client.models.document import Document


class ScopeDocument(Document, kw_only=True):
    """A scope."""

    scope_id: str
    scope_kind: str = ""
    parent_scope_id: str | None = None
    policy: dict[str, Any] | None = None
    policy_version: int = 0
    """0 where the scope has no policy; a page of scopes shows neither."""


class ScopePage(Document, kw_only=True):
    """A page of the scopes that the actor can see, by scope_id."""

    scopes_raw: list[msgspec.Raw] = msgspec.field(name="scopes")
    next_cursor: str | None = None

    @property
    def scopes(self) -> list[ScopeDocument]:
        """The scopes."""
        return [ScopeDocument.of(raw) for raw in self.scopes_raw]


class ScopeAnswer(Document, kw_only=True):
    """The answer about one scope."""

    scope_raw: msgspec.Raw = msgspec.field(name="scope")
    policy_version: int = 0


class PolicySet(Document, kw_only=True):
    """A scope's new policy."""

    scope_id: str
    policy: dict[str, Any]
    policy_version: int
    operation_id: str = ""


class PolicyVersion(Document, kw_only=True):
    """A policy that a scope has or had, and who set it."""

    policy_version: int
    policy: dict[str, Any]
    actor_id: str
    operation_id: str
    changed_at: str
    policy_basis: str | None = None
    """None for the policy that the scope was made with."""
    authenticated_as: str | None = None


class PolicyPage(Document, kw_only=True):
    """A page of a scope's policies, the newest first."""

    versions: list[PolicyVersion]
    next_cursor: str | None = None


class HoldPlaced(Document, kw_only=True):
    """A legal hold that was placed or released."""

    hold_id: str
    scope_id: str
    object_type: str | None = None
    placed_at: str | None = None
    released_at: str | None = None
    operation_id: str = ""


class Hold(Document, kw_only=True):
    """A legal hold over a type, or over the whole scope."""

    hold_id: str
    policy_basis: str
    actor_id: str
    operation_id: str
    placed_at: str
    settled: bool
    """Whether the retention of every object shows it already."""
    object_type: str | None = None
    authenticated_as: str | None = None
    released_at: str | None = None
    release_basis: str | None = None
    released_by: str | None = None
    release_operation_id: str | None = None


class HoldPage(Document, kw_only=True):
    """A page of a scope's holds, the oldest first."""

    holds: list[Hold]
    next_cursor: str | None = None


class ObjectReads(Document, kw_only=True):
    """How often an object was read by its id, as far as that is noted, and when last."""

    object_id: str
    reads: int
    read_at: str


class ReadsAnswer(Document, kw_only=True):
    """The noted reads of objects; those that nobody read are left out."""

    reads: list[ObjectReads]


class SchemaRegistered(Document, kw_only=True):
    """A content schema that was registered."""

    scope_id: str
    schema_id: str
    operation_id: str = ""


class RegisteredSchema(Document, kw_only=True):
    """A content schema; its document only where it was asked for by its id."""

    schema_id: str
    digest: str
    actor_id: str
    operation_id: str
    registered_at: str
    authenticated_as: str | None = None
    schema: Any = None


class SchemaPage(Document, kw_only=True):
    """A page of a scope's content schemas by their ids."""

    schemas: list[RegisteredSchema]
    next_cursor: str | None = None
