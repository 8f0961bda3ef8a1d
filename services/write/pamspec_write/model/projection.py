"""The jsonb projection of content: the same value without what jsonb cannot hold."""

from __future__ import annotations

import re
from typing import Any

from pamspec_common.strict_json import LosslessFloat, canonical, parse

_NUL = b"\\u0000"
# What may have more digits behind the point than the 16,383 of numeric.
_TINY = re.compile(rb"-(?<=[eE]-)[0-9]{3}")
_LONG_FRACTION = re.compile(rb"\.[0-9]{15000}")
_DROP = object()


def projection(content: bytes, value: Any) -> str | None:
    """None when the content itself can be jsonb; else a text without strings that hold a NUL and without such names.

    `value` is the parsed content; numbers too small for numeric become the double that they round to.
    """
    if _fits(content):
        return None
    pruned = _prune(value)
    return "null" if pruned is _DROP else canonical(pruned).decode()


def carried_projection(content: bytes | None) -> str | None:
    """The projection of content that was stored before."""
    if content is None or _fits(content):
        return None
    return projection(content, parse(content))


def _fits(content: bytes) -> bool:
    """Whether jsonb can hold the content as it is."""
    if _NUL in content or _TINY.search(content):
        return False
    return len(content) < 15_000 or not _LONG_FRACTION.search(content)


def _prune(value: Any) -> Any:
    if isinstance(value, str):
        return _DROP if "\0" in value else value
    if isinstance(value, dict):
        kept = {name: _prune(below) for name, below in value.items() if "\0" not in name}
        return {name: below for name, below in kept.items() if below is not _DROP}
    if isinstance(value, list):
        return [None if below is _DROP else below for below in map(_prune, value)]
    if isinstance(value, LosslessFloat):
        return float(value)
    return value
