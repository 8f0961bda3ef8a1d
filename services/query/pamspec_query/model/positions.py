"""Positions: (ledger epoch, sequence) of a scope, and what a request may ask of them (K1, K2, K4)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from pamspec_common.authorization.rights import Epochs
from pamspec_common.calls import HEADER_AS_OF_SEQUENCE, HEADER_LEDGER_EPOCH
from pamspec_common.errors import InvalidRequest, ServiceUnavailable


@dataclass(frozen=True, slots=True)
class Head:
    """Where a scope's ledger stands, and the epochs of the rights in it."""

    last_seq: int
    ledger_epoch: int
    epochs: Epochs


def headers(position: int, epoch: int) -> dict[str, str]:
    """The headers that tell what an answer was read at."""
    return {HEADER_AS_OF_SEQUENCE: str(position), HEADER_LEDGER_EPOCH: str(epoch)}


def check_epoch(head: Head, epoch: int | None) -> None:
    """Raise InvalidRequest for a position of another epoch than the scope's."""
    if epoch is not None and epoch != head.ledger_epoch:
        raise cursor_error("position_outdated" if epoch < head.ledger_epoch else "position_future", head)


def check_reached(head: Head, sequence: int) -> None:
    """Raise InvalidRequest for a position beyond the scope's head."""
    if sequence > head.last_seq:
        raise cursor_error("position_future", head)


def cursor_error(reason: str, head: Head) -> InvalidRequest:
    """The error of a position that this ledger does not have, with the position to go on at."""
    said = "belongs to an earlier ledger epoch" if reason == "position_outdated" else "lies beyond the scope's ledger"
    return InvalidRequest(
        f"That position {said}; go on from resume_after.",
        details={
            "reason": reason,
            "ledger_epoch": head.ledger_epoch,
            "head_sequence": head.last_seq,
            "resume_after": head.last_seq,
        },
    )


def stale(head: Head, min_sequence: int) -> ServiceUnavailable:
    """The answer below a version floor: never an older state (K2, K4)."""
    return ServiceUnavailable(
        "This scope has not reached min_sequence; try again, or wait for it with wait_ms.",
        details={
            "reason": "stale_session",
            "min_sequence": min_sequence,
            "head_sequence": head.last_seq,
            "ledger_epoch": head.ledger_epoch,
        },
    )


def lagging(head: Head, min_sequence: int, watermarks: Mapping[str, int]) -> ServiceUnavailable:
    """The answer while an index is below a version floor: never what it found below (K2, K3)."""
    return ServiceUnavailable(
        "An index of this scope has not reached min_sequence; try again, or wait for it with wait_ms.",
        details={
            "reason": "index_lag",
            "min_sequence": min_sequence,
            "watermark": min(watermarks.values()),
            "watermarks": dict(sorted(watermarks.items())),
            "head_sequence": head.last_seq,
            "ledger_epoch": head.ledger_epoch,
        },
    )


def etag(version_id: str) -> str:
    """The entity tag of a version, which never changes; an erased one is not answered."""
    return '"' + hashlib.sha256(version_id.encode()).hexdigest()[:32] + '"'
