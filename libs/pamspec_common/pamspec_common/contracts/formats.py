"""The two places where JSON Schema leaves room: formats, and what `$` means in a pattern."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, cast

from jsonschema import FormatChecker
from jsonschema.exceptions import ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend
from referencing.jsonschema import DRAFT202012, SchemaResource

FORMATS = FormatChecker(formats=())

_DATE_TIME = re.compile(
    r"\d{4}-\d{2}-\d{2}[Tt]([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)", re.ASCII
)
_URI = re.compile(
    r"[A-Za-z][A-Za-z0-9+.\-]*:"
    r"(?://(?:(?:[A-Za-z0-9._~!$&'()*+,;=:\-]|%[0-9A-Fa-f]{2})*@)?"
    r"(?:\[[0-9A-Fa-f:.vV]+\]|(?:[A-Za-z0-9._~!$&'()*+,;=\-]|%[0-9A-Fa-f]{2})*)(?::\d*)?(?=[/?#]|\Z)|(?!//))"
    r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/\-]|%[0-9A-Fa-f]{2})*"
    r"(?:\?(?:[A-Za-z0-9._~!$&'()*+,;=:@/?\-]|%[0-9A-Fa-f]{2})*)?"
    r"(?:#(?:[A-Za-z0-9._~!$&'()*+,;=:@/?\-]|%[0-9A-Fa-f]{2})*)?",
    re.ASCII,
)


@FORMATS.checks("date-time")
def is_date_time(value: object) -> bool:
    """RFC 3339, years 1 to 9999; leap seconds are refused, since neither PostgreSQL nor Python can keep one."""
    if not isinstance(value, str):
        return True
    if _DATE_TIME.fullmatch(value) is None:
        return False
    try:
        datetime(int(value[:4]), int(value[5:7]), int(value[8:10]))
    except ValueError:
        return False
    return True


@FORMATS.checks("uri")
def is_uri(value: object) -> bool:
    """RFC 3986: a scheme, and no character that must be percent-encoded."""
    return not isinstance(value, str) or _URI.fullmatch(value) is not None


@FORMATS.checks("regex")
def is_regex(value: object) -> bool:
    """A pattern that can be compiled."""
    if not isinstance(value, str):
        return True
    try:
        re.compile(value)
    except re.error:
        return False
    return True


def with_whole_patterns(base: type[Validator]) -> type[Validator]:
    """The validator class in which a final `$` is the end of the string, not also the place before a last newline."""
    untyped = cast("Callable[..., type[Validator]]", extend)
    return untyped(base, {"pattern": _pattern})


def referenced(schema: Mapping[str, Any]) -> SchemaResource:
    """A schema to be referred to. Its `$schema` is left out: it would make a validator switch to the plain class."""
    return DRAFT202012.create_resource({key: value for key, value in schema.items() if key != "$schema"})


@lru_cache(maxsize=512)
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """A schema's pattern as Python understands it."""
    if pattern.endswith("$") and not pattern.endswith("\\$"):
        pattern = pattern[:-1] + r"\Z"
    return re.compile(pattern)


def _pattern(
    _validator: Validator, pattern: str, instance: object, _schema: Mapping[str, Any]
) -> Iterator[ValidationError]:
    if isinstance(instance, str) and compile_pattern(pattern).search(instance) is None:
        yield ValidationError(f"does not match {pattern!r}")
