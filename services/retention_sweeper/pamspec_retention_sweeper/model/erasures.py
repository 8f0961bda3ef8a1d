"""What a verification makes of an erasure: the lines of its receipt, and when it is looked at again.

Invariant: a surface is closed only by a scan of its own that found nothing, at a position that is not before the
erasure's; one in which something was found stays open and is scanned again, however it was repaired.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pamspec_common.surfaces import CLOSED, NOT_PRESENT, OPEN, PAGE_BYTES, line, unsettled

FIRST_WAIT_S = 0.2


class Seen(NamedTuple):
    """What was seen of a surface."""

    state: str
    """closed: nothing is there; not_present; open: something is, or it is not that far."""
    error: str | None = None
    scan: str | None = None
    position: int | None = None
    found: bool = False
    """Whether something was there, and was taken away: the next scan says whether that worked."""
    mark: str | None = None
    """Up to where standbys must have come."""


def clean(scan: str, position: int | None = None) -> Seen:
    """A surface in which nothing is left."""
    return Seen(CLOSED, scan=scan, position=position)


def waiting(error: str, position: int | None = None) -> Seen:
    """A surface that cannot be judged yet."""
    return Seen(OPEN, error, position=position)


def left(error: str, scan: str) -> Seen:
    """A surface in which something is left."""
    return Seen(OPEN, error, scan, found=True)


ABSENT = Seen(NOT_PRESENT)


def noted(before: Mapping[str, Any], seen: Mapping[str, Seen], now: str) -> dict[str, Any]:
    """The lines of a receipt after a verification at `now`; what was settled before stays as it is."""
    lines = dict(before)
    for name in unsettled(before):
        found = seen.get(name)
        if found is None:
            continue
        last = line(before, name)
        made: dict[str, Any] = {"state": found.state, "attempts": last["attempts"] + 1, "checked_at": now}
        repairs = last.get("repairs", 0) + found.found
        made |= {"repairs": repairs} if repairs else {}
        for key, value in (("error", found.error), ("scan", found.scan), ("position", found.position)):
            made |= {} if value is None else {key: value}
        if found.state == CLOSED:
            made["closed_at"] = now
        mark = found.mark or last.get("mark")
        if mark is not None and found.state == OPEN:
            made["mark"] = mark
        lines[name] = made
    return lines


def wait_s(attempts: int, lines: Mapping[str, Any], longest_s: float) -> float:
    """How long until the next verification; pages are written anew on a schedule of their own."""
    if unsettled(lines) == [PAGE_BYTES]:
        return longest_s
    return min(longest_s, FIRST_WAIT_S * 2.0 ** min(attempts, 20))
