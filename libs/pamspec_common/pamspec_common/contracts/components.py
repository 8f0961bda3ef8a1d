"""Our schemas inside another document: OpenAPI and AsyncAPI want them flat, under one path and without $id.

Every root schema and every `$defs` entry becomes a component of its own: `memory-object`, `common.id`,
`create.request`. Only what is used is taken over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Schemas = Mapping[str, Mapping[str, Any]]
_IN_PAGINATION = frozenset({"limit", "cursor"})
_LEFT_OUT = frozenset({"$schema", "$id", "$defs"})


class Components:
    """Collects the components that a document uses."""

    def __init__(self, schemas: Schemas, prefix: str, suffix: str = "") -> None:
        self._schemas, self._prefix, self._suffix = schemas, prefix, suffix
        self._used: dict[str, dict[str, Any]] = {}

    def use(self, reference: str) -> dict[str, str]:
        """A `$ref` to the component for one of our references; the component and all that it needs are taken over."""
        identifier, _, fragment = reference.partition("#")
        name = component_name(identifier, fragment)
        if name not in self._used:
            self._used[name] = {}
            self._used[name] = self.rewrite(resolve(self._schemas, reference), identifier)
        return {"$ref": f"{self._prefix}{name}{self._suffix}"}

    def rewrite(self, part: Any, identifier: str) -> Any:
        """A part of the schema with that $id, its references turned into references to components."""
        if isinstance(part, list):
            return [self.rewrite(item, identifier) for item in part]
        if not isinstance(part, Mapping):
            return part
        rewritten = {key: self.rewrite(value, identifier) for key, value in part.items() if key not in _LEFT_OUT}
        reference = part.get("$ref")
        if isinstance(reference, str):
            rewritten["$ref"] = self.use(reference if reference[0] != "#" else identifier + reference)["$ref"]
        return rewritten

    def collected(self) -> dict[str, dict[str, Any]]:
        """The components by name."""
        return dict(sorted(self._used.items()))


def resolve(schemas: Schemas, reference: str) -> Any:
    """What a reference `<$id>` or `<$id>#/a/b` names. KeyError when it names nothing."""
    identifier, _, fragment = reference.partition("#")
    part: Any = schemas[identifier]
    for token in fragment.split("/")[1:]:
        part = part[token]
    return part


def request_member(schemas: Schemas, operation: str, name: str) -> str:
    """The reference of a member of a request: one of its page, its own, or one that all have. KeyError for others."""
    own = f"pamspec:operation:{operation}:request#/properties"
    common = "pamspec:schema:request#/$defs/common_fields/properties"
    page = "pamspec:schema:request#/$defs/pagination/properties"
    for place in (page, own, common) if name in _IN_PAGINATION else (own, common):
        try:
            if name in resolve(schemas, place):
                return f"{place}/{name}"
        except KeyError:
            continue
    raise KeyError(f"{operation} takes no {name}")


def component_name(identifier: str, fragment: str = "") -> str:
    """`common.id` for `pamspec:schema:common#/$defs/id`, `create.request` for `pamspec:operation:create:request`."""
    words = [*identifier.split(":")[2:], *(token for token in fragment.split("/") if token not in ("", "$defs"))]
    return ".".join(words)
