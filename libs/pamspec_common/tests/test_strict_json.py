"""Strict JSON: what passes is RFC 8259 within the limits of S20, comes back as it was, and has one canonical form."""

from __future__ import annotations

import gc
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pamspec_common.errors import InvalidRequest
from pamspec_common.strict_json import MAX_DEPTH, MAX_INTEGER_DIGITS, LosslessFloat, canonical, compact, parse

texts = st.text(st.characters(blacklist_categories=["Cs"]))
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**40), 10**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=25,
)


def plain(value: Any) -> Any:
    """The value with ordinary floats."""
    if isinstance(value, LosslessFloat):
        return float(value)
    if isinstance(value, list):
        return [plain(below) for below in value]
    if isinstance(value, dict):
        return {name: plain(below) for name, below in value.items()}
    return value


@given(values, st.booleans(), st.sampled_from([None, 1, "\t"]))
def test_what_is_json_comes_back(value: Any, ascii_only: bool, indent: int | str | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()
    assert plain(parse(text)) == value
    assert compact(text) == json.dumps(value, ensure_ascii=ascii_only, separators=(",", ":")).encode()
    assert plain(parse(compact(text))) == value


@given(values)
def test_equal_values_have_equal_canonical_bytes(value: Any) -> None:
    one = json.dumps(value, sort_keys=False, ensure_ascii=True).encode()
    other = json.dumps(_reversed(value), ensure_ascii=False, indent=1).encode()
    assert canonical(parse(one)) == canonical(parse(other))
    assert plain(parse(canonical(parse(one)))) == value


def _reversed(value: Any) -> Any:
    """The same value with the members in another order."""
    if isinstance(value, dict):
        return {name: _reversed(below) for name, below in reversed(value.items())}
    if isinstance(value, list):
        return [_reversed(below) for below in value]
    return value


@given(values, values)
def test_other_values_have_other_canonical_bytes(one: Any, other: Any) -> None:
    texts = [json.dumps(value, sort_keys=True) for value in (one, other)]
    forms = [canonical(parse(text.encode())) for text in texts]
    assert (forms[0] == forms[1]) == (texts[0] == texts[1])


@given(st.binary(max_size=40))
def test_bytes_are_json_or_refused(data: bytes) -> None:
    """Whatever passes is what Python's own strict reading says it is; nothing else is ever raised."""
    try:
        value = parse(data)
    except InvalidRequest:
        return
    assert plain(value) == json.loads(data.decode())


@pytest.mark.parametrize(
    "number", ["1e308", "-1.7976931348623157e308", "1e-400", "0e999", "1" * 308, "9" * 1000, "-" + "9" * 1000]
)
def test_numbers_within_the_limits_keep_their_token(number: str) -> None:
    text = f'{{"n":{number}}}'.encode()
    assert canonical(parse(text)) == compact(text) == text


@pytest.mark.parametrize(
    "number",
    [
        "1e309",
        "-1e309",
        "1.8e308",
        "1e0400",
        "1E+400",
        "1" * 250 + "e99",
        "1" * 250 + ".5e60",
        "2" * 309 + ".0",
        "123e307",
        "9" * (MAX_INTEGER_DIGITS + 1),
        "9" * 4301,
        "1e99999999999999999999",
    ],
)
@pytest.mark.parametrize("form", ["{}", '{{"a":[{}]}}', "[1,{}]"])
def test_numbers_beyond_a_double_and_integers_beyond_a_thousand_digits_are_refused(number: str, form: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse(form.format(number).encode())
    assert number[:50] not in refused.value.message


@given(st.integers(1, 320), st.integers(0, 400), st.booleans())
def test_the_border_of_doubles_is_the_same_in_every_spelling(digits: int, exponent: int, negative: bool) -> None:
    number = ("-" if negative else "") + "7" * digits + f".0e{exponent}"
    if abs(float(number)) == float("inf"):
        with pytest.raises(InvalidRequest):
            parse(number.encode())
    else:
        assert canonical(parse(number.encode())) == number.encode()


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_nesting_is_bounded(opening: bytes, closing: bytes) -> None:
    within = opening * (MAX_DEPTH - 1) + b"[]" + closing * (MAX_DEPTH - 1)
    assert compact(within) == within
    parse(within)
    for depth in (MAX_DEPTH, 190, 5000, 1_000_000):
        with pytest.raises(InvalidRequest, match="128"):
            parse(opening * depth + b"[]" + closing * depth)
    with pytest.raises(InvalidRequest):
        parse(opening * 1_000_000)


def test_many_brackets_side_by_side_are_not_deep() -> None:
    assert len(parse(b"[" + b"[],{}," * 10_000 + b"[]]")) == 20_001
    assert parse(b'"' + b"[" * 1000 + b'"') == "[" * 1000


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":1,"a":1}',
        b'{"a":1,"\\u0061":2}',
        b'[{"x":{"b":1,"b":2}}]',
        b'{"":1,"":2}',
        b'{"a\\u0000":1,"a\\u0000":2}',
    ],
)
def test_no_member_stands_twice(text: bytes) -> None:
    with pytest.raises(InvalidRequest, match="twice"):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b" ",
        b"NaN",
        b"-Infinity",
        b"Infinity",
        b"nan",
        b"01",
        b"+1",
        b"1.",
        b".5",
        b"0x1",
        b"1_0",
        b"'a'",
        b"{a:1}",
        b"[1,]",
        b'{"a":1,}',
        b"[1 2]",
        b"1 2",
        b"//",
        b"\xef\xbb\xbf1",
        b"\x00",
        b'"a',
        b'"\n"',
        b'"\x1f"',
        b'"\\x"',
        b'"\\u12"',
        b'"\\ud800"',
        b'"\\ud800\\ud800"',
        b'"\\udc00"',
        b'"\xc3"',
        b'"\xed\xa0\x80"',
        b'"\xf8\x88\x80\x80\x80"',
    ],
)
def test_what_is_no_json(text: bytes) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse(text)
    assert "strict JSON" in refused.value.message


def test_a_refusal_names_the_place_and_not_the_text() -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse(b'{"secret": "SECRET-123",\n "secret": SECRET-456}')
    assert "line 2" in refused.value.message
    assert "SECRET" not in refused.value.message
    assert refused.value.details == {}


def test_nothing_else_has_a_canonical_form() -> None:
    with pytest.raises(TypeError):
        canonical({"a": object()})


@pytest.mark.parametrize("ending", ["", "x"])
def test_a_large_text_is_parsed_without_the_garbage_collector(ending: str) -> None:
    """It would walk through the growing value again and again, while nobody else is served."""
    text = ("[" + "[]," * 300_000 + "1]" + ending).encode()
    walks: list[str] = []

    def walked(phase: str, _: dict[str, int]) -> None:
        walks.append(phase)

    gc.collect()
    gc.callbacks.append(walked)
    try:
        parse(text)
    except InvalidRequest:
        assert ending
    finally:
        gc.callbacks.remove(walked)
    assert walks.count("start") <= 3
    assert gc.isenabled()


def test_brackets_and_numbers_in_strings_count_for_nothing() -> None:
    text = json.dumps({"[{" * MAX_DEPTH: [']}\\"' * 200, '"' + "[" * 300, "1e999", "1" * 2000, "\\"]}).encode()
    assert parse(text) == json.loads(text)
    with pytest.raises(InvalidRequest):
        parse(b'["\\"", ' + b"[" * MAX_DEPTH + b'"]"' + b"]" * MAX_DEPTH + b"]")
    with pytest.raises(InvalidRequest):
        parse(b'{"1e999": "\\\\", "b": 1e999}')
