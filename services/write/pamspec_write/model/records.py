"""Idempotency: what an operation's record says when the same id, key or source event comes again (S16, K6, K7)."""

from __future__ import annotations

import hmac

import orjson

from pamspec_common.calls import HEADER_LEDGER_EPOCH, HEADER_LEDGER_SEQUENCE, HEADER_REPLAYED, Answer
from pamspec_common.envelope import envelope_bytes
from pamspec_common.errors import (
    AccessDenied,
    DuplicateOperation,
    InternalError,
    ObjectDeleted,
    ObjectRedacted,
    PamspecError,
    PolicyDenied,
    ServiceUnavailable,
    VersionConflict,
)
from pamspec_common.strict_json import Fragment, dumps
from pamspec_write.model.commands import BatchCommand, Command, fingerprint
from pamspec_write.model.facts import ID_MEMBER, Document, Record, ScopeState, SourceRecord
from pamspec_write.model.rows import NULL, Rows, hex_or_null, text_or_null

COMMITTED, FAILED, ABANDONED = "c", "f", "a"
ERASING = frozenset({"redact", "delete"})
"""The operations whose answer names an erasure."""

_NOT_STORED = (VersionConflict, AccessDenied, PolicyDenied, ServiceUnavailable, InternalError)


UNSTORED_CODES = frozenset(error.code for error in _NOT_STORED)


def is_stored(error: PamspecError) -> bool:
    """Whether a refusal is an outcome that a repetition gets again (S16)."""
    return not isinstance(error, _NOT_STORED)


def found_record(state: ScopeState, work: Command | BatchCommand) -> Record | None:
    """The record under the operation's id, or under its key."""
    record = state.records.get(work.operation_hash)
    if record is None and work.key_hash is not None:
        by_key = state.keys.get(work.key_hash)
        record = None if by_key is None else state.records.get(by_key)
    return record


def check_comparable(record: Record) -> None:
    """Raise DuplicateOperation for an operation that a look-up gave up."""
    if record.state == ABANDONED:
        raise DuplicateOperation(
            "This operation was looked up while unknown and given up; send it again under a new id and key.",
            details={"reason": "abandoned"},
        )


def replay(state: ScopeState, command: Command, record: Record) -> Answer:
    """The first outcome again, byte for byte; raises DuplicateOperation for other content, or the erasure's error."""
    check_comparable(record)
    if record.salt is None:
        _check_not_erased(record)
    elif record.operation == "batch" or (
        command.repeatable is not None and not matches(record.salt, command.repeatable, record.fingerprint)
    ):
        raise DuplicateOperation(details={"operation_id": record.operation_id})
    return again(state, record, own_retry=command.attempts > 0)


def again(state: ScopeState, record: Record, *, own_retry: bool = False) -> Answer:
    """A record's outcome, marked as replayed unless the client sees it for the first time."""
    answer = outcome(state, record)
    if own_retry:
        return answer
    return Answer(answer.status, answer.body, {**answer.headers, HEADER_REPLAYED: "true"})


def matches(salt: bytes | None, value: bytes, stored: bytes | None) -> bool:
    """Whether a value is the one that a stored fingerprint was made of."""
    return salt is not None and stored is not None and hmac.compare_digest(fingerprint(salt, value), stored)


def outcome(state: ScopeState, record: Record) -> Answer:
    """The answer that a record stands for; ObjectDeleted or ObjectRedacted once what it held was erased."""
    if record.answer is not None:
        return Answer(record.answer.status, record.answer.body, dict(record.answer.headers))
    if record.operation == "check_delegation" and record.status < 400:
        body = check_answer(envelope_bytes(record.metadata or b"{}", None, record.private), record.stored or b"{}")
        return Answer(record.status, body, positions(state, record.last_seq))
    if record.ledger_seq is None:
        return Answer(record.status, record.stored or b"{}", positions(state, record.last_seq))
    stored = _check_not_erased(record)
    body = version_answer(
        named={member: stored[member] for member in ID_MEMBER.values() if member in stored},
        version_id=stored["version_id"],
        scope_id=stored["scope_id"],
        sequence=stored["sequence"],
        ledger_sequence=record.ledger_seq if record.last_seq is None else record.last_seq,
        event_id=record.event_id or "",
        operation_id=record.operation_id,
        envelope=envelope_bytes(record.metadata or b"{}", record.content, record.private),
        erasing=record.operation in ERASING,
        beside=orjson.loads(record.stored) if record.stored is not None and record.operation != "promote" else None,
    )
    if record.stored is not None and record.operation == "promote":
        body = promotion_answer(body, record.stored)
    return Answer(record.status, body, positions(state, record.last_seq))


def _check_not_erased(record: Record) -> Document:
    """The stored metadata of the version that a record answers with; the erasure's error once that was erased.

    A tombstone has no content from the first, nor a digest of it; it is what its operation answers.
    """
    stored: Document = orjson.loads(record.metadata or b"{}")
    if record.private is None or (record.content is None and "content_digest" in stored):
        if record.head_availability == "deleted":
            raise ObjectDeleted
        raise ObjectRedacted
    return stored


