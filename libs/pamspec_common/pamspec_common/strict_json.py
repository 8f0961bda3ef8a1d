"""Strict JSON in, compact JSON out, with every number token kept as it was written.

Invariant: what passes `parse` has no duplicate member names, no NaN or Infinity, no lone surrogates, no float outside
the range of a double, no integer of more than 1,000 digits, and nests at most 128 deep (S20). Nothing here reports
the offending text, only its position.
"""

from __future__ import annotations

import gc
import re
from array import array
from itertools import accumulate
from typing import Any

import jiter
import msgspec
import orjson

from pamspec_common.errors import InvalidRequest

MAX_DEPTH = 128
MAX_INTEGER_DIGITS = 1000

_POSITION = re.compile(r"line (\d+) column (\d+)")
# One first character for both alternatives: the search then skips what is no digit, seven times as fast.
_EXTREME_NUMBER = re.compile(rb"[0-9](?:[eE][+\-]?[0-9]{3}|[0-9]{199})")
_KINDS = {
    "Detected duplicate key": "a member name stands twice in one object",
    "recursion limit": f"it nests deeper than {MAX_DEPTH} levels",
    "number out of range": f"an integer has more than {MAX_INTEGER_DIGITS} digits",
}

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_EXTREME_TOKEN = re.compile(
    rb"(?<![0-9.])(?:[0-9]++(?:\.[0-9]++)?[eE][+\-]?[0-9]{3,}+|[0-9]{200,}+(?:\.[0-9]++)?(?:[eE][+\-]?[0-9]++)?)"
)
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NO_BRACKET = bytes(byte for byte in range(256) if byte not in b"[]{}")
_COLLECTED_BYTES = 64 * 1024
"""Texts up to this length are parsed with the garbage collector on."""

LosslessFloat = jiter.LosslessFloat


def parse(data: bytes) -> Any:
    """The value of a JSON text; floats come as `LosslessFloat`, which keeps the token.

    Raises InvalidRequest, naming the position but never the text.
    """
    try:
        value = _value(data)
    except ValueError as error:
        raise _refused(str(error)) from None
    deep = data.count(b"[") + data.count(b"{") > MAX_DEPTH
    extreme = _EXTREME_NUMBER.search(data) is not None
    if deep or extreme:
        outside = _STRING.sub(b"", data)
        if deep:
            _check_depth(outside)
        if extreme:
            _check_numbers(outside)
    return value


def _value(data: bytes) -> Any:
    """The parsed text. A large one is parsed without the garbage collector, which would walk through the growing value
    again and again: ten times the work, during which nobody else is served. JSON makes no cycles.
    """
    pause = len(data) > _COLLECTED_BYTES and gc.isenabled()
    if pause:
        gc.disable()
    try:
        return jiter.from_json(
            data, allow_inf_nan=False, catch_duplicate_keys=True, float_mode="lossless-float", cache_mode="keys"
        )
    finally:
        if pause:
            gc.enable()


def _refused(reason: str) -> InvalidRequest:
    where = _POSITION.search(reason)
    place = f" at line {where[1]} column {where[2]}" if where else ""
    said = next((text for mark, text in _KINDS.items() if mark in reason), None)
    if said is None:
        said = "it ends too early" if reason.startswith("EOF") else "a character or escape does not belong there"
    return InvalidRequest(f"The body is not strict JSON: {said}{place}. Send one RFC 8259 document.")


def _check_depth(outside: bytes) -> None:
    """`outside` is a JSON text without its strings."""
    steps = array("b", outside.translate(_STEPS, _NO_BRACKET))
    if max(accumulate(steps), default=0) > MAX_DEPTH:
        raise InvalidRequest(f"JSON nests deeper than {MAX_DEPTH} levels; flatten it.", details={"limit": MAX_DEPTH})


def _check_numbers(outside: bytes) -> None:
    """`outside` is a JSON text without its strings."""
    for found in _EXTREME_TOKEN.finditer(outside):
        token = found[0]
        if not token.isdigit():
            if float(token) == float("inf"):
                raise InvalidRequest("A number lies outside the range of a double; send it as a string.")
        elif len(token) > MAX_INTEGER_DIGITS:
            raise InvalidRequest(
                f"An integer has more than {MAX_INTEGER_DIGITS} digits; send it as a string.",
                details={"limit": MAX_INTEGER_DIGITS},
            )


def compact(raw: bytes | msgspec.Raw) -> bytes:
    """The same JSON text without white space between tokens; number and string tokens are untouched."""
    return msgspec.json.format(bytes(raw), indent=-1)


def _fragment(value: Any) -> Any:
    if isinstance(value, LosslessFloat):
        return orjson.Fragment(bytes(value))
    raise TypeError(f"not a JSON value: {type(value).__name__}")


def canonical(value: Any) -> bytes:
    """Compact JSON with sorted member names and number tokens as parsed: equal values give equal bytes."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS, default=_fragment)
    except TypeError:
        return _canonical_slow(value)


def _canonical_slow(value: Any) -> bytes:
    """For integers beyond 64 bits, which orjson refuses."""
    if isinstance(value, dict):
        inner = b",".join(orjson.dumps(k) + b":" + _canonical_slow(value[k]) for k in sorted(value))
        return b"{" + inner + b"}"
    if isinstance(value, list):
        return b"[" + b",".join(map(_canonical_slow, value)) + b"]"
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value).encode()
    return orjson.dumps(value, default=_fragment)


def dumps(value: Any) -> bytes:
    """Compact JSON with sorted member names of a document of our own; on ASCII keys without floats this is RFC 8785."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


Fragment = orjson.Fragment
loads = orjson.loads
