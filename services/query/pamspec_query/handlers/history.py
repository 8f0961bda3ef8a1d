"""inspect_history: versions and ledger entries of a subject or of a range (PAMSPEC P124)."""

from __future__ import annotations

from collections.abc import Sequence

from pamspec_common.calls import Answer
from pamspec_common.envelope import envelope_bytes, note
from pamspec_common.errors import InvalidRequest, ObjectNotFound
from pamspec_common.events import PARTY_TYPES
from pamspec_common.strict_json import dumps, loads
from pamspec_query.documents import InspectHistory
from pamspec_query.handlers.context import Context, check_cursor
from pamspec_query.model.cursors import Cursor
from pamspec_query.model.plan import DEFAULT_LIMIT
from pamspec_query.model.positions import check_reached, headers
from pamspec_query.queries import snapshots
from pamspec_query.queries.heads import object_exists
from pamspec_query.queries.history import Entry, Wanted, entries


async def inspect_history(context: Context, request: InspectHistory) -> Answer:
    """A page of entries in ledger order with the versions that they made; what was erased comes as a tombstone.

    The first page fixes the end: later pages go no further, whatever is written meanwhile.
    """
    subject_id, kind = _subject(request)
    limit = DEFAULT_LIMIT if request.pagination is None else request.pagination.limit
    text = None if request.pagination is None else request.pagination.cursor
    cursor = None if text is None else context.read_cursor(text)
    async with context.moment(request, ["event_classes"]) as (conn, scope_key, head, rights):
        sight = context.seen(rights)
        check_reached(head, request.after_sequence or 0)
        after, until, snapshot = request.after_sequence or 0, head.last_seq, None
        if request.snapshot_id is not None:
            snapshot = await snapshots.snapshot(conn, scope_key, request.snapshot_id, sight)
            until = snapshot.position
        if cursor is not None:
            check_cursor(cursor, head)
            after, until = _place(cursor)
        if subject_id is not None:
            held = snapshot is None or snapshot.holds(subject_id)
            if not held or not await object_exists(conn, scope_key, subject_id, kind, until, sight):
                raise ObjectNotFound
        end = until if request.to_sequence is None else min(until, request.to_sequence)
        members = None if snapshot is None else snapshot.members
        wanted = _wanted(request, subject_id, after, end, members, context.parties(rights))
        found, more = await entries(conn, scope_key, wanted, sight, limit, context.page_bytes)
    if kind == b"d" and not found and cursor is None:
        raise ObjectNotFound
    next_cursor = None
    if more:
        next_cursor = context.write_cursor(Cursor(head.ledger_epoch, until, [found[-1].sequence]))
    return Answer(200, _body(found, next_cursor), headers(until, head.ledger_epoch))


def _place(cursor: Cursor) -> tuple[int, int]:
    if len(cursor.after) != 1 or not isinstance(cursor.after[0], int):
        raise InvalidRequest("The cursor belongs to another operation; start again without a cursor.")
    return cursor.after[0], cursor.position


def _wanted(
    request: InspectHistory,
    subject_id: str | None,
    after: int,
    until: int,
    members: Sequence[str] | None,
    parties: Sequence[str] | None,
) -> Wanted:
    versions = request.version_range
    return Wanted(
        after=after,
        until=until,
        subject_id=subject_id,
        subjects=None if subject_id is not None else members,
        event_classes=None if request.event_classes is None else sorted(set(request.event_classes)),
        first_version=None if versions is None else versions.from_sequence,
        last_version=None if versions is None else versions.to_sequence,
        parties=parties,
        restricted=sorted(PARTY_TYPES),
    )


def is_ranged(request: InspectHistory) -> bool:
    """Whether a range of the scope's ledger is asked for."""
    return request.after_sequence is not None or request.to_sequence is not None


def _subject(request: InspectHistory) -> tuple[str | None, bytes]:
    """Whose history, and its kind; None for a range of the scope's ledger."""
    versions = request.version_range
    if versions is not None and versions.from_sequence is None and versions.to_sequence is None:
        raise InvalidRequest(
            "version_range is empty; send from_sequence, to_sequence or both.", details={"field": "version_range"}
        )
    if request.object_id is not None and request.relationship_id is not None:
        raise InvalidRequest("The request names two things; send object_id or relationship_id.")
    if request.object_id is not None or request.relationship_id is not None:
        return request.object_id or request.relationship_id, b"o" if request.object_id is not None else b"r"
    if request.delegation_id is not None and not is_ranged(request):
        return request.delegation_id, b"d"
    if not is_ranged(request):
        raise InvalidRequest(
            "The request names no history; send object_id, relationship_id, after_sequence or to_sequence.",
            details={"field": "object_id"},
        )
    return None, b""


def _body(found: list[Entry], next_cursor: str | None) -> bytes:
    versions, notes = [], {}
    for entry in found:
        stored = entry.stored
        if stored is not None:
            versions.append(envelope_bytes(stored.metadata, stored.content, stored.private))
            told = note(stored.private)
            if told is not None:
                notes[loads(entry.event)["event_id"]] = told
    return (
        b'{"events":[' + b",".join(entry.event for entry in found)
        + b'],"next_cursor":' + dumps(next_cursor)
        + b',"notes":' + dumps(notes)
        + b',"versions":[' + b",".join(versions) + b"]}"
    )  # fmt: skip
