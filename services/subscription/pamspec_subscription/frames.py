"""The bytes of frames and poll pages, joined from stored event bytes without encoding them again.

Shapes: contracts/schemas/frame.json and contracts/operations/poll.answer.json; members stand in sorted order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pamspec_common.strict_json import dumps


class Frame(NamedTuple):
    """One frame as JSON bytes, and the ledger sequence that a client has reached with it."""

    data: bytes
    sequence: int
    traceparent: str | None = None
    """The trace context of the write, for channels whose messages have headers."""


def event_frame(
    event: bytes, prev_sequence: int, ledger_epoch: int, envelope: bytes | None = None, traceparent: str | None = None
) -> bytes:
    """`prev_sequence` is the sequence of the frame before, in the first frame the cursor."""
    content = b"" if envelope is None else b'"envelope":%b,' % envelope
    trace = b"" if traceparent is None else b',"traceparent":"%b"' % traceparent.encode()
    return b'{%b"event":%b,"ledger_epoch":%d,"prev_sequence":%d%b}' % (
        content,
        event,
        ledger_epoch,
        prev_sequence,
        trace,
    )


def progress_frame(sequence: int, ledger_epoch: int) -> Frame:
    """Everything up to `sequence` was delivered or did not match."""
    return Frame(b'{"ledger_epoch":%d,"progress":%d}' % (ledger_epoch, sequence), sequence)


def ended_frame(reason: str, last_sequence: int, ledger_epoch: int) -> Frame:
    """The end of a channel; the subscription stays."""
    data = b'{"ended":{"last_sequence":%d,"reason":"%b"},"ledger_epoch":%d}'
    return Frame(data % (last_sequence, reason.encode(), ledger_epoch), last_sequence)


def closed_frame(reason: str, last_delivered_sequence: int, ledger_epoch: int) -> Frame:
    """The terminal record of a subscription (PAMSPEC P131)."""
    data = b'{"closed":{"last_delivered_sequence":%d,"reason":"%b"},"ledger_epoch":%d}'
    return Frame(data % (last_delivered_sequence, reason.encode(), ledger_epoch), last_delivered_sequence)


def poll_page(
    events: Sequence[bytes],
    next_after_sequence: int,
    ledger_epoch: int,
    closed: Mapping[str, Any] | None = None,
    envelopes: Mapping[str, bytes] | None = None,
) -> bytes:
    """The answer of a poll."""
    parts = [b'{"closed":', b"null" if closed is None else dumps(closed)]
    if envelopes is not None:
        members = b",".join(dumps(version_id) + b":" + envelopes[version_id] for version_id in sorted(envelopes))
        parts += [b',"envelopes":{', members, b"}"]
    parts += [b',"events":[', b",".join(events)]
    parts.append(b'],"ledger_epoch":%d,"next_after_sequence":%d}' % (ledger_epoch, next_after_sequence))
    return b"".join(parts)
