"""What JSON Pointers cut out of content, and that everything else keeps its bytes."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pamspec_common.errors import InvalidRequest
from pamspec_common.strict_json import MAX_DEPTH
from pamspec_write.model.pointers import Pointer, pointer, without

CONTENT = rb'{"a":1.50E+02,"b":{"c":[10,"\u00e9\/x",{"d":-0.0}],"":null},"e/f":1,"g~h":2,"i~1j":3,"\u006b":4,"01":[]}'


def cut(content: bytes, *texts: str) -> bytes:
    """The content without what these pointers name."""
    found = [pointer(text) for text in texts]
    assert None not in found
    return without(content, [one for one in found if one is not None])


@pytest.mark.parametrize(
    ("paths", "left"),
    [
        (["/a"], rb'{"b":{"c":[10,"\u00e9\/x",{"d":-0.0}],"":null},"e/f":1,"g~h":2,"i~1j":3,"\u006b":4,"01":[]}'),
        (["/b"], rb'{"a":1.50E+02,"e/f":1,"g~h":2,"i~1j":3,"\u006b":4,"01":[]}'),
        (
            ["/b/c/0", "/e~1f"],
            rb'{"a":1.50E+02,"b":{"c":["\u00e9\/x",{"d":-0.0}],"":null},"g~h":2,"i~1j":3,"\u006b":4,"01":[]}',
        ),
        (
            ["/b/c/2/d"],
            rb'{"a":1.50E+02,"b":{"c":[10,"\u00e9\/x",{}],"":null},"e/f":1,"g~h":2,"i~1j":3,"\u006b":4,"01":[]}',
        ),
        (["/b/"], rb'{"a":1.50E+02,"b":{"c":[10,"\u00e9\/x",{"d":-0.0}]},"e/f":1,"g~h":2,"i~1j":3,"\u006b":4,"01":[]}'),
        (["/g~0h", "/i~01j", "/k", "/01"], rb'{"a":1.50E+02,"b":{"c":[10,"\u00e9\/x",{"d":-0.0}],"":null},"e/f":1}'),
        (["/b/c/1", "/b", "/b/c/1", "/b"], rb'{"a":1.50E+02,"e/f":1,"g~h":2,"i~1j":3,"\u006b":4,"01":[]}'),
        (
            ["/b/c/0", "/b/c/1", "/b/c/2", "/b/"],
            rb'{"a":1.50E+02,"b":{"c":[]},"e/f":1,"g~h":2,"i~1j":3,"\u006b":4,"01":[]}',
        ),
        (["/a", "/b", "/e~1f", "/g~0h", "/i~01j", "/k", "/01"], b"{}"),
    ],
)
def test_what_is_named_goes_and_the_rest_keeps_its_bytes(paths: list[str], left: bytes) -> None:
    assert cut(CONTENT, *paths) == left
    assert cut(CONTENT, *reversed(paths)) == left


@pytest.mark.parametrize(
    "path",
    [
        "/x",
        "/A",
        "/a/b",
        "/b/c/3",
        "/b/c/-",
        "/b/c/01",
        "/b/c/+1",
        "/b/c/1.0",
        "/b/c/0/x",
        "/b/c/99999999999",
        "/b//x",
        "/",
    ],
)
def test_what_names_nothing_refuses_all(path: str) -> None:
    """Below a number, beyond an array, the element after the last, an index with a leading zero, a missing name."""
    with pytest.raises(InvalidRequest) as refused:
        cut(CONTENT, "/b", "/b/c", path)
    assert refused.value.details == {"field": "redaction_target.paths", "index": 2, "reason": "no_such_path"}
    assert path not in refused.value.message or path == "/"


@pytest.mark.parametrize("content", [b"1", b'"text"', b"null", b"true", b"[]", b"{}"])
def test_what_has_no_parts_has_none_to_cut(content: bytes) -> None:
    with pytest.raises(InvalidRequest):
        cut(content, "/0")


@pytest.mark.parametrize("text", ["", "a", "a/b", "#/a", "/a~", "/~2", "/a~b/c", "/~", " /a"])
def test_what_is_no_pointer_to_a_part(text: str) -> None:
    assert pointer(text) is None


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("/", ("",)),
        ("//", ("", "")),
        ("/~01", ("~1",)),
        ("/~10", ("/0",)),
        ("/a~1b~0c/0", ("a/b~c", "0")),
        ("/\0", ("\0",)),
    ],
)
def test_the_names_of_a_pointer(text: str, names: Pointer) -> None:
    assert pointer(text) == names


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=20,
)


def _places(value: Any, names: Pointer = ()) -> list[Pointer]:
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for step, below in steps for place in [(*names, str(step)), *_places(below, (*names, str(step)))]]


def _model(value: Any, gone: set[Pointer], names: Pointer = ()) -> Any:
    """The same by taking a parsed value apart."""
    if isinstance(value, dict):
        return {n: _model(v, gone, (*names, n)) for n, v in value.items() if (*names, n) not in gone}
    if isinstance(value, list):
        kept = ((str(n), v) for n, v in enumerate(value) if (*names, str(n)) not in gone)
        return [_model(v, gone, (*names, n)) for n, v in kept]
    return value


@given(value=JSON, data=st.data(), escaped=st.booleans(), spaced=st.booleans())
def test_any_content_and_any_places(value: Any, data: st.DataObject, escaped: bool, spaced: bool) -> None:
    places = _places(value)
    if not places:
        return
    gone = data.draw(st.lists(st.sampled_from(places), min_size=1, max_size=5))
    content = json.dumps(value, ensure_ascii=escaped, separators=None if spaced else (",", ":")).encode()
    left = without(content, gone)
    assert left == json.dumps(_model(value, set(gone)), ensure_ascii=escaped, separators=(",", ":")).encode()


def test_the_deepest_and_the_largest_content_in_little_time() -> None:
    """Under the scope's lock everybody waits for it."""
    deep = b'{"a":' * (MAX_DEPTH - 1) + b'[1,"%s"]' % (b"x" * 2**19) + b"}" * (MAX_DEPTH - 1)
    began = time.perf_counter()
    left = without(deep, [("a",) * (MAX_DEPTH - 1) + ("1",)])
    assert left == b'{"a":' * (MAX_DEPTH - 1) + b"[1]" + b"}" * (MAX_DEPTH - 1)
    wide = json.dumps({f"name-{n}": n for n in range(50_000)}, separators=(",", ":")).encode()
    assert len(json.loads(without(wide, [(f"name-{n}",) for n in range(0, 50_000, 50)]))) == 49_000
    assert time.perf_counter() - began < 20
