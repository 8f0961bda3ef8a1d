"""What a scope's policy lets go of: rules by object type, and when each of them is due.

Invariant: a rule names durations alone, so that it says the same in every process; whoever applies it brings the facts
of an object and the clock. The form is contracts/schemas/scope-policy.json, the meaning docs/architecture/retention.md.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

import msgspec

from pamspec_common.errors import InvalidRequest

DAY_S = 86_400
LONGEST_S = 10**10

Seconds = Annotated[int, msgspec.Meta(ge=1, le=LONGEST_S)]
Delay = Annotated[int, msgspec.Meta(ge=0, le=LONGEST_S)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Rate = Annotated[float, msgspec.Meta(ge=0, le=1000)]
Place = Annotated[str, msgspec.Meta(pattern=r"^(/([^~/]|~[01])*)+$", max_length=255)]
"""A JSON Pointer into the content of an object."""
Unset = msgspec.UnsetType


class Decay(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """importance x confidence x e^(-rate x days): below the threshold an object expires, and comes back above it."""

    rate_per_day: Rate = 0.01
    importance: Share = 0.5
    confidence: Share = 1.0
    threshold: Share = 0.3
    rate_at: Place | Unset = msgspec.UNSET
    importance_at: Place | Unset = msgspec.UNSET
    confidence_at: Place | Unset = msgspec.UNSET
    archive_after_seconds: Seconds = 30 * DAY_S


class Deletion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long something stays expired, and then pending_deletion, before the next step."""

    after_seconds: Delay = 0
    delay_seconds: Delay = 0


class RetentionRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long something is retained, and what follows."""

    ttl_seconds: Seconds | Unset = msgspec.UNSET
    valid_until: bool = False
    idle_seconds: Seconds | Unset = msgspec.UNSET
    decay: Decay | Unset = msgspec.UNSET
    deletion: Deletion | Unset = msgspec.UNSET
    max_versions: Annotated[int, msgspec.Meta(ge=2, le=10_000)] | Unset = msgspec.UNSET

    @property
    def counts_reads(self) -> bool:
        """Whether it matters when an object was read."""
        return self.idle_seconds is not msgspec.UNSET or self.decay is not msgspec.UNSET

    @property
    def scores(self) -> bool:
        """Whether it asks for what the score of an object is made of."""
        return self.decay is not msgspec.UNSET

    @property
    def ends(self) -> bool:
        """Whether an object expires by its own times alone, so that retrieval hides it from that moment on."""
        return self.ttl_seconds is not msgspec.UNSET or self.valid_until

    @property
    def acts(self) -> bool:
        """Whether it ever does anything."""
        return self != _NOTHING


_NOTHING = RetentionRule()


class Retention(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Retention by object type; `default` for the types that are not named."""

    default: RetentionRule = RetentionRule()
    by_type: Annotated[
        dict[Annotated[str, msgspec.Meta(min_length=1, max_length=255)], RetentionRule], msgspec.Meta(max_length=1000)
    ] = {}

    def place(self, object_type: str) -> str:
        """Where the rule of a type stands in the policy."""
        return f"retention/by_type/{object_type}" if object_type in self.by_type else "retention/default"

    def rule(self, object_type: str) -> RetentionRule:
        """The rule of a type."""
        return self.by_type.get(object_type, self.default)

    def rules(self) -> list[RetentionRule]:
        """All rules."""
        return [self.default, *self.by_type.values()]

    @property
    def acts(self) -> bool:
        """Whether any rule does anything."""
        return any(rule.acts for rule in self.rules())


def check_retention(retention: Retention, where: str) -> None:
    """Raise InvalidRequest, naming the member, for a rule that contradicts itself."""
    named = {f"{where}.default": retention.default}
    named |= {f"{where}.by_type.{name}": rule for name, rule in retention.by_type.items()}
    for place, rule in named.items():
        decay = rule.decay
        if decay is not msgspec.UNSET and decay.threshold == 0:
            raise InvalidRequest(
                f"{place}.decay.threshold is above 0, since no score falls below it; leave decay out for none.",
                details={"field": f"{place}.decay.threshold"},
            )


def expires_at(rule: RetentionRule, created_at: datetime, valid_until: datetime | None) -> datetime | None:
    """When an object expires by its own times; None where it never does."""
    found = [later(created_at, rule.ttl_seconds)] if rule.ttl_seconds is not msgspec.UNSET else []
    if rule.valid_until and valid_until is not None:
        found.append(valid_until)
    return min(found, default=None)


def later(start: datetime, seconds: float) -> datetime:
    """So many seconds after a moment; the end of the calendar at the latest."""
    try:
        return start + timedelta(seconds=seconds)
    except OverflowError:
        return datetime.max.replace(tzinfo=start.tzinfo)
