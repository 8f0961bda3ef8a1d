"""A validator that answers quickly for documents that keep their schema, and explains those that do not.

jsonschema-rs decides and jsonschema names the places. A document that the first cannot take, and one that it refuses,
is the second's alone to judge; `tests/contracts/test_validators.py` holds the two against each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jsonschema_rs
from jsonschema.exceptions import ValidationError
from jsonschema.protocols import Validator

from pamspec_common.contracts.formats import is_date_time, is_regex, is_uri

_FORMATS = {"date-time": is_date_time, "uri": is_uri, "regex": is_regex}


def quick_registry(schemas: Mapping[str, Mapping[str, Any]]) -> jsonschema_rs.Registry:
    """Schemas by $id, for QuickValidator."""
    plain = {name: {key: part for key, part in one.items() if key != "$schema"} for name, one in schemas.items()}
    return jsonschema_rs.Registry(list(plain.items()), draft=jsonschema_rs.Draft202012)


class QuickValidator:
    """Holds documents against one schema, by the rules of `explaining`."""

    def __init__(self, schema: Mapping[str, Any], registry: jsonschema_rs.Registry, explaining: Validator) -> None:
        self._quick = jsonschema_rs.Draft202012Validator(
            dict(schema), registry=registry, formats=_FORMATS, validate_formats=True
        )
        self._explaining = explaining

    def is_valid(self, document: Any) -> bool:
        """Whether it keeps the schema."""
        return next(iter(self.iter_errors(document)), None) is None

    def iter_errors(self, document: Any) -> Iterator[ValidationError]:
        """What breaks the schema, place by place; nothing for a document that keeps it."""
        return iter(()) if self._keeps(document) else iter(self._broken(document))

    def validate(self, document: Any) -> None:
        """Raise ValidationError, the first, unless the document keeps the schema."""
        for error in self.iter_errors(document):
            raise error

    def _keeps(self, document: Any) -> bool:
        try:
            return bool(self._quick.is_valid(document))
        except (TypeError, ValueError, OverflowError):
            return False

    def _broken(self, document: Any) -> Iterable[ValidationError]:
        return self._explaining.iter_errors(document)