def positions(state: ScopeState, last_seq: int | None) -> dict[str, str]:
    """The position headers of a write's answer."""
    headers = {HEADER_LEDGER_EPOCH: str(state.ledger_epoch)}
    if last_seq is not None:
        headers[HEADER_LEDGER_SEQUENCE] = str(last_seq)
    return headers


def version_answer(
    *,
    named: Document,
    version_id: str,
    scope_id: str,
    sequence: int,
    ledger_sequence: int,
    event_id: str,
    operation_id: str,
    envelope: bytes,
    erasing: bool,
    beside: Document | None = None,
) -> bytes:
    """The body of a write that made a version; `named` says of what, `beside` holds further members."""
    document = {
        **named,
        "version_id": version_id,
        "scope_id": scope_id,
        "sequence": sequence,
        "ledger_sequence": ledger_sequence,
        "event_id": event_id,
        "operation_id": operation_id,
        "envelope": Fragment(envelope),
    }
    if erasing:
        document["erasure_id"] = erasure_id(event_id)
    if beside is not None:
        document.update(beside)
    return dumps(document)


def check_answer(envelope: bytes, beside: bytes) -> bytes:
    """The body of a check: the grant, and what the record of the check keeps beside it."""
    delegation_id = orjson.loads(envelope)["delegation_id"]
    return dumps({"delegation_id": delegation_id, "envelope": Fragment(envelope), **orjson.loads(beside)})


def promotion_answer(target: bytes, beside: bytes) -> bytes:
    """The body of a promote: what a create of the target would answer, and what its record keeps beside that."""
    return dumps({"object": Fragment(target), **orjson.loads(beside)})


def erasure_id(event_id: str) -> str:
    """The id of the erasure that an object_deleted or object_redacted event began."""
    return "erasure:" + event_id.partition(":")[2]


def check_source(state: ScopeState, command: Command) -> Record | None:
    """The record bound to the command's source event, None when it is new; DuplicateOperation for other payload."""
    if command.source_hash is None or command.source_payload is None:
        return None
    known = state.sources.get(command.source_hash)
    if known is None:
        return None
    record = state.records.get(known.operation_hash)
    if known.salt is None or known.fingerprint is None:
        if record is not None and record.head_availability != "deleted":
            raise ObjectRedacted
        raise ObjectDeleted
    if not matches(known.salt, command.source_payload, known.fingerprint):
        raise DuplicateOperation(
            "This source event was ingested with another payload; send the correction as an update.",
            details={"reason": "source_event"},
        )
    return record


def remember(
    state: ScopeState,
    rows: Rows,
    work: Command | BatchCommand,
    answer: Answer,
    *,
    salt: bytes,
    now: str,
    repeatable: bytes | None,
    ledger_seq: int | None = None,
    event_id: str | None = None,
    beside: bytes | None = None,
) -> None:
    """Add the operation's record; of an answer made of a version the reference is stored, and what stands `beside`."""
    last = answer.headers.get(HEADER_LEDGER_SEQUENCE)
    record = Record(
        operation_hash=work.operation_hash,
        operation=work.operation if isinstance(work, Command) else "batch",
        operation_id=work.operation_id,
        state=COMMITTED if answer.status < 400 else FAILED,
        salt=salt,
        fingerprint=None if repeatable is None else fingerprint(salt, repeatable),
        status=answer.status,
        ledger_seq=ledger_seq,
        last_seq=int(last) if last else None,
        stored=answer.body if ledger_seq is None else beside,
        answer=answer,
        event_id=event_id,
    )
    state.records[record.operation_hash] = record
    if work.key_hash is not None:
        state.keys[work.key_hash] = record.operation_hash
    scope_key = state.ref.scope_key
    rows.touched.add(scope_key)
    rows.records[scope_key, record.operation_hash] = [
        str(scope_key),
        record.operation_hash.hex(),
        hex_or_null(work.key_hash),
        record.operation,
        record.operation_id,
        work.actor_id,
        record.state,
        salt.hex(),
        hex_or_null(record.fingerprint),
        str(record.status),
        NULL if ledger_seq is None else str(ledger_seq),
        last or NULL,
        text_or_null(record.stored),
        now,
    ]
    if isinstance(work, Command) and record.state == COMMITTED:
        _remember_source(state, rows, work, salt)


def _remember_source(state: ScopeState, rows: Rows, command: Command, salt: bytes) -> None:
    """Bind a command's source event, if it has one, to its record."""
    if command.source_hash is None or command.source_payload is None:
        return
    source = SourceRecord(command.operation_hash, salt, fingerprint(salt, command.source_payload))
    state.sources[command.source_hash] = source
    rows.sources.append(
        [
            str(state.ref.scope_key),
            command.source_hash.hex(),
            source.operation_hash.hex(),
            salt.hex(),
            hex_or_null(source.fingerprint),
        ]
    )
