"""Times, URIs and whole-string patterns as the contracts read them."""

from __future__ import annotations

import time

import pytest

from pamspec_common import contracts, instants
from pamspec_common.contracts.formats import compile_pattern, is_date_time, is_uri
from pamspec_common.ids import is_id

_TIMES = [
    "2026-03-02T08:15:00Z",
    "2026-03-02T08:15:00.123456Z",
    "2026-03-02T08:15:00.5+05:30",
    "2024-02-29T23:59:59-12:00",
    "0001-01-02T00:00:00Z",
]
_NO_TIMES = [
    "2026-03-02T08:15:00",
    "2026-03-02 08:15:00Z",
    "2026-03-02T08:15Z",
    "2026-03-02T08:15:00+0100",
    "2026-02-29T08:15:00Z",
    "2026-03-02T24:00:00Z",
    "2016-12-31T23:59:60Z",
    "0000-01-01T00:00:00Z",
    "2026-03-02T08:15:00.Z",
    "2026-03-02T08:15:00Z\n",
    "٢٠٢٦-03-02T08:15:00Z",
    "2026-03-02",
    "",
]


@pytest.mark.parametrize("text", _TIMES)
def test_a_time_is_accepted_and_can_be_parsed(text: str) -> None:
    assert is_date_time(text)
    assert instants.parse(text).tzinfo is not None


@pytest.mark.parametrize("text", _NO_TIMES)
def test_what_is_no_time_is_refused(text: str) -> None:
    assert not is_date_time(text)


@pytest.mark.parametrize(
    "text",
    [
        "urn:x",
        "https://example.org/a?b=c#d",
        "https://user@example.org:8080/%20",
        "mailto:a@example.org",
        "file:///etc/hosts",
        "http://[2001:db8::7]/",
    ],
)
def test_a_uri_is_accepted(text: str) -> None:
    assert is_uri(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "example",
        "/path",
        "urn:a b",
        "http://example.org/ü",
        "urn:x\n",
        "a:%zz",
        "1a:x",
        "a:b#c#d",
        "a:<b>",
        "a://b@c@d",
    ],
)
def test_what_is_no_uri_is_refused(text: str) -> None:
    assert not is_uri(text)


def test_long_texts_are_judged_in_linear_time() -> None:
    started = time.perf_counter()
    for text in ("http://" + "a:" * 500_000 + " ", "http://" + "@" * 1_000_000, "urn:" + "a" * 1_000_000 + "\n"):
        assert not is_uri(text)
        assert not is_date_time(text)
    assert time.perf_counter() - started < 5


def test_a_final_dollar_is_the_end_of_the_string() -> None:
    assert compile_pattern("^a$").search("a")
    assert not compile_pattern("^a$").search("a\n")
    assert compile_pattern(r"^a\$").search("a$b")
    assert compile_pattern("^a").search("a\n")


@pytest.mark.parametrize(
    "text", ["obj:1", "urn:uuid:0", "a:b/c", "A+.-:x", "obj:", ":x", "1a:x", "obj:ä", "obj:1\n", "obj: 1", "x"]
)
def test_the_schema_and_the_code_agree_on_identifiers(text: str) -> None:
    assert contracts.validator("common#/$defs/bounded_id").is_valid(text) == is_id(text)
