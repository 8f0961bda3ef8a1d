"""The judgement of a history: every sentence that a client could complain of. Pure.

An object's counter is raised by one with each version, from 0 in the first: a lost or doubled update shows in it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from tests.chaos.history import Done, History


class Entry(NamedTuple):
    """An entry of a ledger about an object."""

    sequence: int
    event_id: str
    event_type: str
    object_id: str


class Final(NamedTuple):
    """An object in the end, as a reader sees it; `version` 0 where nobody ever made it."""

    version: int
    counter: int
    deleted: bool


def judge(
    history: History,
    ledger: Mapping[str, Sequence[Entry]],
    finals: Mapping[str, Final],
    followed: Mapping[tuple[str, str], Sequence[tuple[int, str]]],
) -> list[str]:
    """The violations. `ledger` is by scope, `followed` by scope and channel what a follower received, in its order."""
    found = [*_acknowledged(history, ledger), *_reads(history), *_deliveries(ledger, followed)]
    entries: dict[str, int] = defaultdict(int)
    for of_scope in ledger.values():
        for entry in of_scope:
            entries[entry.object_id] += 1
    by_object: dict[str, list[Done]] = defaultdict(list)
    for one in history.done:
        by_object[one.object_id].append(one)
    for object_id, final in finals.items():
        found += _object(object_id, final, by_object[object_id], entries[object_id])
    return found


def _acknowledged(history: History, ledger: Mapping[str, Sequence[Entry]]) -> Iterable[str]:
    """What was acknowledged is in the ledger, where the answer said, once."""
    places = {scope: {entry.event_id: entry.sequence for entry in entries} for scope, entries in ledger.items()}
    seen: set[str] = set()
    for one in history.writes():
        if one.event_id in seen:
            yield f"two answers name {one.event_id} ({one.kind} of {one.object_id})"
        seen.add(one.event_id)
        if places.get(one.scope_id, {}).get(one.event_id) != one.sequence:
            yield f"acknowledged and not in the ledger: {one.kind} of {one.object_id} at {one.sequence}"


def _object(object_id: str, final: Final, done: Sequence[Done], entries: int) -> Iterable[str]:
    writes = [one for one in done if one.kind != "read"]
    least = sum(1 for one in writes if one.known)
    most = len(writes)
    if entries != final.version:
        yield f"{object_id} has {final.version} versions and {entries} entries"
    if not least <= final.version <= most:
        gone = ", deleted" if final.deleted else ""
        yield f"{object_id} has {final.version} versions{gone} after {least} acknowledged of {most} writes"
    if not final.deleted and final.version and final.counter != final.version - 1:
        yield f"{object_id} counts {final.counter} in version {final.version}"
    if final.deleted and not any(one.kind == "delete" for one in writes):
        yield f"{object_id} is deleted, and nobody asked for it"
    made = [one.version for one in writes if one.known]
    if len(made) != len(set(made)):
        yield f"{object_id}: two answers name one version, an update was lost"
    for one in done:
        if one.known and one.count >= 0 and one.count != one.version - 1:
            yield f"{object_id} counted {one.count} in version {one.version}"


def _reads(history: History) -> Iterable[str]:
    """A read shows nothing older than what was answered before it began; nothing deleted comes back."""
    answered: dict[str, list[Done]] = defaultdict(list)
    for one in history.done:
        if one.known:
            answered[one.object_id].append(one)
    for object_id, of_object in answered.items():
        deleted_at = min((one.ended for one in of_object if one.kind == "delete"), default=float("inf"))
        in_time = sorted(of_object, key=lambda one: one.ended)
        for read in (one for one in of_object if one.kind == "read"):
            before = max((one.version for one in in_time if one.ended < read.began), default=0)
            if read.version == 0:
                if before and deleted_at == float("inf") and not _may_be_deleted(history, object_id):
                    yield f"{object_id} was read as gone, and nobody deleted it"
            elif read.began > deleted_at:
                yield f"{object_id} came back after its deletion"
            elif read.version < before:
                yield f"{object_id} was read in version {read.version} after version {before} was answered"


def _may_be_deleted(history: History, object_id: str) -> bool:
    return any(one.object_id == object_id and one.kind == "delete" for one in history.unknown())


def _deliveries(
    ledger: Mapping[str, Sequence[Entry]], followed: Mapping[tuple[str, str], Sequence[tuple[int, str]]]
) -> Iterable[str]:
    """Each follower received the ledger, each entry once, in its order."""
    for (scope_id, channel), received in followed.items():
        wanted = [(entry.sequence, entry.event_id) for entry in ledger[scope_id]]
        if list(received) == wanted:
            continue
        ids = [event_id for _, event_id in received]
        missing = len({event_id for _, event_id in wanted} - set(ids))
        others = len(set(ids) - {event_id for _, event_id in wanted})
        disorder = sum(1 for before, after in pairwise(received) if after[0] <= before[0])
        yield (
            f"{channel} of {scope_id}: {missing} missing, {others} that are not in the ledger,"
            f" {len(ids) - len(set(ids))} twice, {disorder} out of order"
        )
