"""The context that assemble makes for a model."""

from __future__ import annotations

from typing import Any

import msgspec

from pamspec_client.models.document import Document


class BlockSource(msgspec.Struct, kw_only=True):
    """Who wrote a memory, how, from what, and when."""

    actor_id: str
    activity: str
    committed_at: str
    source_ref: str | None = None
    observed_at: str | None = None
    valid_from: str | None = None
    valid_until: str | None = None


class Block(msgspec.Struct, kw_only=True):
    """One memory of a context, under the label by which `Context.text` names it."""

    label: str
    object_id: str
    version_id: str
    object_type: str
    text: str
    truncated: bool
    source: BlockSource
    states: dict[str, str]
    scope_id: str | None = None
    """Where it is another than that of the request."""
    score: float | None = None
    also: list[str] = msgspec.field(default_factory=list)
    """Other memories with the same content."""
    superseded_by: list[str] = msgspec.field(default_factory=list)
    """What supersedes it, and was not found by this query."""


class ConflictEnd(msgspec.Struct, kw_only=True):
    """One side of a contradiction; without a label it is not in the context."""

    object_id: str
    label: str | None = None


class Conflict(msgspec.Struct, kw_only=True):
    """Two memories that contradict each other."""

    relationship_id: str
    between: list[ConflictEnd]


class BudgetUsed(msgspec.Struct, kw_only=True):
    """What a context counts against its budget."""

    max_tokens: int
    used_tokens: int


class Context(Document, kw_only=True):
    """A context for a model: `text` for a prompt, and its blocks, instructions apart from evidence."""

    text: str
    instructions: list[Block]
    evidence: list[Block]
    conflicts: list[Conflict]
    omitted: dict[str, int]
    budget: BudgetUsed
    hint: str | None = None
    index: dict[str, Any] | None = None
