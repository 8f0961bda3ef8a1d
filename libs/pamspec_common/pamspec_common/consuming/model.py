"""What a consumer decides, without any I/O.

Invariant: per scope an entry is taken in when its sequence is the one after the last; a lower one was taken in before,
a higher one waits until the ledger has given what lies between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from pamspec_common.bus import HEADER_EPOCH, HEADER_EVENT_ID, HEADER_SEQUENCE

_TOKENS = 6
_SCOPE_TOKEN, _EVENT_TYPE = 4, 5


class Poison(Exception):
    """An effect cannot take this entry, and no other try will help; `reason` is kept beside it and holds no content."""

    def __init__(self, scope_key: int, sequence: int, reason: str) -> None:
        super().__init__(reason)
        self.place, self.reason = (scope_key, sequence), reason


class Doubt(Exception):
    """What the consumer believed does not hold any more; it looks again and goes on."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a scope's ledger."""

    scope_key: int
    sequence: int
    event_id: str
    event_type: str
    event: bytes
    """Its one byte form."""


class Heard(NamedTuple):
    """A message of the bus: an entry of the scope that the token stands for."""

    scope_token: str
    ledger_epoch: int
    sequence: int
    event_id: str
    event_type: str
    event: bytes


@dataclass(frozen=True, slots=True)
class Place:
    """How far a scope is: its ledger's head, and what has taken effect."""

    scope_key: int
    ledger_epoch: int
    head: int
    taken: int
    taken_epoch: int
    """0 where nothing has taken effect yet."""

    @property
    def outdated(self) -> bool:
        """Whether what took effect is of a ledger that a restore has replaced."""
        return self.taken_epoch not in (0, self.ledger_epoch)


class Span(NamedTuple):
    """Entries of a scope beyond `after`, up to `to`."""

    scope_key: int
    after: int
    to: int


class Sorted(NamedTuple):
    """What a batch of messages comes to."""

    entries: list[Entry]
    """To take in now, in the order of each scope."""
    holes: list[Span]
    """To read from the ledger instead: something before them was never heard."""
    dropped: int


def heard(subject: str, headers: Mapping[str, str] | None, data: bytes) -> Heard | None:
    """What a message says; None for one that is no ledger entry."""
    tokens = subject.split(".")
    if len(tokens) != _TOKENS or headers is None:
        return None
    try:
        epoch, sequence = int(headers[HEADER_EPOCH]), int(headers[HEADER_SEQUENCE])
        event_id = headers[HEADER_EVENT_ID]
    except (KeyError, ValueError):
        return None
    return Heard(tokens[_SCOPE_TOKEN], epoch, sequence, event_id, tokens[_EVENT_TYPE], data)


def sort_out(messages: Iterable[Heard], places: Mapping[str, Place]) -> Sorted:
    """What of these messages is new, and where the ledger has to be asked; `places` by scope token.

    Of another epoch, of a scope that is not here, beyond the head or taken in before: dropped.
    """
    fresh: dict[str, dict[int, Heard]] = {}
    dropped = 0
    for message in messages:
        place = places.get(message.scope_token)
        if (
            place is None
            or place.outdated
            or message.ledger_epoch != place.ledger_epoch
            or not place.taken < message.sequence <= place.head
        ):
            dropped += 1
            continue
        found = fresh.setdefault(message.scope_token, {})
        dropped += message.sequence in found
        found[message.sequence] = message
    entries: list[Entry] = []
    holes: list[Span] = []
    for token, found in fresh.items():
        place = places[token]
        last = max(found)
        if last - place.taken == len(found):
            entries += [_entry(place.scope_key, found[sequence]) for sequence in sorted(found)]
        else:
            holes.append(Span(place.scope_key, place.taken, last))
    return Sorted(entries, holes, dropped)


def _entry(scope_key: int, message: Heard) -> Entry:
    return Entry(scope_key, message.sequence, message.event_id, message.event_type, message.event)


def reach(entries: Sequence[Entry]) -> dict[int, tuple[int, int]]:
    """By scope: the sequence before the first of these entries, and the last. Doubt where one of them is missing."""
    found: dict[int, tuple[int, int]] = {}
    for entry in entries:
        before, last = found.get(entry.scope_key, (entry.sequence - 1, entry.sequence - 1))
        if entry.sequence != last + 1:
            raise Doubt(f"scope {entry.scope_key} lacks sequence {last + 1}")
        found[entry.scope_key] = before, entry.sequence
    return found


def share(partitions: int, members: int) -> int:
    """How many partitions one of so many processes may hold."""
    return ceil(partitions / max(1, members))
