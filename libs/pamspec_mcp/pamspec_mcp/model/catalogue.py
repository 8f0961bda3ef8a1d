"""Which tools there are: one for each public operation, under two names.

Invariant: a tool is called by either name, `pamspec.create` or `pamspec_create`, and listed under one, so that no host
shows everything twice: with the dot, or for hosts that refuse dots with the underscore.
"""

from __future__ import annotations

from functools import cache
from typing import Literal, NamedTuple

from pamspec_common import contracts

CONTINUE = "continue"
"""The one tool that is no operation: it goes on with an answer that was too large for one result."""

SPEC_VERSION = "0.1.0-draft"
BINDING_VERSION = "1"
PROFILES = (
    "LITE",
    "DELEGATION",
    "SUBSCRIBE",
    "CORE",
    "VERSIONING",
    "LEDGER",
    "STRUCTURED-QUERY",
    "SEMANTIC-QUERY",
    "RELATIONSHIP",
    "PROTOCOL-BINDING",
    "EVALUATION",
)
"""The profiles of the specification that this memory keeps; `pamspec conformance` shows it case by case."""

Naming = Literal["dots", "underscores"]
ToolSet = Literal["operations", "memory", "graph"]
_MARKS = {"dots": ".", "underscores": "_"}
_PREFIX = "pamspec"

EVERYDAY = (
    "create",
    "read",
    "update",
    "transition",
    "relate",
    "query",
    "assemble",
    "inspect_history",
    "delete",
    "list_scopes",
    "get_scope",
)
"""What an agent that remembers needs; the set `memory`."""

# What takes something away for good, or closes it to somebody.
_DESTRUCTIVE = frozenset(
    (
        "redact",
        "delete",
        "batch",
        "unsubscribe",
        "reset",
        "rotate_webhook_secret",
        "revoke_delegation",
        "drop_index",
        "update_scope",
        "delete_scope",
        "unbind_role",
        "set_access_rules",
        "rotate_key",
        "revoke_key",
        "suspend_tenant",
        "offboard_tenant",
        "set_quotas",
        "release_hold",
        "replay_parked_entries",
        "forget",
        "drop_vectors",
    )
)
# What would be done once more by a repetition with the same arguments, unless they carry an idempotency key.
_REPEATED = frozenset(
    (
        "create",
        "relate",
        "promote",
        "batch",
        "seal_snapshot",
        "subscribe",
        "poll",
        "replay",
        "rotate_webhook_secret",
        "grant_delegation",
        "check_delegation",
        "rebuild_index",
        "reembed",
        "create_key",
        "rotate_key",
        "place_hold",
        "forget",
    )
)


class Traits(NamedTuple):
    """What a host may tell its user about a tool."""

    reads_only: bool
    destroys: bool
    idempotent: bool


@cache
def operations() -> tuple[str, ...]:
    """The operations that are tools: every public one but those that stream lines of any length."""
    return tuple(name for name, one in contracts.operations().items() if one.public and one.streams is None)


@cache
def over_http_alone() -> frozenset[str]:
    """The public operations one side of which no message of a host can carry."""
    return frozenset(name for name, one in contracts.operations().items() if one.public and one.streams is not None)


def tool_set(name: ToolSet) -> tuple[str, ...]:
    """The operations of a set of tools."""
    return EVERYDAY if name == "memory" else operations()


def traits(operation: str) -> Traits:
    """The annotations of an operation's tool."""
    if not contracts.operations()[operation].writes:
        return Traits(True, False, True)
    return Traits(False, operation in _DESTRUCTIVE, operation not in _REPEATED)


def tool_name(operation: str, naming: Naming = "dots") -> str:
    """The name under which a tool is listed."""
    return f"{_PREFIX}{_MARKS[naming]}{operation}"


def operation_of(name: str) -> str | None:
    """The operation, or `continue`, that a tool's name means; None for a name that nobody has."""
    for mark in _MARKS.values():
        operation = name.removeprefix(_PREFIX + mark)
        if operation != name and (operation == CONTINUE or operation in operations()):
            return operation
    return None
