"""What operations on snapshots take."""

from __future__ import annotations

from typing import Required, TypedDict

from pamspec_client.requests.common import Reading, Time, Writing


class DeterministicClock(TypedDict, total=False):
    """The clock of an evaluation run."""

    clock_ref: Required[str]
    start_at: Required[Time]
    tick_ms: int


class SealSnapshotRequest(Writing, total=False):
    """A view of a scope as it is now; evaluation_run_id names the run that it is for."""

    scope_id: Required[str]
    snapshot_id: str
    included_object_ids: list[str]
    """Only these objects and relationships; all of the scope without it."""
    included_embedding_space_ids: list[str]
    deterministic_clock: DeterministicClock
    deterministic_rng_seed: int


class ListSnapshotsRequest(Reading, total=False):
    """The snapshots of a scope, or one by its id."""

    scope_id: str
    snapshot_id: str
    limit: int
    cursor: str | None


class CompareSnapshotsRequest(Reading, total=False):
    """What the other snapshot shows differently from the base; both of one scope."""

    base_snapshot_id: Required[str]
    other_snapshot_id: Required[str]
    scope_id: str
    limit: int
    cursor: str | None
