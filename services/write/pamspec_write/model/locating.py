"""Where content breaks a schema, found without the errors of the alternatives that a schema offers.

Invariant: finding one breach keeps one error, whatever the content is. The validator gathers, for an `anyOf` or
`oneOf` that fails, every error of every alternative; on a megabyte of content these are millions, gigabytes of memory.
Inside of `not` it only asks for yes or no, so alternatives stand behind two of them here.
"""

from __future__ import annotations

from typing import Any

_CHOICES = ("anyOf", "oneOf")
_LISTS = ("allOf", "prefixItems")
_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_SINGLE = (
    "not", "if", "then", "else", "additionalProperties", "propertyNames", "items", "contains",
)  # fmt: skip
_UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems")


def locating(schema: Any) -> Any:
    """A schema that fails at the same places by the same rules, and gathers nothing; `unevaluated...` is left out.

    A reference into an alternative would lead elsewhere, so such a schema becomes true: it locates nothing.
    """
    if not _offers_choices(schema):
        return schema
    return True if _refers_into_choices(schema) else _plain(schema)


def _offers_choices(schema: Any) -> bool:
    """Whether alternatives stand anywhere in a schema (what is data in it counts too)."""
    if isinstance(schema, list):
        return any(_offers_choices(one) for one in schema)
    return isinstance(schema, dict) and (
        any(name in schema for name in _CHOICES) or any(_offers_choices(one) for one in schema.values())
    )


def _refers_into_choices(schema: Any) -> bool:
    if isinstance(schema, list):
        return any(_refers_into_choices(one) for one in schema)
    if not isinstance(schema, dict):
        return False
    reference = schema.get("$ref")
    if isinstance(reference, str) and any(f"/{name}/" in reference for name in (*_CHOICES, *_UNEVALUATED)):
        return True
    return any(_refers_into_choices(one) for one in schema.values())


def _plain(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    made: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in _UNEVALUATED:
            continue
        if keyword in _CHOICES and isinstance(value, list):
            made[keyword] = [{"not": {"not": {keyword: [_plain(one) for one in value]}}}]
        elif keyword in _LISTS and isinstance(value, list):
            made[keyword] = [_plain(one) for one in value]
        elif keyword in _MAPS and isinstance(value, dict):
            made[keyword] = {name: _plain(one) for name, one in value.items()}
        else:
            made[keyword] = _plain(value) if keyword in _SINGLE else value
    return made
