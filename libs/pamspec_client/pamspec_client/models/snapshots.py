"""Sealed snapshots and their comparison."""

from __future__ import annotations

import msgspec

from pamspec_client.models.document import Document


class RunClock(msgspec.Struct, kw_only=True):
    """The clock that a snapshot gives to its evaluation run."""

    clock_ref: str
    start_at: str
    tick_ms: int = 1


class Snapshot(msgspec.Struct, kw_only=True):
    """A sealed snapshot: a scope at one position, or some of its objects and relationships there."""

    snapshot_id: str
    scope_id: str
    created_at: str
    ledger_sequence_high_watermark: int
    created_by_actor_id: str | None = None
    included_object_ids: list[str] | None = None
    """What belongs; None where all of the scope does."""
    included_embedding_space_ids: list[str] | None = None
    deterministic_clock: RunClock | None = None
    deterministic_rng_seed: int | None = None
    evaluation_run_id: str | None = None
    digest: str | None = None


class Sealed(Document, kw_only=True):
    """The answer to seal_snapshot."""

    snapshot: Snapshot
    ledger_epoch: int
    operation_id: str


class SnapshotEntry(msgspec.Struct, kw_only=True):
    """A snapshot with the epoch of its position."""

    snapshot: Snapshot
    ledger_epoch: int


class SnapshotPage(Document, kw_only=True):
    """A page of a scope's snapshots, by snapshot_id."""

    snapshots: list[SnapshotEntry]
    next_cursor: str | None = None


class VersionAt(msgspec.Struct, kw_only=True):
    """Which version a snapshot shows."""

    version_id: str
    sequence: int


class ShownOnce(VersionAt, kw_only=True):
    """A version that one snapshot alone shows."""

    lifecycle_state: str
    availability_state: str
    retention_state: str
    validation_state: str
    object_id: str | None = None
    relationship_id: str | None = None


class Moved(msgspec.Struct, kw_only=True):
    """A state that differs."""

    from_: str = msgspec.field(name="from")
    to: str


class ShownTwice(msgspec.Struct, kw_only=True):
    """What two snapshots show at different versions."""

    base: VersionAt
    other: VersionAt
    versions: int
    """How many versions the other is ahead of the base; negative where the base is the later one."""
    states: dict[str, Moved]
    object_id: str | None = None
    relationship_id: str | None = None


class Comparison(Document, kw_only=True):
    """A page of what two snapshots show differently, in ledger order."""

    added: list[ShownOnce]
    removed: list[ShownOnce]
    changed: list[ShownTwice]
    next_cursor: str | None = None
