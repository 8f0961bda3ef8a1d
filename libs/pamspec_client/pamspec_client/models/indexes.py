"""Derived indexes of a scope, and jobs over them."""

from __future__ import annotations

import msgspec

from pamspec_client.models.document import Document


class Watermark(msgspec.Struct, kw_only=True):
    """Everything up to this position has taken effect."""

    ledger_epoch: int
    sequence: int
    at: str


class IndexLag(msgspec.Struct, kw_only=True):
    """Entries that have not taken effect, and the age of the first of them."""

    events: int
    seconds: float


class IndexProblems(msgspec.Struct, kw_only=True):
    """What a verification found; all 0 where the index is what the canonical store makes it."""

    missing: int
    stale: int
    stray: int


class IndexJob(msgspec.Struct, kw_only=True):
    """A job over an index, and how far it is."""

    kind: str
    state: str
    """running or done."""
    done: int
    total: int
    requested_at: str
    finished_at: str | None = None
    problems: IndexProblems | None = None


class Index(msgspec.Struct, kw_only=True):
    """One derived index of a scope."""

    index_id: str
    state: str
    """ready, building or dropped."""
    watermark: Watermark
    lag: IndexLag
    job: IndexJob | None = None


class IndexList(Document, kw_only=True):
    """The derived indexes of a scope, by their ids."""

    indexes: list[Index]


class IndexJobStarted(Document, kw_only=True):
    """A job that is under way; `list_indexes` tells how far it is."""

    index_id: str
    job: IndexJob
