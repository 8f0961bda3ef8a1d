"""The next step of an object under its scope's policy: what happens to it, when, and by which rule.

Invariant: one step at a time, each an edge of the state tables; it follows from the policy, the object's facts and the
clock alone, so that every process finds the same one, however often it looks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from msgspec import UNSET

from pamspec_common.decay import falls_below, scoring_of
from pamspec_common.retention import Retention, RetentionRule, later

Action = Literal["delete", "mark_for_deletion", "expire", "redact_versions", "archive", "retain"]

ACTOR_ID = "service:retention_sweeper"


@dataclass(frozen=True, slots=True)
class Facts:
    """An object as it is now, as far as a rule asks."""

    object_id: str
    version_id: str
    sequence: int
    """The ledger sequence of its current version."""
    object_type: str
    lifecycle_state: str
    availability_state: str
    retention_state: str
    created_at: datetime
    changed_at: datetime
    """When somebody else than a job of the service last wrote a version of it."""
    read_at: datetime | None
    state_since: datetime
    """Since when its retention is what it is; for what is deleted, when it was."""
    state_by: str
    """Who made it so."""
    valid_until: datetime | None
    kept: Sequence[str] = ()
    """The versions before the current one that still have their content, oldest first."""
    content: Any = None
    quality: Mapping[str, Any] = field(default_factory=dict)

    @property
    def last_used(self) -> datetime:
        """When it was last read or written: the start of its clocks (AMP AY1)."""
        return max(filter(None, (self.created_at, self.changed_at, self.read_at)))


@dataclass(frozen=True, slots=True)
class Step:
    """What is to be done to an object, from when on, and the place of the rule in the policy."""

    action: Action
    at: datetime
    rule: str
    versions: Sequence[str] = ()
    """Those that a redaction names."""


_ORDER: tuple[Action, ...] = ("delete", "mark_for_deletion", "expire", "redact_versions", "archive", "retain")


def next_step(retention: Retention, facts: Facts, now: datetime) -> Step | None:
    """The step that is due first, if there is one; what is on hold has the one that waits for the release."""
    rule = retention.rule(facts.object_type)
    place = retention.place(facts.object_type)
    steps = [
        Step(action, at, f"{place}/{name}", tuple(versions)) for action, at, name, versions in _steps(rule, facts, now)
    ]
    return min(steps, key=lambda step: (step.at, _ORDER.index(step.action)), default=None)


_Found = tuple[Action, datetime, str, Sequence[str]]


def _steps(rule: RetentionRule, facts: Facts, now: datetime) -> Iterator[_Found]:
    if facts.availability_state == "deleted":
        return
    ends = list(_ends(rule, facts))
    state = "retained" if facts.retention_state == "legal_hold" else facts.retention_state
    if state == "retained":
        for name, at in ends:
            yield "expire", at, name, ()
    elif state == "expired":
        yield from _after_expiry(rule, facts, ends, now)
    elif rule.deletion is not UNSET:
        yield "delete", later(facts.state_since, rule.deletion.delay_seconds), "deletion", ()
    if rule.max_versions is not UNSET and len(facts.kept) + 1 > rule.max_versions:
        # The redaction makes a version of its own, which keeps the content too.
        yield "redact_versions", facts.changed_at, "max_versions", facts.kept[: len(facts.kept) + 2 - rule.max_versions]


def _ends(rule: RetentionRule, facts: Facts) -> Iterator[tuple[str, datetime]]:
    """When an object expires, by each of its rules."""
    if rule.ttl_seconds is not UNSET:
        yield "ttl_seconds", later(facts.created_at, rule.ttl_seconds)
    if rule.valid_until and facts.valid_until is not None:
        yield "valid_until", facts.valid_until
    if rule.idle_seconds is not UNSET:
        yield "idle_seconds", later(facts.last_used, rule.idle_seconds)
    if rule.decay is not UNSET and facts.lifecycle_state != "archived":
        scoring = scoring_of(rule.decay, facts.content, facts.quality)
        below = falls_below(rule.decay, scoring, facts.last_used)
        if below is not None:
            yield "decay", below


def _after_expiry(
    rule: RetentionRule, facts: Facts, ends: Sequence[tuple[str, datetime]], now: datetime
) -> Iterator[_Found]:
    """What follows on expiry: the way back, the archive, the way to deletion."""
    due = {name for name, at in ends if at <= now}
    if facts.state_by == ACTOR_ID and not due and facts.lifecycle_state != "archived":
        yield "retain", now, _way_back(rule), ()
        return
    if rule.decay is not UNSET and due == {"decay"} and facts.lifecycle_state in ("active", "superseded", "deprecated"):
        since = max(facts.last_used, facts.state_since)
        yield "archive", later(since, rule.decay.archive_after_seconds), "decay", ()
    if rule.deletion is not UNSET:
        yield "mark_for_deletion", later(facts.state_since, rule.deletion.after_seconds), "deletion", ()


def _way_back(rule: RetentionRule) -> str:
    """The rule by which something is retained again: the one whose clock a read resets, where there is one."""
    if rule.decay is not UNSET:
        return "decay"
    return "idle_seconds" if rule.idle_seconds is not UNSET else "ttl_seconds" if rule.ttl_seconds is not UNSET else "."
