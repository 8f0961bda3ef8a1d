"""A change that breaks somebody is found and says who is deployed first; a harmless one passes."""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pamspec_cli.contracts.compatibility import READERS, SERVERS, breaks
from pamspec_cli.contracts.landed import accepted_changes, bundle_of, landed

Bundle = dict[str, Any]


@pytest.fixture(scope="module")
def bundle(root: Path) -> Bundle:
    """The contracts of the checkout."""
    found = bundle_of(root, None)
    assert found is not None
    return found


def _schema(bundle: Bundle, id_: str) -> Any:
    return bundle["schemas"][f"pamspec:{id_}"]


def _drop_operation(bundle: Bundle) -> None:
    del bundle["operations"]["operations"]["read"]


def _other_status(bundle: Bundle) -> None:
    bundle["operations"]["operations"]["create"]["status"] = 200


def _drop_door(bundle: Bundle) -> None:
    bundle["operations"]["operations"]["read"]["conveniences"] = []


def _drop_error(bundle: Bundle) -> None:
    del bundle["errors"]["errors"]["legal_hold"]


def _drop_event(bundle: Bundle) -> None:
    del bundle["events"]["events"]["tool_invoked"]


def _drop_stream(bundle: Bundle) -> None:
    bundle["streams"]["streams"].clear()


def _require(bundle: Bundle) -> None:
    _schema(bundle, "operation:create:request")["required"].append("schema_id")


def _forget_member(bundle: Bundle) -> None:
    del _schema(bundle, "operation:query:request")["properties"]["fields"]


def _shorten(bundle: Bundle) -> None:
    _schema(bundle, "operation:batch:request")["properties"]["items"]["maxItems"] = 10


def _promise_less(bundle: Bundle) -> None:
    _schema(bundle, "operation:query:answer")["required"].remove("next_cursor")


def _drop_answer(bundle: Bundle) -> None:
    del _schema(bundle, "operation:query:answer")["properties"]["next_cursor"]


def _tell_more_on_the_bus(bundle: Bundle) -> None:
    _schema(bundle, "schema:memory-event")["properties"]["mood"] = {"type": "string"}


BREAKING: list[tuple[Callable[[Bundle], None], str, str]] = [
    (_drop_operation, "operations/read: is gone", READERS),
    (_other_status, "operations/create: answers 200 instead of 201", READERS),
    (_drop_door, "operations/read: the door GET /v1/objects is gone", READERS),
    (_drop_error, "errors/legal_hold: is gone", READERS),
    (_drop_event, "events/tool_invoked: is gone", READERS),
    (_drop_stream, "is gone", READERS),
    (_require, "operation:create:request: schema_id is required now", SERVERS),
    (_forget_member, "operation:query:request: fields is not taken any more", SERVERS),
    (_shorten, "operation:batch:request: items has a narrower maxItems", SERVERS),
    (_promise_less, "operation:query:answer: next_cursor is not always there any more", READERS),
    (_drop_answer, "operation:query:answer: next_cursor is gone", READERS),
    (_tell_more_on_the_bus, "schema:memory-event: mood is not taken any more", READERS),
]


@pytest.mark.parametrize(("change", "said", "first"), BREAKING, ids=[case[0].__name__ for case in BREAKING])
def test_what_breaks_somebody_is_found(bundle: Bundle, change: Callable[[Bundle], None], said: str, first: str) -> None:
    changed = copy.deepcopy(bundle)
    change(changed)
    found = breaks(bundle, changed)
    assert any(said in str(one) and one.first == first for one in found), [str(one) for one in found]


def _new_operation(bundle: Bundle) -> None:
    operations = bundle["operations"]["operations"]
    operations["look"] = operations["read"]


def _new_member(bundle: Bundle) -> None:
    _schema(bundle, "operation:query:request")["properties"]["mood"] = {"type": "string"}


def _answer_more(bundle: Bundle) -> None:
    _schema(bundle, "operation:query:answer")["properties"]["mood"] = {"type": "string"}


def _take_more(bundle: Bundle) -> None:
    _schema(bundle, "operation:batch:request")["properties"]["items"]["maxItems"] = 10_000


@pytest.mark.parametrize("change", [_new_operation, _new_member, _answer_more, _take_more])
def test_what_breaks_nobody_passes(bundle: Bundle, change: Callable[[Bundle], None]) -> None:
    assert breaks(bundle, bundle) == []
    changed = copy.deepcopy(bundle)
    change(changed)
    assert breaks(bundle, changed) == []


def test_the_landed_version_is_read_from_the_history(tmp_path: Path) -> None:
    path = tmp_path / "libs/pamspec_common/pamspec_common/contracts/bundle.json"
    path.parent.mkdir(parents=True)
    assert landed(tmp_path) is None
    _git(tmp_path, "init", "-q")
    for number in (1, 2):
        path.write_text(json.dumps({"number": number}))
        _git(tmp_path, "add", "-A")
        _git(tmp_path, "-c", "user.name=n", "-c", "user.email=e@example.org", "commit", "-qm", "c")
    assert landed(tmp_path) == "HEAD~1"
    assert bundle_of(tmp_path, "HEAD~1") == {"number": 1}
    path.write_text(json.dumps({"number": 3}))
    assert landed(tmp_path) == "HEAD"
    assert (bundle_of(tmp_path, "HEAD"), bundle_of(tmp_path, None)) == ({"number": 2}, {"number": 3})
    assert bundle_of(tmp_path, "no-such-commit") is None


def _git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True)


def test_an_accepted_change_says_why(tmp_path: Path) -> None:
    path = tmp_path / "contracts" / "accepted-changes.yaml"
    path.parent.mkdir()
    path.write_text("version: 1\naccepted:\n  - {change: 'a: is gone', why: 'nobody used it'}\n")
    assert accepted_changes(tmp_path) == {"a: is gone"}
    path.write_text("version: 1\naccepted:\n  - {change: 'a: is gone', why: ''}\n")
    with pytest.raises(ValueError, match="why"):
        accepted_changes(tmp_path)
