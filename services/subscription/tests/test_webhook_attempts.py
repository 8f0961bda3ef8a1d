"""The rules of retrying, and the secrets: pure."""

from __future__ import annotations

import base64
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pamspec_subscription.webhooks.attempts import Attempt, Patience, after_failure, outcome_of, retry_after
from pamspec_subscription.webhooks.secrets import (
    CannotOpen,
    Sealing,
    Secret,
    alive,
    message_id,
    rotated,
    shown,
    signed_headers,
)
from services.subscription.tests.endpoint import signed

PATIENCE = Patience(first_s=1, limit_s=600, parked_s=3600, attempts=10, refusals=3)
OWNER = ("tenant:a", "sub:1")


@pytest.mark.parametrize(
    ("outcome", "statuses"),
    [
        ("delivered", (200, 201, 204, 299)),
        ("redirected", (300, 301, 302, 307, 308)),
        ("refused", (400, 401, 403, 404, 409, 413, 422, 499)),
        ("failed", (408, 425, 429, 500, 502, 503, 599)),
        ("gone", (410,)),
    ],
)
def test_what_a_status_means(outcome: str, statuses: tuple[int, ...]) -> None:
    assert {outcome_of(status) for status in statuses} == {outcome}


def test_pauses_double_up_to_their_limit_and_then_the_event_is_parked() -> None:
    found = [after_failure(Attempt("failed", 500), failures, "failed", 0.0, PATIENCE) for failures in range(1, 12)]
    assert [one.delay_s for one in found] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 3600, 3600]
    assert [one.parked for one in found] == [False] * 9 + [True] * 2


def test_what_is_refused_for_good_is_parked_sooner() -> None:
    def parked(failures: int, before: str | None) -> bool:
        return after_failure(Attempt("refused", 404), failures, before, 0.0, PATIENCE).parked

    assert [parked(1, None), parked(2, "refused"), parked(3, "redirected")] == [False, False, True]
    assert not parked(5, "failed"), "one refusal after an outage may pass"
    assert parked(6, "refused")
    assert parked(10, "failed")


@given(st.integers(1, 10**6), st.floats(0, 0.999), st.one_of(st.none(), st.floats(0, 1e9)))
def test_a_pause_is_bounded_whatever_the_endpoint_says(failures: int, jitter: float, asked: float | None) -> None:
    following = after_failure(Attempt("failed", 503, asked), failures, None, jitter, PATIENCE)
    assert 0.5 <= following.delay_s <= 3600
    if asked is not None and asked <= 3600:
        assert following.delay_s >= asked


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        *((None, None), ("", None), ("soon", None), ("-1", None), ("1.5", None), ("\u0663", None)),
        *(("0", 0.0), (" 120 ", 120.0), ("9" * 400, 999_999_999.0)),
        *(("Thu, 01 Jan 1970 00:10:00 GMT", 300.0), ("Thu, 01 Jan 1970 00:00:10 GMT", 0.0)),
        ("Mon, 99 Xyz 9999999 00:00:00 GMT", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str | None, seconds: float | None) -> None:
    assert retry_after(value, lambda: 300.0) == seconds


def test_sealed_secrets_open_with_their_key_for_their_subscription_alone() -> None:
    secrets = [Secret(b"k" * 32), Secret(b"j" * 32, 12.5)]
    key, other = b"a key of the operator, long enough", b"another key of the operator's too"
    stored = Sealing({"one": key, "two": other}).seal(secrets, OWNER)
    assert b"kkkk" not in stored
    assert Sealing({"two": other, "one": key}).open(stored, OWNER) == secrets
    for sealing, owner in [
        (Sealing({"one": key}), ("tenant:a", "sub:2")),
        (Sealing({"one": key}), ("tenant:asub:1", "")),
        (Sealing({"one": other}), OWNER),
        (Sealing({"two": key}), OWNER),
        (Sealing({}), OWNER),
    ]:
        with pytest.raises(CannotOpen):
            sealing.open(stored, owner)
    plain = Sealing({}).seal(secrets, OWNER)
    assert Sealing({"one": key}).open(plain, OWNER) == secrets, "keys may be set later"


def test_a_rotation_keeps_what_overlaps() -> None:
    first = [Secret(b"1")]
    second = rotated(first, b"2", 100, 200)
    assert second == [Secret(b"2"), Secret(b"1", 200)]
    third = rotated(second, b"3", 150, 300)
    assert third == [Secret(b"3"), Secret(b"2", 300), Secret(b"1", 200)], "an overlap is never made longer"
    assert alive(third, 250) == third[:2]
    assert rotated(third, b"4", 250, 250) == [Secret(b"4")]


def test_signatures_are_those_of_standard_webhooks() -> None:
    """The example of the specification's libraries, and each secret signs."""
    key = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    body = b'{"test": 2432232314}'
    headers = signed_headers([Secret(key)], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    secrets = [Secret(bytes([number]) * 32) for number in range(3)]
    now = int(time.time())
    found = signed_headers(secrets, "msg_1", now, body)
    assert all(signed(shown(one.key), found, body) for one in secrets)
    assert not signed(shown(b"x" * 32), found, body)
    assert not signed(shown(secrets[0].key), found, body + b" ")


def test_message_ids_tell_places_apart() -> None:
    names = {message_id("t", "sub:1", 1, 2), message_id("t", "sub:1", 12), message_id("t", "sub:11", 2)}
    assert len(names) == 3
    assert message_id("t", 1) == message_id("t", "1")
    assert all("." not in name for name in names)
