"""The rows of imported entries, and the state that they leave behind.

Invariant: what readers find by (spans, heads, records, source events) follows from the entries alone, as if the write
service had just written them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pamspec_common.instants import parse
from pamspec_common.transfer import OperationPart, bytes_or_none
from pamspec_write.model.entry_lines import ERASING, BadLine, Entry, Metadata, Range, Version, event_of
from pamspec_write.model.facts import ScopeState
from pamspec_write.model.projection import carried_projection
from pamspec_write.model.records import COMMITTED
from pamspec_write.model.rows import HEAD_SEQ, NULL, Rows, or_null, text_or_null


class Known(NamedTuple):
    """The newest version so far of something."""

    kind: str
    version_seq: int
    ledger_seq: int
    created_by: str


Erasure = tuple[str, int, int, int]
"""(subject_id, from version, to version, before): versions that an entry erased, by the sequence of that entry."""


class Arrivals:
    """A batch of entries on its way into a scope.

    `known` holds what the batch's subjects have so far, `taken` which of its versions' ids the scope has.
    """

    def __init__(self, state: ScopeState, known: Mapping[str, Known], taken: Iterable[str]) -> None:
        self._state = state
        self._known, self._taken = dict(known), set(taken)
        self.rows = Rows()
        self.erasures: list[Erasure] = []

    def add(self, entry: Entry) -> None:
        """Add the rows of the next entry; BadLine when its version does not follow the one before it."""
        state, event = self._state, entry.event
        key = state.ref.scope_key
        if entry.version is not None:
            self._add_version(event.sequence, entry.version)
            if entry.operation is not None:
                self._add_record(event.sequence, entry.version, entry.operation)
        self.rows.ledger.append(
            [
                str(key),
                str(event.sequence),
                event.event_id,
                event.event_type,
                or_null(event.subject_id),
                event.recorded_at,
                entry.stored.decode(),
                entry.entry_hash.hex(),
            ]
        )
        if event.event_type in ERASING:
            self.erasures += _erasures(event.subject_id or "", event.payload.erased, event.sequence)
        state.last_seq, state.last_hash = event.sequence, entry.entry_hash
        state.last_at = parse(event.recorded_at)
        self.rows.touched.add(key)
        self.rows.partitions.add(state.ref.partition)

    def _add_version(self, sequence: int, version: Version) -> None:
        metadata, key = version.metadata, self._state.ref.scope_key
        if metadata.version_id in self._taken:
            raise BadLine("the id of its version stands twice.")
        self._taken.add(metadata.version_id)
        before = self._known.get(metadata.subject_id)
        created_by = metadata.actor.actor_id
        if before is not None:
            if before.kind != metadata.kind:
                raise BadLine("the version's id is that of something else.")
            created_by = before.created_by
            self.rows.end_span(key, before.ledger_seq, sequence)
        expected = 1 if before is None else before.version_seq + 1
        if metadata.sequence != expected:
            raise BadLine(f"here should stand version {expected} of its object; lines are missing or repeated.")
        self._known[metadata.subject_id] = Known(metadata.kind, metadata.sequence, sequence, created_by)
        self.rows.versions[key, sequence] = _version_row(key, sequence, version, created_by)
        if metadata.kind == "r":
            self.rows.ends[key, sequence] = _ends_row(metadata)

    def _add_record(self, sequence: int, version: Version, operation: OperationPart) -> None:
        key = self._state.ref.scope_key
        self.rows.records[key, version.operation_hash] = [
            str(key),
            version.operation_hash.hex(),
            or_null(operation.key_hash),
            operation.operation,
            operation.operation_id,
            operation.actor_id,
            COMMITTED,
            or_null(operation.salt),
            or_null(operation.fingerprint),
            str(operation.status),
            str(sequence),
            str(operation.last_sequence),
            text_or_null(bytes_or_none(operation.answer)),
            operation.created_at,
        ]
        source = operation.source_event
        if source is not None:
            self.rows.sources.append(
                [
                    str(key),
                    source.source_hash,
                    version.operation_hash.hex(),
                    or_null(source.salt),
                    or_null(source.fingerprint),
                ]
            )


class Erased(NamedTuple):
    """A version that came without its parts."""

    ledger_seq: int
    subject_id: str
    version_seq: int


def unexplained(versions: Iterable[Erased], events: Iterable[tuple[str, int, bytes]]) -> int | None:
    """The sequence of the first version that no later entry erased; None when all are explained.

    `events` are redactions and deletions: what they are about, their sequence, their bytes.
    """
    ranges: dict[str, list[Erasure]] = {}
    for subject_id, sequence, stored in events:
        ranges.setdefault(subject_id, []).extend(_erasures(subject_id, event_of(stored).payload.erased, sequence))
    for version in versions:
        explained = any(
            low <= version.version_seq <= high and before > version.ledger_seq
            for _, low, high, before in ranges.get(version.subject_id, ())
        )
        if not explained:
            return version.ledger_seq
    return None


def _erasures(subject_id: str, ranges: Iterable[Range], before: int) -> list[Erasure]:
    return [(subject_id, found.from_sequence, found.to_sequence, before) for found in ranges]


def _version_row(key: int, sequence: int, version: Version, created_by: str) -> list[str]:
    metadata = version.metadata
    return [
        str(key),
        str(sequence),
        HEAD_SEQ,
        metadata.subject_id,
        metadata.kind,
        str(metadata.sequence),
        metadata.version_id,
        version.stored.decode(),
        version.operation_hash.hex(),
        NULL if version.salt is None else version.salt.hex(),
        text_or_null(version.content),
        text_or_null(version.private),
        metadata.named,
        or_null(metadata.schema_id),
        metadata.lifecycle_state,
        metadata.availability_state,
        metadata.retention_state,
        metadata.validation_state,
        metadata.actor.actor_id,
        metadata.provenance.provenance_id,
        or_null(metadata.observed_at),
        or_null(metadata.asserted_at),
        or_null(metadata.valid_from),
        or_null(metadata.valid_until),
        metadata.committed_at,
        created_by,
        or_null(carried_projection(version.content)),
    ]


def _ends_row(metadata: Metadata) -> list[str]:
    if metadata.source_object_id is None or metadata.target_object_id is None or metadata.directionality is None:
        raise BadLine("the relationship does not say what it joins.")
    return [
        metadata.source_object_id,
        metadata.target_object_id,
        or_null(metadata.target_scope_id),
        metadata.directionality,
    ]
