"""The relay's decisions: what travels together, its bytes, what counts as loss, and what must be refilled.

Pure: no clock, no server. Sequences of a scope are kept as ranges, since what a stream holds of a scope is nearly
always one range.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from pamspec_common.bus import HEADER_EPOCH, HEADER_EVENT_ID, HEADER_SEQUENCE
from pamspec_common.streams import StoredMessage, StreamInfo

CHAIN_MESSAGES = 8
"""Up to here single fenced messages in a row are faster than an atomic batch, whose fixed cost is that of eight."""

_LINE = b"NATS/1.0\r\n"
_OVERHEAD_BYTES = 512


class Doubt(Exception):
    """What the stream holds is not known for certain; it must be read back before anything more is published."""


class LeaseLost(Exception):
    """Another process owns the partition now."""


class Halted(Exception):
    """The partition can't go on without an operator: the stream contradicts the ledger, or a message can't be sent."""


class Entry(NamedTuple):
    """An event to publish."""

    subject: str
    event_id: str
    ledger_epoch: int
    sequence: int
    message: bytes
    traceparent: str | None = None
    """The trace context of the write."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """Events that travel together: a chain of single messages, or an atomic batch whose tail is ready as bytes."""

    count: int
    token: str
    head: tuple[Entry, ...]
    """All of a chain; of an atomic batch the first, which carries the fence."""
    tail: bytes


def fitting(sizes: Iterable[int], max_messages: int, max_bytes: int) -> int:
    """How many of these messages one batch takes: at least one, whatever its size."""
    count = total = 0
    for size in sizes:
        total += size + _OVERHEAD_BYTES
        if count and (count >= max_messages or total > max_bytes):
            break
        count += 1
    return count


def prepare(entries: Sequence[Entry], token: str, inbox: str, chain: int = CHAIN_MESSAGES) -> Prepared:
    """The bytes of a batch as far as they don't depend on the fence; replies go to `<inbox>.<token>`.

    Up to `chain` events, at least one, go as single messages.
    """
    if len(entries) <= max(1, chain):
        return Prepared(len(entries), token, tuple(entries), b"")
    last = len(entries)
    lines = [
        _command(
            entry,
            f"Nats-Batch-Id: {token}\r\nNats-Batch-Sequence: {number}\r\n"
            + ("Nats-Batch-Commit: 1\r\n" if number == last else ""),
            f"{inbox}.{token} " if number == last else "",
        )
        for number, entry in enumerate(entries[1:], start=2)
    ]
    return Prepared(last, token, (entries[0],), b"".join(lines))


def wire(batch: Prepared, last_seq: int, inbox: str) -> bytes:
    """The protocol bytes that publish a batch behind `last_seq` or not at all (of a chain: or a leading part of it).

    The reply to the last message tells of the whole batch: of a chain it can only succeed behind all the others.
    """
    reply = f"{inbox}.{batch.token} "
    if batch.tail:
        fence = f"Nats-Batch-Id: {batch.token}\r\nNats-Batch-Sequence: 1\r\nNats-Expected-Last-Sequence: {last_seq}\r\n"
        return _command(batch.head[0], fence, reply) + batch.tail
    return b"".join(
        _command(
            entry,
            f"Nats-Expected-Last-Sequence: {last_seq + offset}\r\n",
            reply if offset + 1 == batch.count else "",
        )
        for offset, entry in enumerate(batch.head)
    )


def _command(entry: Entry, extra: str, reply: str) -> bytes:
    """One HPUB command; `reply` is empty or a subject and a space."""
    trace = "" if entry.traceparent is None else f"traceparent: {entry.traceparent}\r\n"
    headers = (
        f"{HEADER_EVENT_ID}: {entry.event_id}\r\n{HEADER_EPOCH}: {entry.ledger_epoch}\r\n"
        f"{HEADER_SEQUENCE}: {entry.sequence}\r\n{trace}{extra}\r\n"
    ).encode()
    size = len(_LINE) + len(headers)
    start = f"HPUB {entry.subject} {reply}{size} {size + len(entry.message)}\r\n".encode()
    return b"".join((start, _LINE, headers, entry.message, b"\r\n"))


class Seen(NamedTuple):
    """One of our messages, as read back from a stream."""

    tenant_token: str
    scope_token: str
    sequence: int
    event_id: str
    ledger_epoch: int
    subject: str


def seen(message: StoredMessage) -> Seen | None:
    """What a stored message says of itself; None when the relay can't have written it."""
    tokens = message.subject.split(".")
    headers = message.headers
    event_id, sequence, epoch = headers.get(HEADER_EVENT_ID), headers.get(HEADER_SEQUENCE), headers.get(HEADER_EPOCH)
    if len(tokens) != 6 or not event_id or sequence is None or epoch is None:
        return None
    if not (sequence.isascii() and sequence.isdigit() and epoch.isascii() and epoch.isdigit()):
        return None
    return Seen(tokens[3], tokens[4], int(sequence), event_id, int(epoch), message.subject)


