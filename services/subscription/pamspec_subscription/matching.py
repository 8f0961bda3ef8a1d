"""Which entries a subscription delivers: its filter, and what its owner may see of the ledger's own bookkeeping.

Decided per event, never only at opening (PAMSPEC P133): from columns first, by parsing the event only where a
predicate, an object type, an object id or a party rule asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pamspec_common.events import EVENT_TYPES, PARTY_TYPES
from pamspec_common.principal import RIGHT_ADMIN, RIGHT_AUDIT, Principal
from pamspec_common.strict_json import dumps
from pamspec_subscription.entries import Entry
from pamspec_subscription.predicates import Test, compile_predicate

OTHER_SUBJECT_TYPES = ("index_rebuilt", "access_denied", "delegation_exercised", "embedding_generated")
"""Events that may name an object although the ledger's subject column holds something else, or nothing."""
_EVENT_TYPES = frozenset(EVENT_TYPES)
_PAYLOAD_PARTIES = ("granting_actor_id", "delegated_actor_id")


@dataclass(frozen=True)
class Viewer:
    """Whose eyes an event meets."""

    everything: bool
    actor_ids: frozenset[str]

    def sees(self, entry: Entry) -> bool:
        """Whether the rules of party events show it."""
        if self.everything or entry.event_type not in PARTY_TYPES:
            return True
        event = entry.document
        if event["actor"]["actor_id"] in self.actor_ids:
            return True
        payload = event.get("payload", {})
        return any(payload.get(name) in self.actor_ids for name in _PAYLOAD_PARTIES)


def viewer_of(principal: Principal, actor: Mapping[str, Any], *, everything: bool = False) -> Viewer:
    """The viewer that a subscription's owner is; `everything` where its roles make it an auditor or administrator."""
    everything = everything or principal.has(RIGHT_ADMIN) or principal.has(RIGHT_AUDIT)
    return Viewer(everything, frozenset({principal.actor_id, str(actor["actor_id"])}))


class Matcher:
    """A filter compiled for a viewer; equal ones compare equal, so that a scope decides once for all of them."""

    __slots__ = (
        "_key",
        "_object_id",
        "_object_id_text",
        "_object_type",
        "_object_type_text",
        "_test",
        "_types",
        "viewer",
    )

    def __init__(self, filter_: Mapping[str, Any], viewer: Viewer) -> None:
        self.viewer = viewer
        self._key = (dumps(filter_), viewer)
        classes = filter_.get("event_classes")
        self._types = None if classes is None else frozenset(classes)
        self._object_id: str | None = filter_.get("object_id")
        self._object_id_text = b'"object_id":' + dumps(self._object_id)
        self._object_type: str | None = filter_.get("object_type")
        self._object_type_text = b'"object_type":' + dumps(self._object_type)
        predicate = filter_.get("predicate")
        self._test: Test | None = None if predicate is None else compile_predicate(predicate)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Matcher) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def types(self) -> list[str] | None:
        """The event types to read from the ledger; None for all."""
        return None if self._types is None else sorted(self._types)

    @property
    def object_id(self) -> str | None:
        """The only object whose events match, where the filter names one."""
        return self._object_id

    @property
    def exact_by_columns(self) -> bool:
        """Whether the ledger's columns alone decide, so that no row is read in vain."""
        return self._object_id is None and self._object_type is None and self._test is None

    def select(self, entries: Sequence[Entry]) -> list[Entry]:
        """Those of a page that match; where the columns have decided already, only party events are looked at."""
        if not self.exact_by_columns:
            return [entry for entry in entries if self.matches(entry)]
        if self._types is None and self.viewer.everything:
            return list(entries)
        quick = _EVENT_TYPES - PARTY_TYPES if self._types is None else self._types - PARTY_TYPES
        return [entry for entry in entries if entry.event_type in quick or self.matches(entry)]

    def matches(self, entry: Entry) -> bool:
        """Whether an entry is to be delivered."""
        if self._types is not None and entry.event_type not in self._types:
            return False
        if self._object_id is not None and not (
            self._object_id_text in entry.event and entry.document.get("object_id") == self._object_id
        ):
            return False
        if self._object_type is not None and not (
            self._object_type_text in entry.event
            and entry.document.get("payload", {}).get("object_type") == self._object_type
        ):
            return False
        return self.viewer.sees(entry) and (self._test is None or self._test(entry.document))
