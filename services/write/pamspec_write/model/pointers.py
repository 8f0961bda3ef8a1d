"""Content without the parts that JSON Pointers name.

Invariant: what is kept keeps its bytes. Names, numbers and texts are cut out of the client's JSON and never written
anew; all pointers are looked up in the content as it was, so that the order in which they are sent means nothing.

A member goes with its name, an element of an array goes and those behind it move up (as `remove` of RFC 6902). A
pointer below another one must name something too. One that names nothing refuses all: a typing error must not pass for
an erasure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from pamspec_common.errors import InvalidRequest
from pamspec_common.strict_json import compact

Pointer = tuple[str, ...]

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_INDEX = re.compile(r"(?:0|[1-9][0-9]{0,8})\Z")
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw])


@dataclass(slots=True)
class _Place:
    """A place in the content that pointers pass or name; `number` is that of the first pointer that needs it."""

    number: int
    named: bool = False
    below: dict[str, _Place] = field(default_factory=dict)


def pointer(text: str) -> Pointer | None:
    """The names of a JSON Pointer below the root (RFC 6901); None for what is none, and for the empty one."""
    if not text.startswith("/"):
        return None
    names = text.split("/")[1:]
    if any("~" in name.replace("~0", "").replace("~1", "") for name in names):
        return None
    return tuple(name.replace("~1", "/").replace("~0", "~") for name in names)


def without(content: bytes, pointers: Sequence[Pointer]) -> bytes:
    """The content without what the pointers name; InvalidRequest with the index of one that names nothing."""
    root = _Place(0)
    for number, names in enumerate(pointers):
        place = root
        for name in names:
            place = place.below.setdefault(name, _Place(number))
        place.named = True
    return _cut(compact(content), root)


def _cut(text: bytes, place: _Place) -> bytes:
    if text.startswith(b"{"):
        return b"{" + b",".join(_members(text, place)) + b"}"
    if text.startswith(b"["):
        return b"[" + b",".join(_elements(text, place)) + b"]"
    raise _nothing(next(iter(place.below.values())))


def _members(text: bytes, place: _Place) -> list[bytes]:
    members = _MEMBERS.decode(text)
    for name, below in place.below.items():
        if name not in members:
            raise _nothing(below)
    kept: list[bytes] = []
    start = 1
    for name, value in members.items():
        found = _STRING.match(text, start)
        assert found is not None
        colon = found.end()
        end = colon + 1 + memoryview(value).nbytes
        touched = place.below.get(name)
        left = text[colon + 1 : end] if touched is None else _below(text[colon + 1 : end], touched)
        if left is not None:
            kept.append(text[start : colon + 1] + left)
        start = end + 1
    return kept


def _elements(text: bytes, place: _Place) -> list[bytes]:
    elements = [bytes(value) for value in _ELEMENTS.decode(text)]
    wanted: dict[int, _Place] = {}
    for name, below in place.below.items():
        if not _INDEX.match(name) or int(name) >= len(elements):
            raise _nothing(below)
        wanted[int(name)] = below
    left = (_below(value, wanted[at]) if at in wanted else value for at, value in enumerate(elements))
    return [value for value in left if value is not None]


def _below(value: bytes, place: _Place) -> bytes | None:
    """What is left of a value, None where it is named itself; what is named below it must exist all the same."""
    left = _cut(value, place) if place.below else value
    return None if place.named else left


def _nothing(place: _Place) -> InvalidRequest:
    return InvalidRequest(
        f"redaction_target.paths[{place.number}] names nothing in the content of the expected version, so nothing was"
        " erased; read it, then name members that it has.",
        details={"field": "redaction_target.paths", "index": place.number, "reason": "no_such_path"},
    )