@dataclass(frozen=True, slots=True)
class Position:
    """Up to where the stream is known to hold what the outbox no longer does, and which loss is repaired already."""

    stream_created: str
    stream_seq: int
    first_seq: int
    deleted: int


def loss(position: Position | None, info: StreamInfo, young_seq: int | None) -> str | None:
    """What the stream has lost that age does not explain, in words, or None.

    `young_seq` is where the stream stood at the oldest mark that is younger than its max_age: messages beyond it can't
    have expired. None when there is no such mark.
    """
    if position is None:
        return "no position is known"
    if info.created != position.stream_created:
        return "the stream was made anew"
    if info.last_seq < position.stream_seq:
        return "the stream lost its end"
    if info.deleted > position.deleted:
        return "messages were removed from the stream"
    if purged(position.first_seq, info, young_seq):
        return "the stream was purged"
    return None


def purged(repaired_first: int, info: StreamInfo, young_seq: int | None) -> bool:
    """Whether messages went from the front that were too young to expire."""
    return info.first_seq > repaired_first and young_seq is not None and info.first_seq - 1 > young_seq


class Ranges:
    """A set of sequences."""

    __slots__ = ("_highs", "_lows")

    def __init__(self) -> None:
        self._lows: list[int] = []
        self._highs: list[int] = []

    def add(self, low: int, high: int | None = None) -> None:
        """Add a sequence, or all from `low` to `high`."""
        upto = low if high is None else high
        if not self._lows or low > self._highs[-1] + 1:
            self._lows.append(low)
            self._highs.append(upto)
            return
        at = bisect_right(self._lows, low)
        if at and self._highs[at - 1] >= low - 1:
            at -= 1
            low = self._lows[at]
        end = at
        while end < len(self._lows) and self._lows[end] <= upto + 1:
            upto = max(upto, self._highs[end])
            end += 1
        self._lows[at:end], self._highs[at:end] = [low], [upto]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(zip(self._lows, self._highs, strict=True))

    def missing(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        """The gaps between `low` and `high`, both included."""
        for start, end in self:
            if end < low:
                continue
            if start > high:
                break
            if start > low:
                yield low, start - 1
            low = end + 1
        if low <= high:
            yield low, high

    def common(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        """The parts of `low` to `high` that are in the set."""
        for start, end in self:
            if end >= low and start <= high:
                yield max(start, low), min(end, high)


class Span(NamedTuple):
    """Consecutive sequences of one scope."""

    scope_key: int
    low: int
    high: int


def pages(spans: Iterable[Span], limit: int) -> Iterator[list[Span]]:
    """The same sequences in the same order, in pages of at most `limit`."""
    page: list[Span] = []
    room = limit
    for scope_key, low, high in spans:
        while low <= high:
            upto = min(high, low + room - 1)
            page.append(Span(scope_key, low, upto))
            room -= upto - low + 1
            low = upto + 1
            if room == 0:
                yield page
                page, room = [], limit
    if page:
        yield page


def share(partitions: int, members: int) -> int:
    """How many partitions one of so many relays may hold."""
    return ceil(partitions / max(1, members))
