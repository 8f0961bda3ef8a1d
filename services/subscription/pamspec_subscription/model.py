"""The rules of a subscription's cursor: pure, without clock or database.

Invariants: the cursor only grows, except by a reset; everything up to it is acknowledged or was never to be delivered
(PAMSPEC P127, S11); single acknowledgements beyond it wait until nothing before them is missing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from pamspec_common.errors import InvalidRequest
from pamspec_common.principal import Principal

SCAN_ROWS = 10_000
"""Ledger rows that one poll or one step of a catch-up passes at most."""
PAGE_BYTES = 8 * 1024 * 1024
"""Where a page ends, whatever its number of events."""
FLUSH_FRAMES = 256
"""Frames that a channel hands to its client at once at most."""
MAX_AHEAD = 10_000
"""Single acknowledgements that may wait for a missing one."""

BLOCKING = frozenset({"nats", "webhook"})
"""Channels that wait by themselves for the one who receives."""
STREAMED = frozenset({"poll", "sse", "websocket"})
ACKNOWLEDGED = frozenset({"poll", "nats", "webhook"})
"""Channels with an acknowledgement, where `block` is offered (S13)."""


@dataclass(frozen=True)
class Delivery:
    """Delivery preferences with every default resolved; times in milliseconds."""

    batching_max_events: int
    batching_max_wait_ms: int
    keepalive_interval_ms: int
    backpressure_policy: str


@dataclass(frozen=True)
class Head:
    """The end of a scope's ledger and the epochs that decisions rest on, as of one snapshot."""

    last_seq: int
    ledger_epoch: int
    epochs: tuple[int, int]
    """Authorization epochs of the scope and of the tenant."""


@dataclass(frozen=True)
class Subscription:
    """A durable subscription as its row says, with the head of its scope in the same snapshot."""

    tenant_id: str
    subscription_id: str
    scope_key: int
    scope_id: str
    principal: Principal
    actor: dict[str, Any]
    state: str
    channel: str
    filter: dict[str, Any]
    delivery: Delivery
    include_content: bool
    evaluation_run_id: str | None
    operation_id: str
    request_hash: bytes
    ledger_epoch: int
    after_sequence: int | None
    start_sequence: int
    cursor: int
    delivered: int
    acked_ahead: tuple[int, ...]
    closed_reason: str | None
    last_delivered: int | None
    channel_epoch: int
    channel_kind: str | None
    webhook_url: str | None
    suspended: bool
    """Whether its tenant is: nothing is delivered, and everything is kept."""
    head: Head

    @property
    def key(self) -> tuple[str, str]:
        """Its identity: (tenant, subscription id)."""
        return self.tenant_id, self.subscription_id

    @property
    def resume_after(self) -> int:
        """The highest position that it can certainly go on from."""
        return min(self.cursor, self.head.last_seq)


def check_position(sequence: int, epoch: int | None, head: Head, resume_after: int) -> None:
    """Raise InvalidRequest for a position of another epoch (outdated) or beyond the head (future)."""
    if epoch is not None and epoch < head.ledger_epoch:
        raise _position("position_outdated", "comes from before a restore of the ledger", head, resume_after)
    if sequence > head.last_seq or (epoch is not None and epoch > head.ledger_epoch):
        raise _position("position_future", "lies beyond the end of the ledger", head, resume_after)


def _position(reason: str, what: str, head: Head, resume_after: int) -> InvalidRequest:
    details = {
        "reason": reason,
        "ledger_epoch": head.ledger_epoch,
        "head_sequence": head.last_seq,
        "resume_after": resume_after,
    }
    return InvalidRequest(
        f"That position {what}; go on from details.resume_after, or reset the subscription to it.", details=details
    )


def contiguous(cursor: int, scanned_to: int, matching: Iterable[int], acked: Collection[int]) -> int:
    """The highest position up to which nothing is missing.

    `matching` are the sequences in (cursor, scanned_to] that were to be delivered, ascending; the others of that range
    are passed over (S11).
    """
    for sequence in matching:
        if sequence not in acked:
            return max(cursor, sequence - 1)
    return max(cursor, scanned_to)


def ahead_of(cursor: int, acked: Iterable[int]) -> list[int]:
    """The single acknowledgements that still wait beyond a cursor; InvalidRequest when they are too many."""
    waiting = sorted({sequence for sequence in acked if sequence > cursor})
    if len(waiting) > MAX_AHEAD:
        raise InvalidRequest(
            f"More than {MAX_AHEAD} single acknowledgements wait for a missing one; acknowledge from the cursor on.",
            details={"limit": MAX_AHEAD, "next_after_sequence": cursor},
        )
    return waiting


@dataclass
class AckWindow:
    """How many delivered events may be unacknowledged at once; beyond it a channel waits (block)."""

    limit: int
    outstanding: deque[int] = field(default_factory=deque)
    ahead: frozenset[int] = frozenset()

    def room(self) -> int:
        """How many events may be sent now."""
        held = len(self.outstanding)
        if self.ahead:
            held -= sum(1 for sequence in self.outstanding if sequence in self.ahead)
        return max(0, self.limit - held)

    def sent(self, sequences: Iterable[int]) -> None:
        """Events went out."""
        self.outstanding.extend(sequences)

    def acknowledged(self, cursor: int, ahead: Iterable[int]) -> None:
        """The cursor as it stands now, with the single acknowledgements beyond it."""
        while self.outstanding and self.outstanding[0] <= cursor:
            self.outstanding.popleft()
        self.ahead = frozenset(ahead)
