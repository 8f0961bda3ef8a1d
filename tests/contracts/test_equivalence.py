"""Our schemas accept and refuse exactly what the draft's do: its own documents, and thousands of small changes to ours.

PAMSPEC_SPEC names the folder with the draft's schemas and documents. Where it is unset there is nothing to compare
with, and `test_examples.py` alone says what our schemas accept.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from jsonschema.protocols import Validator

from pamspec_common import contracts
from pamspec_common.contracts.validators import QuickValidator

Documents = dict[str, Any]
Examples = dict[tuple[str, str], Any]
Validators = dict[str, Validator]

# What a member is replaced with: each JSON type, borders of numbers, ids and times that are almost right.
_VALUES: list[Any] = [
    None,
    True,
    0,
    1,
    -1,
    1.5,
    1.0,
    "",
    "active",
    "no id",
    "urn:x",
    "urn:x\n",
    "com.example.thing",
    "com.example.thing\n",
    "2026-01-01T00:00:00Z",
    "2026-02-30T00:00:00Z",
    "2026-01-01T00:00:00",
    [],
    ["urn:x"],
    ["urn:x", "urn:x"],
    [1],
    {},
    {"kind": "hybrid"},
]
_UNKNOWN = "unknown_member"


def test_every_shared_schema_has_a_counterpart(reference_validators: Validators) -> None:
    assert {f"pamspec:schema:{name}" for name in reference_validators} <= set(contracts.schemas())


def test_the_drafts_documents_are_valid_by_ours(reference_valid: Documents, reference_validators: Validators) -> None:
    for name, document in reference_valid.items():
        theirs = {schema for schema, validator in reference_validators.items() if validator.is_valid(document)}
        assert theirs, name
        assert {schema for schema in reference_validators if _ours(schema).is_valid(document)} == theirs, name


def test_the_drafts_counterexamples_fail_by_ours(
    reference_invalid: Documents, reference_validators: Validators
) -> None:
    for name, case in reference_invalid.items():
        instance = case["instance"]
        if "schema" in case:
            schema = case["schema"].removesuffix(".schema.json")
            assert not reference_validators[schema].is_valid(instance), name
            assert not _ours(schema).is_valid(instance), name
        for schema, validator in reference_validators.items():
            assert _ours(schema).is_valid(instance) == validator.is_valid(instance), f"{name} by {schema}"


def test_small_changes_are_judged_alike(
    valid_examples: Examples, invalid_examples: Examples, reference_validators: Validators
) -> None:
    compared = 0
    for schema, validator in reference_validators.items():
        ours = _ours(schema)
        starts = [instance for (name, _), instance in valid_examples.items() if name == schema]
        starts += [case["instance"] for (name, _), case in invalid_examples.items() if name == schema]
        if schema == "error":
            starts = [instance["error"] for instance in starts if "error" in instance]
        largest = max(starts, key=lambda instance: len(str(instance)))
        for changed in [*starts, *_changes(largest)]:
            compared += 1
            assert ours.is_valid(changed) == validator.is_valid(changed), f"{schema}: {changed}"
    assert compared > 3000 or not reference_validators


def _ours(schema: str) -> QuickValidator:
    return contracts.validator("error#/$defs/error" if schema == "error" else schema)


def _changes(document: Any) -> Iterator[Any]:
    """The document with one member removed, added or replaced, at every place."""
    for path in _places(document):
        for value in _VALUES:
            yield _with(document, path, value)
        if path and isinstance(path[-1], str):
            yield _without(document, path)
        if isinstance(_at(document, path), dict):
            yield _with(document, (*path, _UNKNOWN), 1)


def _places(part: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    members: list[tuple[Any, Any]] = []
    if isinstance(part, dict):
        members = list(part.items())
    elif isinstance(part, list):
        members = list(enumerate(part))
    for key, value in members:
        yield from _places(value, (*path, key))


def _at(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        document = document[key]
    return document


def _with(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    changed = copy.deepcopy(document)
    _at(changed, path[:-1])[path[-1]] = value
    return changed


def _without(document: Any, path: tuple[Any, ...]) -> Any:
    changed = copy.deepcopy(document)
    del _at(changed, path[:-1])[path[-1]]
    return changed
