"""The request that seals a snapshot."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import msgspec

from pamspec_common.documents import MAX_KEY
from pamspec_common.errors import InvalidObject, InvalidRequest
from pamspec_common.ids import Id
from pamspec_common.instants import Instant
from pamspec_write.documents.parts import Common

MAX_MEMBERS = 10_000
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
"""No run's clock starts before it; the clock of an evaluation scope without entries stands there."""

_SAFE = 2**53 - 1
"""Integers that every JSON reader keeps."""
_DAY_MS = 86_400_000


class DeterministicClock(msgspec.Struct, forbid_unknown_fields=True):
    clock_ref: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_KEY)]
    start_at: Instant
    tick_ms: Annotated[int, msgspec.Meta(ge=1, le=_DAY_MS)] | None = None


class SealSnapshot(Common, kw_only=True):
    snapshot_id: Id | None = None
    sealed: bool = True
    included_object_ids: Annotated[list[Id], msgspec.Meta(max_length=MAX_MEMBERS)] | None = None
    included_embedding_space_ids: Annotated[list[Id], msgspec.Meta(max_length=1000)] | None = None
    deterministic_clock: DeterministicClock | None = None
    deterministic_rng_seed: Annotated[int, msgspec.Meta(ge=-_SAFE, le=_SAFE)] | None = None


def check_seal(request: SealSnapshot) -> None:
    """Raise unless the request asks for a sealed snapshot, with a clock that can run."""
    if not request.sealed:
        raise InvalidObject("A snapshot is sealed; leave sealed out, or send true.", details={"field": "sealed"})
    clock = request.deterministic_clock
    if clock is not None and clock.start_at < EARLIEST:
        raise InvalidRequest(
            "deterministic_clock.start_at lies before 1970; start the clock in that year or later.",
            details={"field": "deterministic_clock.start_at"},
        )
