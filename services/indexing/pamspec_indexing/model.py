"""What the ledger's entries and the canonical heads mean for the indexes, without any I/O.

Invariant: an entry only tells which object to look at; what is indexed is the head that the canonical store shows in
the same transaction. So entries that are late, repeated or out of order lead to the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import NamedTuple

import msgspec

from pamspec_common.consuming.model import Entry, Poison

LEXICAL = "index:lexical"
"""The index_id of the lexical index of a scope."""

GONE = frozenset({"redacted", "deleted"})
"""Availability states in which nothing of an object may be found."""

_UNTOUCHED = frozenset(
    {
        "embedding_generated", "index_rebuilt", "access_denied", "subscription_opened", "subscription_closed",
        "delegation_granted", "delegation_revoked", "delegation_exercised",
    }
)  # fmt: skip


class Touched(NamedTuple):
    """An object or a relationship of which something has happened."""

    scope_key: int
    object_id: str


class Head(NamedTuple):
    """The current version of an object or a relationship."""

    scope_key: int
    object_id: str
    kind: bytes
    version_id: str
    sequence: int
    """The ledger sequence of the version."""
    removed: bool
    """Whether nothing of it may be found."""
    size: int
    """Bytes of its content."""
    known: int
    """The sequence that is indexed; 0 for none."""
    session_key: int | None
    """What it has in common with the others of its source session."""
    session_position: int | None
    """Its place among them: the ledger sequence of its first version."""


class _Subject(msgspec.Struct):
    object_id: str | None = None
    relationship_id: str | None = None


_subjects = msgspec.json.Decoder(_Subject)


def touched(entries: Iterable[Entry]) -> list[Touched]:
    """What these entries are about, each once, in the order of keys. Poison for an entry that cannot be read."""
    found = set()
    for entry in entries:
        if entry.event_type in _UNTOUCHED:
            continue
        try:
            subject = _subjects.decode(entry.event)
        except msgspec.DecodeError:
            raise Poison(entry.scope_key, entry.sequence, "no event of a version") from None
        name = subject.object_id or subject.relationship_id
        if name is not None:
            found.add(Touched(entry.scope_key, name))
    return sorted(found)


class _Provenance(msgspec.Struct):
    source_ref: str | None = None


class _Private(msgspec.Struct):
    provenance: _Provenance | None = None


_privates = msgspec.json.Decoder(_Private)


def session_key(scope_key: int, private: bytes) -> int | None:
    """What objects of one source session in a scope have in common; None for one that names no source.

    The session is provenance.source_ref without its fragment: chat:7/session_3#turn-12 is of chat:7/session_3.
    """
    provenance = _privates.decode(private).provenance
    if provenance is None or provenance.source_ref is None:
        return None
    session = provenance.source_ref.partition("#")[0]
    digest = sha256(f"{scope_key} {session}".encode()).digest()
    return int.from_bytes(digest[:8], signed=True)
