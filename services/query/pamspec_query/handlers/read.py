"""read: one version, the current one by default (PAMSPEC P109-P111, S15, S21)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from pamspec_common.authorization.sight import Sight
from pamspec_common.calls import Answer
from pamspec_common.envelope import envelope
from pamspec_common.errors import (
    InvalidRequest,
    ObjectDeleted,
    ObjectNotFound,
    ObjectRedacted,
    PamspecError,
)
from pamspec_common.strict_json import dumps
from pamspec_query.documents import Read
from pamspec_query.handlers.context import Context
from pamspec_query.model.permission import memory_of
from pamspec_query.model.plan import check_as_of, check_fields
from pamspec_query.model.positions import Head, check_epoch, check_reached, etag, headers
from pamspec_query.model.snapshots import check_position
from pamspec_query.queries import heads, snapshots
from pamspec_query.queries.heads import HeadRow, Stored

_EXPIRED = "expired"
"""A word of one dimension of states alone."""


async def read(context: Context, request: Read) -> Answer:
    """The version that a request names: the head, a version by id, or the one of a past position.

    What is missing, lies in another scope or may not be seen is the same object_not_found; what was erased is
    object_deleted or object_redacted.
    """
    subject_id, kind = _subject(request)
    check_fields(request.fields)
    check_position(request.snapshot_id, request.as_of)
    past = request.version_id is not None or request.as_of is not None or request.snapshot_id is not None
    if past or context.narrowing is not None:
        return await _read_past(context, request, subject_id, kind)
    scope_key = await context.scope_key(request.scope_id)
    head, row = await _head(context, scope_key, subject_id)
    rights = await context.rights(scope_key, head)
    check_epoch(head, request.ledger_epoch)
    if request.min_sequence is not None and head.last_seq < request.min_sequence:
        permit = partial(context.rights, scope_key)
        await context.store.floors.reach(scope_key, request.min_sequence, request.wait_ms, request.ledger_epoch, permit)
        head, row = await _head(context, scope_key, subject_id)
        rights = await context.rights(scope_key, head)
    if row.kind != kind or row.stored is None or not _is_seen(context.seen(rights), row):
        raise ObjectNotFound
    answer = _answer(request, row.stored, None, headers(head.last_seq, head.ledger_epoch), context.parties(rights))
    if kind == b"o":
        lapsed = row.memory is not None and _EXPIRED in row.memory
        context.store.reads.note(scope_key, subject_id, lapsed=lapsed)
    return answer


async def _head(context: Context, scope_key: int, subject_id: str) -> tuple[Head, HeadRow]:
    row = await context.store.groups.read(scope_key, subject_id)
    if row.head is None:
        raise ObjectNotFound
    return row.head, row


def _is_seen(sight: Sight, row: HeadRow) -> bool:
    """A relationship is seen with its ends; a delegation is for its parties."""
    if sight.everything or row.kind == b"d":
        return True
    return row.memory is not None and all(sight.allows(memory_of(values)) for values in (row.memory, *row.ends))


async def _read_past(context: Context, request: Read, subject_id: str, kind: bytes) -> Answer:
    if request.version_id is not None and request.as_of is not None:
        raise InvalidRequest(
            "version_id names a version and as_of a position; leave one of them out.", details={"field": "as_of"}
        )
    as_of = check_as_of(request.as_of)
    async with context.moment(request) as (conn, scope_key, head, rights):
        sight = context.seen(rights)
        position = head.last_seq
        if request.snapshot_id is not None:
            snapshot = await snapshots.snapshot(conn, scope_key, request.snapshot_id, sight)
            if not snapshot.holds(subject_id):
                raise ObjectNotFound
            position = snapshot.position
        elif as_of.ledger_sequence is not None:
            check_reached(head, as_of.ledger_sequence)
            position = as_of.ledger_sequence
        elif as_of.recorded_at is not None:
            position = await heads.position_at(conn, scope_key, as_of.recorded_at, head.last_seq)
        if request.version_id is not None:
            found = await heads.version(conn, scope_key, subject_id, kind, request.version_id, position, sight)
        else:
            found = await heads.version_as_of(conn, scope_key, subject_id, kind, position, as_of.valid_at, sight)
    if found is None:
        raise ObjectNotFound
    stored, head_availability = found
    return _answer(request, stored, head_availability, headers(position, head.ledger_epoch), context.parties(rights))


def _subject(request: Read) -> tuple[str, bytes]:
    """The id that is asked for and its kind; a delegation_id beside another id is the grant to act under."""
    if request.object_id is not None and request.relationship_id is not None:
        raise InvalidRequest("The request names two things; send object_id or relationship_id.")
    if request.object_id is not None or request.relationship_id is not None:
        if request.object_id is not None:
            return request.object_id, b"o"
        assert request.relationship_id is not None
        return request.relationship_id, b"r"
    if request.delegation_id is None:
        raise InvalidRequest(
            "The request names nothing to read; send object_id, relationship_id or delegation_id.",
            details={"field": "object_id"},
        )
    return request.delegation_id, b"d"


def _answer(
    request: Read,
    stored: Stored,
    head_availability: str | None,
    positions: dict[str, str],
    parties: Sequence[str] | None,
) -> Answer:
    document = envelope(stored.metadata, stored.content, stored.private)
    if "delegation_id" in document and not _is_party(parties, document):
        raise ObjectNotFound
    refused = _erased(document["availability_state"], stored, head_availability)
    if refused is not None:
        raise refused
    positions["ETag"] = etag(document["version_id"])
    if request.fields is None:
        return Answer(200, dumps({"envelope": document}), positions)
    shown = {name: document[name] for name in request.fields if name in document}
    return Answer(200, dumps({"projection": shown}), positions)


def _erased(state: str, stored: Stored, head_availability: str | None) -> PamspecError | None:
    """The refusal of a version that is a tombstone, or became one since."""
    if state == "deleted" or (stored.private is None and head_availability == "deleted"):
        return ObjectDeleted()
    if state == "redacted" or stored.private is None:
        return ObjectRedacted()
    return None


def _is_party(parties: Sequence[str] | None, document: dict[str, Any]) -> bool:
    named = (document.get(name, {}).get("actor_id") for name in ("actor", "granting_actor", "delegated_actor"))
    return parties is None or any(name in parties for name in named)
