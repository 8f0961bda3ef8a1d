"""The contracts as the services use them: schemas to validate with, and the catalogues as typed values.

The sources are the files under `contracts/`, read as they stand in a checkout; an installed package carries the same
documents in its generated `bundle.json`. Everything is read once and must not be changed by its users.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import jsonschema_rs
import msgspec
from jsonschema import Draft202012Validator
from jsonschema.protocols import Validator
from referencing import Registry
from referencing.jsonschema import SchemaRegistry

from pamspec_common.contracts import components, sources
from pamspec_common.contracts.catalogues import Bus, ErrorCode, EventType, Operation, OperationCatalogue
from pamspec_common.contracts.formats import FORMATS, referenced, with_whole_patterns
from pamspec_common.contracts.validators import QuickValidator, quick_registry

__all__ = [
    "Bus",
    "ContractViolation",
    "ErrorCode",
    "EventType",
    "Operation",
    "answer_validator",
    "check",
    "check_event",
    "errors",
    "events",
    "member_type",
    "operation_catalogue",
    "operations",
    "request_validator",
    "resolve",
    "schema",
    "schemas",
    "streams",
    "validator",
    "validator_of",
]

_Validator = with_whole_patterns(Draft202012Validator)


class ContractViolation(ValueError):
    """A document breaks a contract; the text names the place and the rule, never the value."""


@cache
def _documents() -> sources.Documents:
    return sources.load()


def schemas() -> Mapping[str, Mapping[str, Any]]:
    """All schemas by $id: `pamspec:schema:<name>` and `pamspec:operation:<operation>:request` or `:answer`."""
    return _documents().schemas


def schema(name: str) -> Mapping[str, Any]:
    """The schema with that $id; `memory-event` is short for `pamspec:schema:memory-event`. KeyError when unknown."""
    return schemas()[_identifier(name)]


def resolve(reference: str) -> Any:
    """What a reference `<$id>` or `<$id>#/a/b` names. KeyError when it names nothing."""
    return components.resolve(schemas(), reference)


@cache
def validator(name: str) -> QuickValidator:
    """A validator for the schema of that name, or for a part of it: `event-payload#/$defs/object_created`.

    It checks formats (date-time by RFC 3339 without leap seconds, uri by RFC 3986), and a pattern that ends in `$`
    matches the whole string. KeyError when the schema is unknown.
    """
    identifier, _, fragment = name.partition("#")
    schema(identifier)
    reference = _identifier(identifier) + (f"#{fragment}" if fragment else "")
    document = {"$ref": reference}
    return QuickValidator(document, _quick_registry(), validator_of(document))


def validator_of(document: Mapping[str, Any], registry: SchemaRegistry | None = None) -> Validator:
    """A validator with the same rules for another schema; it may refer to ours, or to those of `registry`, by $id."""
    return _Validator(document, registry=_registry() if registry is None else registry, format_checker=FORMATS)


def request_validator(operation: str) -> QuickValidator:
    """The validator of an operation's request."""
    return validator(f"pamspec:operation:{operation}:request")


def answer_validator(operation: str) -> QuickValidator:
    """The validator of an operation's answer; errors are `pamspec:schema:error`."""
    return validator(f"pamspec:operation:{operation}:answer")


@cache
def member_type(operation: str, name: str) -> str | None:
    """The JSON type of a member of an operation's request, or of its page; None where it may have several. KeyError."""
    reference = components.request_member(schemas(), operation, name)
    while True:
        part = resolve(reference)
        if "type" in part or "$ref" not in part:
            found = part.get("type")
            return found if isinstance(found, str) else None
        below = part["$ref"]
        reference = below if below[0] != "#" else reference.partition("#")[0] + below


@cache
def operations() -> Mapping[str, Operation]:
    """The operations by name."""
    return operation_catalogue().operations


@cache
def operation_catalogue() -> OperationCatalogue:
    """The whole of operations.yaml: operations, channels, headers and common errors."""
    return msgspec.convert(_documents().operations, OperationCatalogue)


@cache
def streams() -> Bus:
    """Streams, consumers, subjects and headers of the bus."""
    return msgspec.convert(_documents().streams, Bus)


@cache
def events() -> Mapping[str, EventType]:
    """The ledger's event types by name."""
    return msgspec.convert(_documents().events["events"], dict[str, EventType])


@cache
def errors() -> Mapping[str, ErrorCode]:
    """The error codes by name."""
    return msgspec.convert(_documents().errors["errors"], dict[str, ErrorCode], str_keys=True)


def check(name: str, document: Any) -> None:
    """Raise ContractViolation unless the document is valid by the schema of that name."""
    _raise_first(validator(name), document, name)


def check_event(event: Mapping[str, Any]) -> None:
    """Raise ContractViolation unless a ledger entry keeps its type's whole contract: fields, subject and payload.

    `memory-event` alone leaves the payload open, for readers of other implementations' ledgers.
    """
    check("memory-event", event)
    name = event["event_type"]
    broken = events()[name].broken_presence(event)
    if broken is not None:
        raise ContractViolation(f"{name}: {broken}")
    check(f"event-payload#/$defs/{name}", event.get("payload", {}))


@cache
def _registry() -> SchemaRegistry:
    registry: SchemaRegistry = Registry()
    return registry.with_resources((name, referenced(document)) for name, document in schemas().items())


@cache
def _quick_registry() -> jsonschema_rs.Registry:
    return quick_registry(schemas())


def _identifier(name: str) -> str:
    return name if name.startswith("pamspec:") else f"pamspec:schema:{name}"


def _raise_first(by: QuickValidator, document: Any, name: str) -> None:
    error = next(by.iter_errors(document), None)
    if error is not None:
        place = "/".join(str(part) for part in error.absolute_path) or "the document"
        raise ContractViolation(f"{name}: {place} breaks {error.validator} {error.validator_value!r:.200}")
