"""The rows that one transaction will write, one list per table.

An atomic batch decides into rows of its own, which `absorb` adds only when all of it succeeded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

HEAD_SEQ = 9223372036854775807

Row = list[Any]

VERSION_WIDTH = 7
PRIVATE_WIDTH = 6
SPAN_WIDTH = 22
CLOSING_WIDTH = 3
LEDGER_WIDTH = 8
OUTBOX_WIDTH = 7
RECORD_WIDTH = 14
SOURCE_WIDTH = 5

PRIVATE_SALT, PRIVATE_CONTENT, PRIVATE_DOCUMENT = 3, 4, 5
SPAN_TO, SPAN_CONTENT = 2, 21
RECORD_SALT, RECORD_FINGERPRINT = 7, 8


@dataclass(slots=True)
class Rows:
    """Everything that one transaction writes, but the scopes' heads."""

    versions: list[Row] = field(default_factory=list)
    privates: dict[tuple[int, int], Row] = field(default_factory=dict)
    spans: dict[tuple[int, int], Row] = field(default_factory=dict)
    closings: list[Row] = field(default_factory=list)
    ledger: list[Row] = field(default_factory=list)
    outbox: list[Row] = field(default_factory=list)
    records: dict[bytes, Row] = field(default_factory=dict)
    sources: list[Row] = field(default_factory=list)
    erasures: list[tuple[int, str, int]] = field(default_factory=list)
    """(scope_key, object_id, before): the object's versions before that ledger sequence lose what is erasable."""

    def end_span(self, scope_key: int, from_seq: int, to_seq: int) -> None:
        """The version that began at `from_seq` is the head no longer."""
        span = self.spans.get((scope_key, from_seq))
        if span is None:
            self.closings.append([scope_key, from_seq, to_seq])
        else:
            span[SPAN_TO] = to_seq

    def erase_before(self, scope_key: int, object_id: str, before: int) -> None:
        """Erase an object's earlier versions, those of this batch included."""
        self.erasures.append((scope_key, object_id, before))
        for version in self.versions:
            sequence = version[1]
            if version[0] == scope_key and version[2] == object_id and sequence < before:
                private = self.privates[scope_key, sequence]
                private[PRIVATE_SALT] = private[PRIVATE_CONTENT] = private[PRIVATE_DOCUMENT] = None
                self.spans[scope_key, sequence][SPAN_CONTENT] = None
                record = self.records.get(private[2])
                if record is not None:
                    record[RECORD_SALT] = record[RECORD_FINGERPRINT] = None

    def absorb(self, other: Rows) -> None:
        """Add the rows of an atomic batch that succeeded."""
        for scope_key, from_seq, to_seq in other.closings:
            self.end_span(scope_key, from_seq, to_seq)
        for erasure in other.erasures:
            self.erase_before(*erasure)
        self.versions += other.versions
        self.privates |= other.privates
        self.spans |= other.spans
        self.ledger += other.ledger
        self.outbox += other.outbox
        self.records |= other.records
        self.sources += other.sources

    def arguments(self) -> list[list[Any]]:
        """The column arrays of every table, in the order of queries.WRITE_SQL."""
        tables: tuple[tuple[int, list[Row]], ...] = (
            (VERSION_WIDTH, self.versions),
            (PRIVATE_WIDTH, list(self.privates.values())),
            (SPAN_WIDTH, list(self.spans.values())),
            (CLOSING_WIDTH, self.closings),
            (LEDGER_WIDTH, self.ledger),
            (OUTBOX_WIDTH, self.outbox),
            (RECORD_WIDTH, list(self.records.values())),
            (SOURCE_WIDTH, self.sources),
        )
        columns: list[list[Any]] = []
        for width, rows in tables:
            columns += [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]
        return columns
