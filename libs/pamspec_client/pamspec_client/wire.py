"""JSON out and in without loss.

Integers of any size and floats travel as Python writes and reads them; what JSON cannot hold is refused before it is
sent. `RawJson` carries content that is JSON text already.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any


class RawJson:
    """JSON text as bytes, sent as it stands; number tokens keep their digits."""

    __slots__ = ("data",)

    def __init__(self, data: bytes | str) -> None:
        self.data = data.encode() if isinstance(data, str) else bytes(data)

    def __repr__(self) -> str:
        return f"RawJson({len(self.data)} bytes)"


def encode(document: Mapping[str, Any]) -> bytes:
    """The bytes of a request; members that are None are left out, except content.

    Raises ValueError for NaN, Infinity, circular or too deep values, TypeError for what is no JSON value.
    """
    members = (
        json.dumps(name).encode() + b":" + _value(value) for name, value in document.items() if _sent(name, value)
    )
    return b"{" + b",".join(members) + b"}"


def _sent(name: str, value: Any) -> bool:
    return value is not None or name in ("canonical_content", "target_canonical_content")


def _value(value: Any) -> bytes:
    if isinstance(value, RawJson):
        return value.data
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_time)
    except RecursionError:
        raise ValueError("the value nests too deep for JSON") from None
    _refuse_foreign_keys(value)
    # A lone surrogate has no UTF-8 form: it goes as its escape, and the service refuses it with a position.
    return text.encode() if text.isascii() else text.encode("utf-8", "backslashreplace")


def _time(value: object) -> str:
    if isinstance(value, datetime):
        return instant(value)
    raise TypeError(f"not a JSON value: {type(value).__name__}")


def _refuse_foreign_keys(value: Any) -> None:
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, Mapping):
            for key in item:
                if not isinstance(key, str):
                    raise TypeError(f"a member name must be a string, not {type(key).__name__}")
            pending.extend(item.values())
        elif isinstance(item, list | tuple):
            pending.extend(item)


def join(documents: list[bytes]) -> RawJson:
    """A JSON array of encoded documents."""
    return RawJson(b"[" + b",".join(documents) + b"]")


def instant(value: datetime) -> str:
    """RFC 3339 in UTC with microseconds; ValueError for a time without an offset."""
    if value.tzinfo is None:
        raise ValueError("a time needs an offset: use an aware datetime, for example datetime.now(UTC)")
    return value.astimezone(UTC).isoformat(timespec="microseconds")[:26] + "Z"


def uuid7() -> str:
    """A version 7 UUID in its text form (RFC 9562)."""
    stamp = (time.time_ns() // 1_000_000) & 0xFFFFFFFFFFFF
    random = int.from_bytes(os.urandom(10), "big")
    number = stamp << 80 | 0x7 << 76 | (random >> 68) << 64 | 0b10 << 62 | random & 0x3FFFFFFFFFFFFFFF
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
