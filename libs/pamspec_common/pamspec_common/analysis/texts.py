"""Texts of a canonical content: every string in it, in the order of the document. Names of members are no text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pamspec_common.strict_json import parse


def texts_of(content: bytes) -> list[str]:
    """The strings of a JSON document in their order; numbers and names of members are left out."""
    return list(_strings(parse(content)))


def _strings(document: Any) -> Iterator[str]:
    waiting = [document]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            waiting.extend(reversed(one.values()))
        elif isinstance(one, list):
            waiting.extend(reversed(one))
