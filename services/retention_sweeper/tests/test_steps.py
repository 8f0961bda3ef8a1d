"""The rules by themselves: which step is next, when, and by which rule (AMP A24-A38)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from pamspec_common.decay import Scoring, falls_below, scoring_of
from pamspec_common.retention import Decay, Retention
from pamspec_retention_sweeper.model.steps import ACTOR_ID, Facts, Step, next_step

BORN = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
OBJECT = Facts(
    "obj:1", "ver:1", 1, "claim", "active", "available", "retained", BORN, BORN, None, BORN, "agent:a", None
)  # fmt: skip


def policy(**rule: Any) -> Retention:
    """A policy with one rule for all types."""
    return msgspec.convert({"default": rule}, Retention)


def step(rule: dict[str, Any], now: datetime = BORN, **changes: Any) -> tuple[str, datetime, str] | None:
    """The next step of the object with these changes."""
    found = next_step(policy(**rule), replace(OBJECT, **changes), now)
    return None if found is None else (found.action, found.at, found.rule.removeprefix("retention/default/"))


def expired(by: str = ACTOR_ID, days: float = 0) -> dict[str, Any]:
    """Changes that make the object expired, some days after its birth."""
    return {"retention_state": "expired", "state_by": by, "state_since": BORN + days * DAY}


@pytest.mark.parametrize(
    ("scoring", "days", "score"),
    [
        ((0.5, 1, 0.01), 30, 0.3704091103),
        ((1, 1, 0.01), 69.31471806, 0.5),
        ((0.5, 1, 0.01), 51, 0.3002478),
        ((0.5, 1, 0.01), 52, 0.2972603),
        ((1, 0.4, 0.01), 20, 0.3274923),
    ],
)
def test_a_score_is_reached_after_the_days_of_the_table(
    scoring: tuple[float, float, float], days: float, score: float
) -> None:
    below = falls_below(Decay(threshold=score), Scoring(*scoring), BORN)
    assert below is not None
    assert (below - BORN) / DAY == pytest.approx(days, abs=1e-3)


def test_an_object_goes_stale_when_its_score_is_below_the_threshold() -> None:
    below = falls_below(Decay(), Scoring(0.5, 1, 0.01), BORN)
    assert below is not None
    assert (below - BORN) / DAY == pytest.approx(51.0826, abs=1e-3)
    assert falls_below(Decay(), Scoring(0.2, 1, 0), BORN) == BORN
    assert falls_below(Decay(), Scoring(0.3, 1, 0), BORN) is None, "0.3 itself stays"
    assert falls_below(Decay(), Scoring(1, 1, 1e-9), BORN) == datetime.max.replace(tzinfo=UTC)


def test_an_object_s_own_numbers_come_before_those_of_the_policy() -> None:
    decay = msgspec.convert({"importance_at": "/scoring/a~1b", "confidence_at": "/c", "rate_at": "/r"}, Decay)
    assert scoring_of(decay, {"scoring": {"a/b": 1}, "c": 0.25, "r": 2}, {}) == Scoring(1, 0.25, 2)
    assert scoring_of(decay, {"scoring": [1], "c": "high", "r": True}, {"assessed_confidence": 0.4}) == Scoring(
        0.5, 0.4, 0.01
    )
    assert scoring_of(decay, None, {}) == Scoring(0.5, 1, 0.01)
    assert scoring_of(decay, {"scoring": {"a/b": 7}, "c": -1, "r": 1e9}, {}) == Scoring(0.5, 1, 0.01)


def test_what_ends_first_decides() -> None:
    assert step({}) is None
    assert step({"ttl_seconds": 60}) == ("expire", BORN + timedelta(minutes=1), "ttl_seconds")
    rule = {"ttl_seconds": 86_400, "valid_until": True, "idle_seconds": 7_200}
    assert step(rule) == ("expire", BORN + timedelta(hours=2), "idle_seconds")
    assert step(rule, read_at=BORN + DAY) == ("expire", BORN + DAY, "ttl_seconds")
    early = {"valid_until": BORN + timedelta(hours=3), "changed_at": BORN + timedelta(hours=2)}
    assert step(rule, **early) == ("expire", BORN + timedelta(hours=3), "valid_until")
    assert step({"idle_seconds": 1}, **early) == ("expire", BORN + timedelta(hours=2, seconds=1), "idle_seconds")
    assert step({"ttl_seconds": 1, "valid_until": False}, **early) == (
        "expire", BORN + timedelta(seconds=1), "ttl_seconds",
    )  # fmt: skip


def test_what_is_on_hold_waits_with_the_step_of_what_is_retained() -> None:
    assert step({"ttl_seconds": 1}, retention_state="legal_hold") == (
        "expire", BORN + timedelta(seconds=1), "ttl_seconds",
    )  # fmt: skip


def test_expiry_is_followed_by_deletion_where_the_policy_says_so() -> None:
    rule = {"ttl_seconds": 1, "deletion": {"after_seconds": 60, "delay_seconds": 3_600}}
    now = BORN + DAY
    assert step({"ttl_seconds": 1}, now, **expired(days=0.5)) is None, "what is expired stays without a rule"
    assert step(rule, now, **expired(days=0.5)) == (
        "mark_for_deletion", BORN + timedelta(hours=12, minutes=1), "deletion",
    )  # fmt: skip
    pending = expired(days=0.5) | {"retention_state": "pending_deletion"}
    assert step(rule, now, **pending) == ("delete", BORN + timedelta(hours=13), "deletion")
    assert step({"ttl_seconds": 1}, now, **pending) is None, "nobody deletes by a rule that is not there"


def test_what_decayed_comes_back_when_it_is_read_and_is_archived_when_it_is_not() -> None:
    rule: dict[str, Any] = {"decay": {}}
    stale = expired(days=52)
    now = BORN + 60 * DAY
    assert step(rule, now, **stale) == ("archive", BORN + 82 * DAY, "decay")
    assert step(rule, now, **stale, read_at=BORN + 59 * DAY) == ("retain", now, "decay")
    assert step(rule, now, **stale, changed_at=BORN + 59 * DAY) == ("retain", now, "decay")
    low = {"decay": {"importance": 0.1}}
    assert step(low, now, **stale, read_at=BORN + 59 * DAY) == ("archive", BORN + 89 * DAY, "decay"), "AY2"
    assert step(rule, now, **stale, lifecycle_state="archived", read_at=BORN + 59 * DAY) is None, "A29, A34"
    assert step(rule, now, lifecycle_state="archived") is None
    assert step(rule, now, **expired(by="agent:a", days=52), read_at=BORN + 59 * DAY) is None, "not the engine's doing"


def test_what_expired_for_good_is_not_archived_by_decay() -> None:
    assert step({"decay": {}, "ttl_seconds": 1}, BORN + 60 * DAY, **expired(days=52)) is None


def test_old_versions_lose_their_content_so_that_as_many_are_left() -> None:
    changed = replace(OBJECT, kept=["ver:1", "ver:2", "ver:3"], changed_at=BORN + DAY)
    assert next_step(policy(max_versions=4), changed, BORN) is None
    found = next_step(policy(max_versions=3), changed, BORN)
    assert found == Step("redact_versions", BORN + DAY, "retention/default/max_versions", ("ver:1", "ver:2"))
    # ver:3, the current one and the version of the redaction are left: three.
    found = next_step(policy(max_versions=2), changed, BORN)
    assert found is not None
    assert found.versions == ("ver:1", "ver:2", "ver:3")


def test_nothing_happens_to_a_tombstone() -> None:
    gone = {"availability_state": "deleted", "state_since": BORN + DAY}
    assert step({"ttl_seconds": 1, "decay": {}, "deletion": {}, "max_versions": 2}, BORN + 99 * DAY, **gone) is None


def test_the_rule_of_a_type_replaces_the_default() -> None:
    retention = msgspec.convert({"default": {"ttl_seconds": 1}, "by_type": {"claim": {}}}, Retention)
    assert next_step(retention, OBJECT, BORN) is None
    found = next_step(retention, replace(OBJECT, object_type="episode"), BORN)
    assert found is not None
    assert found.rule == "retention/default/ttl_seconds"
