"""An export under another name: the same history in a ledger of its own, each version pointing to the one it was.

What stays: ids of objects and relationships, actors, states, times, contents, and which version follows which. What is
new: the scope, the ids of versions and events, salts, digests and hashes. A version's provenance names the version that
it was as transformation_parent; the event's payload names the entry that it was. Invariant: equal ids become equal ids,
so that what pointed to a version of the file points to the same version here.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import orjson

from pamspec_common.ledger import entry_hash, genesis, keyed_digest, version_digest
from pamspec_common.strict_json import canonical, dumps, parse
from pamspec_write.model.entry_lines import Entry, Event, Metadata, Version, event_of, metadata_of
from pamspec_write.model.records import erasure_id

_VERSION_MEMBERS = ("source_version_id", "target_version_id")
_RECENT = 64


class Remapping:
    """The entries of one file, one after the other."""

    def __init__(
        self, old_scope_id: str, scope_id: str, ledger_id: bytes, actor_id: str, mint: Callable[[str], str],
        salt: Callable[[], bytes],
    ) -> None:  # fmt: skip
        self._old, self._new, self._ledger_id = old_scope_id, scope_id, ledger_id
        self._actor_id, self._mint, self._salt = actor_id, mint, salt
        self._hash = genesis(ledger_id)
        self._digests: OrderedDict[str, str] = OrderedDict()

    def entry(self, entry: Entry) -> Entry:
        """The entry as it stands in the new ledger."""
        version = None if entry.version is None else self._version(entry.version)
        stored = self._event(entry.event, entry.stored, version)
        self._hash = entry_hash(self._hash, stored)
        return Entry(event_of(stored), stored, self._hash, version, entry.operation)

    def version_id(self, old: str) -> str:
        """The id of a version of the file in the new scope."""
        digits = hashlib.sha256(b"pamspec-remap-1" + self._ledger_id + old.encode()).hexdigest()
        return f"ver:{digits[:8]}-{digits[8:12]}-8{digits[13:16]}-8{digits[17:20]}-{digits[20:32]}"

    def _event(self, event: Event, stored: bytes, version: Version | None) -> bytes:
        document: dict[str, Any] = orjson.loads(stored)
        payload = document["payload"]
        document["event_id"], document["scope_id"] = self._mint("evt"), self._new
        if event.version_id is not None:
            document["version_id"] = self.version_id(event.version_id)
            digest = self._digests.get(event.version_id) if version is None else version_digest(version.stored)
            if digest is not None and "version_digest" in payload:
                payload["version_digest"] = digest
            if version is not None:
                self._remember(event.version_id, payload["version_digest"])
        for name in _VERSION_MEMBERS:
            if name in payload:
                payload[name] = self.version_id(payload[name])
        if "erasure_id" in payload:
            payload["erasure_id"] = erasure_id(document["event_id"])
        if payload.get("target_scope_id") == self._old:
            payload["target_scope_id"] = self._new
        payload["imported"] = {
            "actor_id": self._actor_id,
            "event_id": event.event_id,
            "scope_id": self._old,
            "sequence": event.sequence,
        }
        return dumps(document)

    def _remember(self, version_id: str, digest: str) -> None:
        """For the events that name a version which another entry of the same operation brought."""
        self._digests[version_id] = digest
        if len(self._digests) > _RECENT:
            self._digests.popitem(last=False)

    def _version(self, version: Version) -> Version:
        metadata, document = version.metadata, parse(version.stored)
        document["scope_id"], document["version_id"] = self._new, self.version_id(metadata.version_id)
        if document.get("target_scope_id") == self._old:
            document["target_scope_id"] = self._new
        salt = private = None
        if version.private is not None:
            salt, private = self._salt(), self._private(version.private, metadata)
            document["private_digest"] = keyed_digest(salt, "private", private)
            if version.content is not None:
                document["content_digest"] = keyed_digest(salt, "content", version.content)
        stored = canonical(document)
        return Version(metadata_of(stored), stored, version.operation_hash, salt, private, version.content)

    def _private(self, private: bytes, metadata: Metadata) -> bytes:
        """The private half with a provenance that points to the version that this one was (P138, decisions 14)."""
        document = parse(private)
        provenance = document["provenance"]
        refs = [*provenance.get("evidence_refs", []), f"imported-from:{self._old}"]
        parent = provenance.get("transformation_parent")
        if parent is not None:
            refs.append(f"transformation-parent:{parent}")
        provenance["evidence_refs"] = list(dict.fromkeys(refs))
        provenance["transformation_parent"] = metadata.version_id
        return canonical(document)
