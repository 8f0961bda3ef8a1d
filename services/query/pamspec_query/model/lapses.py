"""What a scope's retention rules have let go of by now, so that default retrieval hides it before the sweeper comes.

Invariant: only what an object's own times say counts: its creation and its valid_until. Whoever names retention states,
asks for all of them, or looks at the past, sees what is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from msgspec import UNSET

from pamspec_common.retention import Retention, RetentionRule, later


@dataclass(frozen=True, slots=True)
class Ending:
    """One rule that ends objects, and the types that it is for."""

    types: Sequence[str] | None
    """None: all but those of `others`."""
    others: Sequence[str]
    created_by: datetime | None
    """Objects that were created then or before have lapsed."""
    valid_until: datetime | None
    """And so have objects whose validity ended then or before."""


@dataclass(frozen=True, slots=True)
class Lapse:
    """An ending whose moment of creation is known as a ledger sequence."""

    ending: Ending
    created_seq: int | None


@dataclass(frozen=True, slots=True)
class Lapses:
    """What has lapsed in a scope."""

    scope_key: int
    lapses: Sequence[Lapse] = ()


def endings(retention: Retention, now: datetime) -> list[Ending]:
    """The rules of a policy that end objects by their own times, types with equal rules together."""
    by_rule: dict[tuple[int | None, bool], list[str]] = {}
    for name, rule in retention.by_type.items():
        if rule.ends:
            by_rule.setdefault(_kind(rule), []).append(name)
    found = [_ending(kind, sorted(names), (), now) for kind, names in by_rule.items()]
    if retention.default.ends:
        found.append(_ending(_kind(retention.default), None, sorted(retention.by_type), now))
    return found


def _kind(rule: RetentionRule) -> tuple[int | None, bool]:
    return (None if rule.ttl_seconds is UNSET else rule.ttl_seconds, rule.valid_until)


def _ending(kind: tuple[int | None, bool], types: Sequence[str] | None, others: Sequence[str], now: datetime) -> Ending:
    ttl, valid_until = kind
    return Ending(types, others, None if ttl is None else later(now, -ttl), now if valid_until else None)
