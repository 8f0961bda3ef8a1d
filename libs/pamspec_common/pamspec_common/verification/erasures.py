"""Whether what is missing was erased: a later redaction or deletion event must name the version."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from pamspec_common.verification.rows import ErasedVersion, Problem
from pamspec_common.verification.stored import decode_event

Erasures = Iterable[tuple[str, int, bytes]]
"""(subject, sequence, event) of redaction and deletion events; what they say is trusted as far as the chain is."""
_Ranges = dict[str, list[tuple[int, int, int]]]


def unexplained(versions: Iterable[ErasedVersion], erasures: Erasures) -> list[Problem]:
    """The versions whose missing part no later redaction or deletion event names."""
    ranges = _erased_ranges(erasures)
    detail = "A part is missing that no later event has erased."
    return [
        Problem(version.sequence, "content_missing", detail, version.version_id)
        for version in versions
        if _explained(version, ranges) is None
    ]


def explained_at(versions: Iterable[ErasedVersion], erasures: Erasures) -> int:
    """The lowest position up to which a ledger explains every missing part that it ever explains; 0 for none."""
    ranges = _erased_ranges(erasures)
    return max((_explained(version, ranges) or 0 for version in versions), default=0)


def _erased_ranges(erasures: Erasures) -> _Ranges:
    ranges: _Ranges = {}
    for subject, sequence, stored in erasures:
        try:
            event = decode_event(stored)
        except msgspec.DecodeError:
            continue
        for erased in event.payload.erased:
            ranges.setdefault(subject, []).append((sequence, erased.from_sequence, erased.to_sequence))
    return ranges


def _explained(version: ErasedVersion, ranges: _Ranges) -> int | None:
    """The first later event that erased a version, by its sequence."""
    found = (
        sequence
        for sequence, first, last in ranges.get(version.object_id, ())
        if sequence > version.sequence and first <= version.version_seq <= last
    )
    return min(found, default=None)
