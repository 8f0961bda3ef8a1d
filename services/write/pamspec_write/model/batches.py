"""Batches: what is remembered of one, and how its answer is put together again.

Invariant: a batch's record holds no outcome twice. It names the record of every item that has one, wherever that lies,
and keeps the errors of the others; its fingerprint covers only what no item's record covers, so that an erasure of an
item leaves nothing here that its content could be guessed from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import orjson

from pamspec_common.calls import HEADER_REPLAYED, Answer, refusal
from pamspec_common.errors import DuplicateOperation, PamspecError
from pamspec_common.strict_json import dumps
from pamspec_write.model.commands import BatchCommand, Command
from pamspec_write.model.facts import Document, Record, ScopeState
from pamspec_write.model.records import (
    FAILED,
    check_comparable,
    check_source,
    found_record,
    matches,
    outcome,
    positions,
)

States = dict[int, ScopeState]
Find = Callable[[Document], tuple[ScopeState, Record] | None]
"""Finds the record that an entry names."""


def places(batch: BatchCommand) -> Iterator[tuple[int, Command | None]]:
    """Each index of the request, with its command unless it was refused before."""
    items = iter(batch.items)
    for index in range(len(batch.items) + len(batch.refused)):
        yield index, None if index in batch.refused else next(items)


def entries(states: States, batch: BatchCommand, results: Sequence[Answer]) -> list[Document]:
    """What the record keeps of each result: the name of the record that answers it again, or its error."""
    found: list[Document] = []
    for index, item in places(batch):
        record = None if item is None else _record_behind(states[item.scope.scope_key], item, results[index])
        if item is None or record is None:
            found.append({"error": orjson.loads(results[index].body)["error"]})
        else:
            found.append({"scope_id": item.scope.scope_id, "record": record.operation_hash.hex()})
    return found


def _record_behind(state: ScopeState, item: Command, result: Answer) -> Record | None:
    record = found_record(state, item)
    if record is None and item.source_hash is not None and item.source_hash in state.sources:
        record = state.records.get(state.sources[item.source_hash].operation_hash)
    if record is None:
        return None
    try:
        return record if outcome(state, record).body == result.body else None
    except PamspecError:
        return None


def repeatable(batch: BatchCommand, kept: Sequence[Document] | None) -> bytes | None:
    """What a repetition must have in common beyond the items with records: `kept` None for none of them."""
    if batch.frame is None:
        return None
    parts = [batch.frame]
    for index, item in places(batch):
        recorded = kept is not None and "record" in kept[index]
        own = batch.refused[index].repeatable if item is None else item.repeatable
        parts.append(b"" if recorded or own is None else own)
    return b"\x00".join(parts)


def joined(operation_id: str, bodies: Sequence[bytes]) -> bytes:
    """The body of a batch's answer."""
    return b'{"operation_id":' + dumps(operation_id) + b',"results":[' + b",".join(bodies) + b"]}"


def kept_of(record: Record) -> list[Document] | None:
    """The entries of a batch's record; None for a batch that failed as a whole."""
    if record.state == FAILED:
        return None
    kept: list[Document] = orjson.loads(record.stored or b'{"items":[]}')["items"]
    return kept


def replay_batch(states: States, batch: BatchCommand, record: Record) -> Answer:
    """The first outcome again; DuplicateOperation for other content, of an erased item the erasure's error."""
    home = states[batch.scope.scope_key]
    check_comparable(record)
    kept = kept_of(record)
    count = len(batch.items) + len(batch.refused)
    if kept is not None and len(kept) != count:
        raise DuplicateOperation(details={"operation_id": record.operation_id})
    own = repeatable(batch, kept)
    if own is not None and not matches(record.salt, own, record.fingerprint):
        raise DuplicateOperation(details={"operation_id": record.operation_id})
    headers = positions(home, record.last_seq)
    if batch.attempts == 0:
        headers[HEADER_REPLAYED] = "true"
    if kept is None:
        return Answer(record.status, record.stored or b"{}", headers)
    bodies: list[bytes] = []
    for index, item in places(batch):
        if "error" in kept[index]:
            bodies.append(dumps({"error": kept[index]["error"]}))
            continue
        result = _item_again(states, item, kept[index], record)
        if batch.atomic and result.status >= 400:
            return failed_item(batch, index, result)
        bodies.append(result.body)
    return Answer(record.status, joined(record.operation_id, bodies), headers)


def _item_again(states: States, item: Command | None, entry: Document, record: Record) -> Answer:
    """An item's outcome from its own record, if the item is the same as then."""
    changed = DuplicateOperation(details={"operation_id": record.operation_id})
    if item is None:
        raise changed
    state = states[item.scope.scope_key]
    known = state.records.get(bytes.fromhex(entry["record"]))
    if known is None or item.scope.scope_id != entry["scope_id"]:
        raise changed
    if found_record(state, item) is known:
        comparable = known.salt is not None and item.repeatable is not None
        if comparable and not matches(known.salt, item.repeatable or b"", known.fingerprint):
            raise changed
    elif item.source_hash is not None:
        try:
            check_source(state, item)
        except DuplicateOperation:
            raise changed from None
        except PamspecError as error:
            return refusal(error, known.operation_id)
    return result_of(state, known)


def result_of(state: ScopeState, record: Record) -> Answer:
    """An item's outcome; of an erased one the error that says so."""
    try:
        return outcome(state, record)
    except PamspecError as error:
        return refusal(error, record.operation_id)


def rebuilt(record: Record, find: Find) -> bytes:
    """The body of a committed batch from its record and those of its items."""
    bodies: list[bytes] = []
    for entry in kept_of(record) or []:
        found = find(entry) if "record" in entry else None
        bodies.append(dumps({"error": entry["error"]}) if found is None else result_of(*found).body)
    return joined(record.operation_id, bodies)


def failed_item(batch: BatchCommand, index: int, result: Answer) -> Answer:
    """The error of an atomic batch: that of the item that failed, with its index."""
    document = orjson.loads(result.body)
    document["error"]["details"]["index"] = index
    document["error"]["operation_id"] = batch.operation_id
    return Answer(result.status, dumps(document), dict(result.headers))
