"""Content against its schema: those of the standard types, and those that a scope has registered.

Invariant: a refusal names the place and the rule, never a value, nor a member's name that the schema does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import jiter
import jsonschema_rs

from pamspec_common import contracts
from pamspec_common.contracts.formats import is_date_time, is_uri
from pamspec_common.errors import InvalidRequest
from pamspec_common.strict_json import canonical
from pamspec_write.model.locating import locating
from pamspec_write.model.schema_bounds import check_bounds

MAX_SCHEMA_BYTES = 64 * 1024
CONTENT_TYPES = ("tool_invocation", "tool_result", "working_memory")
"""The standard types whose content has a form (P61, P62, P64)."""

_FORMATS = {"date-time": is_date_time, "uri": is_uri, "regex": lambda _: True}
# The engine is linear in the text; the limits bound what a pattern takes when it is compiled.
_PATTERNS = jsonschema_rs.RegexOptions(size_limit=256 * 1024, dfa_size_limit=1024 * 1024)
_SHOWN = 255


class Breach(NamedTuple):
    """Where content breaks its schema (a JSON Pointer), and which keyword.

    The rule `schema` at the root says that one breach could not be told from another at a bounded cost.
    """

    pointer: str
    rule: str


class ContentSchema:
    """A compiled schema of content."""

    __slots__ = ("_known", "_locator", "_validator", "schema_id")

    def __init__(
        self, schema_id: str, document: Mapping[str, Any] | bool, registry: jsonschema_rs.Registry | None = None
    ) -> None:
        """ValueError for a document that is no schema, or whose patterns the engine does not take."""
        self.schema_id = schema_id
        self._known = frozenset(_member_names(document))
        whole = document if isinstance(document, bool) else dict(document)
        try:
            self._validator = _compiled(whole, registry)
            where = locating(whole)
            self._locator = self._validator if where is whole else _compiled(where, registry)
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as problem:
            raise ValueError(_place_of(problem)) from None

    def breach(self, content: bytes) -> Breach | None:
        """What is wrong with a content (compact JSON), or None."""
        value = jiter.from_json(content, allow_inf_nan=False, float_mode="float")
        if self._validator.is_valid(value):
            return None
        try:
            self._locator.validate(value)
        except jsonschema_rs.ValidationError as problem:
            error = problem
        else:
            return Breach("", "schema")
        pointer = "".join(f"/{self._shown(step)}" for step in error.instance_path)[:_SHOWN]
        return Breach(pointer, error.kind.name)

    def _shown(self, step: str | int) -> str:
        """A step of a pointer; a name that only the content knows stays hidden."""
        if isinstance(step, int):
            return str(step)
        return step.replace("~", "~0").replace("/", "~1") if step in self._known else "*"


def _compiled(
    document: dict[str, Any] | bool, registry: jsonschema_rs.Registry | None
) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(
        document,
        formats=_FORMATS,
        validate_formats=True,
        pattern_options=_PATTERNS,
        registry=registry,
        offline=True,
    )


@cache
def standard_schema(object_type: str) -> ContentSchema | None:
    """The schema of a standard type's content, or None where any JSON value will do."""
    if object_type not in CONTENT_TYPES:
        return None
    name = f"{object_type.replace('_', '-')}-content"
    resources = [(identifier, dict(document)) for identifier, document in contracts.schemas().items()]
    registry = jsonschema_rs.Registry(resources, retriever=_refuse_retrieval)
    return ContentSchema(f"pamspec:schema:{name}", contracts.schema(name), registry)


def _refuse_retrieval(uri: str) -> Any:
    raise ValueError(uri)


def checked_schema(schema_id: str, document: Any) -> bytes:
    """The stored form of a schema that may be registered; InvalidRequest names what is wrong with it."""
    stored = canonical(document)
    if len(stored) > MAX_SCHEMA_BYTES:
        raise InvalidRequest(
            f"schema is larger than {MAX_SCHEMA_BYTES} bytes; split it by object type.",
            details={"limit": MAX_SCHEMA_BYTES, "size": len(stored), "field": "schema"},
        )
    plain = jiter.from_json(stored, float_mode="float")
    check_bounds(plain, schema_id)
    try:
        ContentSchema(schema_id, plain)
    except ValueError as problem:
        raise InvalidRequest(
            f"schema is no JSON Schema 2020-12 that can be used here (at {problem}): patterns have no look-around and"
            " no back-references, and references stay inside.",
            details={"field": f"schema{problem}"},
        ) from None
    return stored


def stored_schema(schema_id: str, document: bytes) -> ContentSchema:
    """A schema that was checked when it was registered."""
    return ContentSchema(schema_id, jiter.from_json(document, float_mode="float"))


def _place_of(problem: Exception) -> str:
    path = getattr(problem, "instance_path", None) or ()
    return "".join(f"/{step}" for step in path)[:_SHOWN]


def _member_names(document: Any) -> set[str]:
    """The names that a schema gives to members."""
    found: set[str] = set()
    stack = [document]
    while stack:
        one = stack.pop()
        if isinstance(one, list):
            stack += one
        elif isinstance(one, dict):
            properties = one.get("properties")
            if isinstance(properties, dict):
                found.update(properties)
            stack += one.values()
    return found
