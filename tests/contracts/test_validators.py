"""The quick validator and the one that explains judge alike: every example, and what the two might read differently."""

from __future__ import annotations

from typing import Any

import pytest

from pamspec_common import contracts
from pamspec_common.contracts.validators import QuickValidator, quick_registry
from tests.contracts.test_examples import Examples, example_folder


def test_both_judge_every_example_alike(valid_examples: Examples, invalid_examples: Examples) -> None:
    names = {example_folder(identifier): identifier for identifier in contracts.schemas()}
    instances = [(schema, one) for (schema, _), one in valid_examples.items()]
    instances += [(schema, case["instance"]) for (schema, _), case in invalid_examples.items()]
    judged = [(names[schema], instance) for schema, instance in instances if schema in names]
    assert len(judged) > 500
    for name, instance in judged:
        assert _both(name, instance) in ((True, True), (False, False)), (name, instance)


@pytest.mark.parametrize(
    ("schema", "document"),
    [
        ({"pattern": "^[a-z]+$"}, "a\n"),
        ({"pattern": "^[a-z]+$"}, "a"),
        ({"pattern": r"^\d+$"}, "\u0661"),
        ({"maxLength": 1}, "\U0001f9e0"),
        ({"type": "integer"}, 1.0),
        ({"type": "integer"}, 10**1000),
        ({"type": "integer", "maximum": 5}, 10**1000),
        ({"const": 1}, True),
        ({"uniqueItems": True}, [1, True]),
        ({"format": "date-time"}, "2026-02-30T00:00:00Z"),
        ({"format": "date-time"}, "2016-12-31T23:59:60Z"),
        ({"format": "uri"}, "no scheme"),
        ({"type": "object"}, {1: 2}),
    ],
)
def test_a_document_that_breaks_a_rule_is_never_let_through(schema: dict[str, Any], document: Any) -> None:
    explaining = contracts.validator_of(schema)
    quick = QuickValidator(schema, quick_registry({}), explaining)
    assert quick.is_valid(document) or not explaining.is_valid(document)
    if not explaining.is_valid(document):
        assert not quick.is_valid(document)
        assert [one.validator for one in quick.iter_errors(document)]


def _both(name: str, instance: Any) -> tuple[bool, bool]:
    explaining = contracts.validator_of({"$ref": name})
    return contracts.validator(name).is_valid(instance), explaining.is_valid(instance)
