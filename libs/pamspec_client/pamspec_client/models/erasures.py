"""Receipts of erasures, and forgets."""

from __future__ import annotations

import msgspec

from pamspec_client.models.document import Document


class Surface(msgspec.Struct, kw_only=True):
    """A place where what was erased could be, and how it is known to be gone from there."""

    surface: str
    state: str
    """open, closed or not_present."""
    attempts: int = 0
    position: int | None = None
    repairs: int = 0
    scan: str | None = None
    error: str | None = None
    checked_at: str | None = None
    closed_at: str | None = None
    deadline: str | None = None


class Backups(msgspec.Struct, kw_only=True):
    """How long backups that were made before may hold it."""

    state: str
    deadline: str | None = None


class ForgetProgress(msgspec.Struct, kw_only=True):
    """How far a forget is."""

    total: int
    done: int
    held: int
    failed: int
    finished: bool
    held_ids: list[str] = msgspec.field(default_factory=list)
    """The first of those that a legal hold keeps."""


class ErasedRange(msgspec.Struct, kw_only=True):
    """Version sequences that lost their values, both ends included."""

    from_sequence: int
    to_sequence: int


class Erasure(Document, kw_only=True):
    """The receipt of an erasure."""

    erasure_id: str
    scope_id: str
    kind: str
    state: str
    operation_id: str
    actor_id: str
    ledger_sequence: int
    opened_at: str
    surfaces: list[Surface]
    backups: Backups
    object_id: str | None = None
    relationship_id: str | None = None
    part_of: str | None = None
    erased: list[ErasedRange] = msgspec.field(default_factory=list)
    absent_at: str | None = None
    """Since when it is verified that no answer shows it."""
    closed_at: str | None = None
    """Since when it is verified to be gone from the pages too."""
    progress: ForgetProgress | None = None


class ErasurePage(Document, kw_only=True):
    """A page of a scope's receipts, the newest first."""

    erasures: list[Erasure]
    next_cursor: str | None = None


class ForgetCounts(msgspec.Struct, kw_only=True):
    """How much concerns a subject."""

    objects: int
    relationships: int
    partly: int
    """Objects that stay, and lose past versions or the account of the person."""
    versions: int
    held: int


class Forgotten(Document, kw_only=True):
    """A preview, or a forget that runs."""

    operation_id: str
    scope_id: str
    state: str
    """preview or running."""
    preview_token: str | None = None
    ledger_sequence: int | None = None
    counts: ForgetCounts | None = None
    examples: list[str] = msgspec.field(default_factory=list)
    held_ids: list[str] = msgspec.field(default_factory=list)
    erasure_id: str | None = None
    total: int | None = None
