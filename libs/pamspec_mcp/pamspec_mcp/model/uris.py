"""Addresses of resources: `pamspec://manifest` and `pamspec://scope/{scope_id}` with what lies below (PAMSPEC P169).

Invariant: an address names exactly one operation with its arguments, and ids in it are percent-encoded one by one, so
that no id reaches into another segment.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import quote, unquote

SCHEME = "pamspec://"
MANIFEST = SCHEME + "manifest"
_MOST = 4096
_FORMS: dict[tuple[str, ...], tuple[str, ...]] = {
    (): ("scope_id",),
    ("events",): ("scope_id",),
    ("object",): ("scope_id", "object_id"),
    ("snapshot",): ("scope_id", "snapshot_id"),
    ("object", "version"): ("scope_id", "object_id", "version_id"),
}
TEMPLATES = {
    "scope": (SCHEME + "scope/{scope_id}", "A scope's document: its state and its policy."),
    "events": (SCHEME + "scope/{scope_id}/events", "The entries of a scope's ledger."),
    "object": (SCHEME + "scope/{scope_id}/object/{object_id}", "The current version of an object."),
    "version": (
        SCHEME + "scope/{scope_id}/object/{object_id}/version/{version_id}",
        "One version of an object, which never changes unless it is erased.",
    ),
    "snapshot": (SCHEME + "scope/{scope_id}/snapshot/{snapshot_id}", "A sealed view of a scope."),
}


class Place(NamedTuple):
    """What an address names: a kind, and the ids in it."""

    kind: str
    ids: dict[str, str]

    @property
    def scope_id(self) -> str:
        """The scope in which it lies."""
        return self.ids["scope_id"]

    def request(self) -> tuple[str, dict[str, Any]]:
        """The operation that reads it, and its arguments."""
        if self.kind == "scope":
            return "get_scope", {**self.ids}
        if self.kind == "events":
            return "inspect_history", {**self.ids, "after_sequence": 0}
        if self.kind == "snapshot":
            return "list_snapshots", {**self.ids}
        return "read", {**self.ids}


def place(uri: str) -> Place | None:
    """What an address names; None for one that names nothing."""
    if len(uri) > _MOST or not uri.startswith(SCHEME + "scope/"):
        return None
    segments = uri.removeprefix(SCHEME + "scope/").split("/")
    names = tuple(segments[1::2])
    wanted = _FORMS.get(names)
    values = segments[0::2]
    if wanted is None or len(values) != len(wanted):
        return None
    try:
        ids = [unquote(value, errors="strict") for value in values]
    except UnicodeDecodeError:
        return None
    if not all(ids) or any(mark in value for value in values for mark in "?#"):
        return None
    return Place(names[-1] if names else "scope", dict(zip(wanted, ids, strict=True)))


def address(scope_id: str, *below: str) -> str:
    """The address of a scope, or of what lies in it: `address(scope, "object", id, "version", id)`."""
    return SCHEME + "/".join(["scope", *(quote(one, safe=":._-") for one in (scope_id, *below))])
