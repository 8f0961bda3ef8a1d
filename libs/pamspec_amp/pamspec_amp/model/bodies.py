"""Bodies and parameters of requests, held against their forms; refusals name places and rules, never values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from jsonschema.protocols import Validator

from pamspec_amp.model import schemas
from pamspec_amp.model.errors import Invalid, invalid
from pamspec_amp.model.schemas import MAX_OFFSET, MAX_PAGE, STATUSES, TYPES
from pamspec_common import contracts, strict_json
from pamspec_common.errors import InvalidRequest

MOST_ERRORS = 20
Query = Mapping[str, Sequence[str]]

_FORMS = {"create": schemas.CREATE, "patch": schemas.PATCH, "search": schemas.SEARCH}


def checked(body: bytes, form: str) -> dict[str, Any]:
    """The document of a body that keeps its form; numbers of metadata as they were written. Invalid."""
    try:
        document = strict_json.parse(body)
    except InvalidRequest as error:
        raise Invalid([{"field": "$", "rule": "json"}], error.message) from None
    plain = strict_json.loads(body)
    errors = [
        {"field": error.json_path, "rule": str(error.validator)}
        for _, error in zip(range(MOST_ERRORS), _validator(form).iter_errors(plain), strict=False)
    ]
    if errors:
        raise Invalid(errors)
    assert isinstance(document, dict)
    return document


@cache
def _validator(form: str) -> Validator:
    return contracts.validator_of(_FORMS[form])


def page_of(query: Query) -> tuple[int, int]:
    """The limit and offset of a listing (A17)."""
    return _number(query, "limit", 20, 1, MAX_PAGE), _number(query, "offset", 0, 0, MAX_OFFSET)


def _number(query: Query, name: str, default: int, least: int, most: int) -> int:
    text = one_of(query, name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise invalid(name, "integer")
    number = int(text)
    if not least <= number <= most:
        raise invalid(name, "minimum" if number < least else "maximum")
    return number


def one_of(query: Query, name: str) -> str | None:
    """A parameter; None where it is missing. Invalid where it stands twice."""
    values = query.get(name, ())
    if len(values) > 1:
        raise invalid(name, "once")
    return values[0] if values else None


def owner_of(query: Query) -> str | None:
    """The owner that a listing is about."""
    owner = one_of(query, "owner_id")
    if owner is not None and (not owner or "\0" in owner or len(owner) > 255):
        raise invalid("owner_id", "form")
    return owner


def type_of(query: Query) -> str | None:
    """The type that a listing is about."""
    return _chosen(query, "type", TYPES)


def status_of(query: Query) -> str:
    """The status that a listing is about."""
    return _chosen(query, "status", STATUSES) or "active"


def _chosen(query: Query, name: str, known: Sequence[str]) -> str | None:
    value = one_of(query, name)
    if value is not None and value not in known:
        raise invalid(name, "enum")
    return value
