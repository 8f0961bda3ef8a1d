"""The judge finds each violation that it is there to find, and nothing in a history that is right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.chaos.history import Done, History, Kind
from tests.chaos.judging import Entry, Final, judge

SCOPE, OBJECT = "scope:1", "obj:1-1"


class World:
    """A right history of one object: created, raised twice, read in between; and what is left of it."""

    def __init__(self) -> None:
        self.history = History(objects={OBJECT: SCOPE})
        self.write("create", 1, 0, 1.0)
        self.read(1, 2.0)
        self.write("increment", 2, 1, 3.0)
        self.write("increment", 3, 2, 5.0)
        self.read(3, 7.0)
        self.ledger = [Entry(sequence, f"evt:{sequence}", "object_updated", OBJECT) for sequence in (1, 2, 3)]
        self.final = Final(3, 2, deleted=False)
        self.received = [(entry.sequence, entry.event_id) for entry in self.ledger]

    def write(self, kind: Kind, version: int, count: int, at: float, *, known: bool = True) -> None:
        """A write that took half a second."""
        ended = at + 0.5 if known else 0.0
        self.history.done.append(Done(kind, SCOPE, OBJECT, at, ended, version, f"evt:{version}", version, count))

    def read(self, version: int, at: float) -> None:
        self.history.done.append(Done("read", SCOPE, OBJECT, at, at + 0.5, version, count=version - 1))

    def verdict(self) -> list[str]:
        return judge(self.history, {SCOPE: self.ledger}, {OBJECT: self.final}, {(SCOPE, "sse"): self.received})


def lost_write(world: World) -> None:
    del world.ledger[2], world.received[2]
    world.final = Final(2, 1, deleted=False)


def doubled_write(world: World) -> None:
    world.ledger.append(Entry(4, "evt:4", "object_updated", OBJECT))
    world.received.append((4, "evt:4"))
    world.final = Final(4, 3, deleted=False)


def lost_update(world: World) -> None:
    """Two writers were told that they had made the same version."""
    world.write("increment", 3, 2, 5.0)


def wrong_counter(world: World) -> None:
    world.final = Final(3, 1, deleted=False)


def stale_read(world: World) -> None:
    world.read(2, 8.0)


def back_from_the_dead(world: World) -> None:
    world.write("delete", 4, -1, 9.0)
    world.ledger.append(Entry(4, "evt:4", "object_deleted", OBJECT))
    world.received.append((4, "evt:4"))
    world.final = Final(4, -1, deleted=True)
    world.read(3, 11.0)


def gone_by_itself(world: World) -> None:
    world.history.done.append(Done("read", SCOPE, OBJECT, 8.0, 8.5, 0))


def skipped_event(world: World) -> None:
    del world.received[1]


def repeated_event(world: World) -> None:
    world.received.append(world.received[-1])


def disordered_events(world: World) -> None:
    world.received.reverse()


def foreign_event(world: World) -> None:
    world.received.append((9, "evt:9"))


def test_a_right_history_has_no_violations() -> None:
    assert World().verdict() == []


@pytest.mark.parametrize(("known", "version"), [(False, 3), (False, 4)], ids=["not committed", "committed"])
def test_of_a_write_without_an_answer_both_outcomes_are_right(known: bool, version: int) -> None:
    world = World()
    world.write("increment", 0, -1, 8.0, known=known)
    if version == 4:
        doubled_write(world)
    assert world.verdict() == []


@pytest.mark.parametrize(
    "plant",
    [
        lost_write,
        doubled_write,
        lost_update,
        wrong_counter,
        stale_read,
        back_from_the_dead,
        gone_by_itself,
        skipped_event,
        repeated_event,
        disordered_events,
        foreign_event,
    ],
)
def test_each_violation_is_found(plant: Callable[[World], None]) -> None:
    world = World()
    plant(world)
    assert world.verdict() != []


def test_what_is_not_known_is_not_counted_as_acknowledged() -> None:
    world = World()
    world.history.done[2] = replace(world.history.done[2], ended=0.0)
    assert len(world.history.writes()) == 2
    assert len(world.history.unknown()) == 1
