"""Every schema has examples that keep it and counterexamples that break it, each for the reason that it names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from jsonschema.exceptions import ValidationError

from pamspec_common import contracts

# These hold parts of others, or have their own tests as catalogues.
_PARTS = {"common", "request", "answer", "event-payload"}
_CATALOGUES = {"streams", "events", "operations", "errors"}

Examples = dict[tuple[str, str], Any]


def test_valid_examples_are_valid(valid_examples: Examples) -> None:
    for (schema, name), instance in valid_examples.items():
        found = broken_rules(schema, instance)
        assert not found, f"{schema}/{name} breaks {found}"


def test_invalid_examples_break_the_rule_that_they_name(invalid_examples: Examples) -> None:
    for (schema, name), case in invalid_examples.items():
        assert case.keys() == {"why", "rule", "instance"}, f"{schema}/{name}"
        found = broken_rules(schema, case["instance"])
        assert case["rule"] in found, f"{schema}/{name} breaks {found or 'nothing'}"


def test_every_schema_has_both_and_none_is_an_orphan(valid_examples: Examples, invalid_examples: Examples) -> None:
    expected = {example_folder(identifier) for identifier in contracts.schemas()} - _PARTS - _CATALOGUES | {"event"}
    assert {schema for schema, _ in valid_examples} == expected
    assert {schema for schema, _ in invalid_examples} == expected


def test_every_event_type_has_an_example_that_keeps_its_whole_contract(valid_examples: Examples) -> None:
    seen = set()
    for (schema, _), instance in valid_examples.items():
        if schema == "event":
            contracts.check_event(instance)
            seen.add(instance["event_type"])
    assert seen == set(contracts.events())


def test_check_event_refuses_every_counterexample(invalid_examples: Examples) -> None:
    for (schema, _), case in invalid_examples.items():
        if schema == "event":
            with pytest.raises(contracts.ContractViolation):
                contracts.check_event(case["instance"])


def test_a_violation_names_place_and_rule_but_not_the_value(valid_examples: Examples) -> None:
    claim = valid_examples["memory-object", "claim"] | {"retention_state": "my secret"}
    with pytest.raises(contracts.ContractViolation, match=r"memory-object: retention_state breaks enum") as caught:
        contracts.check("memory-object", claim)
    assert "my secret" not in str(caught.value)


def broken_rules(schema: str, instance: Any) -> set[str]:
    if schema != "event":
        return _keywords(contracts.validator(identifier_of(schema)).iter_errors(instance))
    name = instance["event_type"]
    found = _keywords(contracts.validator("memory-event").iter_errors(instance))
    found |= _keywords(contracts.validator(f"event-payload#/$defs/{name}").iter_errors(instance["payload"]))
    broken = contracts.events()[name].broken_presence(instance)
    return found if broken is None else found | {"version" if broken.startswith("version_id") else "subject"}


def example_folder(identifier: str) -> str:
    return ".".join(identifier.split(":")[2:])


def identifier_of(folder: str) -> str:
    operation, _, kind = folder.rpartition(".")
    return f"pamspec:operation:{operation}:{kind}" if operation else f"pamspec:schema:{folder}"


def _keywords(errors: Iterable[ValidationError]) -> set[str]:
    found: set[str] = set()
    for error in errors:
        found |= {str(error.validator)} | _keywords(error.context or [])
    return found
