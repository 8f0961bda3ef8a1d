"""Repair: a stream that has lost events gets them again from the ledger, before the outbox drains.

Invariant: per scope, in ledger order, exactly the entries that are neither in the stream nor in the outbox nor older
than what the stream keeps. The position is set only at the end, so a repair that breaks off begins again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence

from pamspec_common import streams
from pamspec_common.bus import ledger_subject
from pamspec_common.streams import StreamInfo
from pamspec_common.telemetry import metrics
from pamspec_relay import queries
from pamspec_relay.handlers.tenure import Tenure
from pamspec_relay.model import Entry, Halted, LeaseLost, Position, Ranges, Seen, Span, fitting, pages, seen
from pamspec_relay.queries import ScopeFacts

_log = logging.getLogger(__name__)

Scopes = Mapping[tuple[str, str], tuple[int, int]]
"""(tenant token, scope token) -> (scope key, ledger epoch)."""


async def repair(tenure: Tenure, info: StreamInfo, reason: str, *, fresh: bool) -> Position:
    """Refill the stream; the position afterwards. `fresh` says that there was neither a stream nor a position."""
    tenure.status.became("repairing", reason)
    if not fresh:
        tenure.alarm("loss", f"{tenure.stream_name}: {reason}; it is compared with the ledger and refilled")
    present = await _present(tenure, info)
    facts = await queries.fetch_repair(tenure.conn, tenure.partition, tenure.max_age)
    last_seq = await _refill(tenure, info.last_seq, facts, present)
    stored = [
        Span(fact.scope_key, *both)
        for fact in facts
        for low, high in fact.waiting
        for both in present.get(fact.scope_key, Ranges()).common(low, high)
    ]
    position = Position(info.created, last_seq, info.first_seq, info.deleted)
    if not await queries.finish_repair(tenure.conn, tenure.claim, position, stored):
        raise LeaseLost(f"the position of partition {tenure.partition} is another's")
    count = last_seq - info.last_seq
    _log.info("repaired", extra={"action": "relay_repaired", "partition": tenure.partition, "count": count})
    metrics.RELAY_REPAIRED.add(count, {"partition": str(tenure.partition)})
    return position


async def _present(tenure: Tenure, info: StreamInfo) -> dict[int, Ranges]:
    """What the stream holds of each scope in the scope's current epoch."""
    present: dict[int, Ranges] = {}
    if info.messages == 0:
        return present
    scopes = await queries.fetch_scopes(tenure.conn, tenure.partition)
    async for page in streams.read(tenure.client, info, 0, tenure.timeout_s):
        ours = [item for item in map(seen, page) if item is not None]
        for item in await judge(tenure, ours, scopes):
            scope_key, _ = scopes[item.tenant_token, item.scope_token]
            present.setdefault(scope_key, Ranges()).add(item.sequence)
    return present


async def judge(tenure: Tenure, ours: Sequence[Seen], scopes: Scopes) -> list[Seen]:
    """The messages that stand for ledger entries in their current epoch.

    Halted when one contradicts the ledger: then the history on the bus is not the history in the store.
    """
    known = [
        item
        for item in ours
        if (scope := scopes.get((item.tenant_token, item.scope_token))) is not None and scope[1] == item.ledger_epoch
    ]
    keys = [scopes[item.tenant_token, item.scope_token][0] for item in known]
    contradiction = await queries.fetch_contradiction(
        tenure.conn, keys, [item.sequence for item in known], [item.event_id for item in known]
    )
    if contradiction is not None:
        scope_key, sequence, unknown = contradiction
        what = "an entry that the ledger does not have" if unknown else "another event than the ledger"
        raise Halted(
            f"fork: {tenure.stream_name} holds {what} at scope key {scope_key}, sequence {sequence};"
            " if the store was restored, stop the services and call  pamspec restored"
        )
    return known


async def _refill(tenure: Tenure, last_seq: int, facts: Sequence[ScopeFacts], present: Mapping[int, Ranges]) -> int:
    """Publish what is missing; the stream's last sequence afterwards."""
    by_key = {fact.scope_key: fact for fact in facts}
    for page in pages(_missing(facts, present), tenure.settings.relay_batch_messages):
        entries = [
            _entry(tenure.partition, by_key[key], sequence, event_id, event_type, event)
            for key, sequence, event_id, event_type, event in await queries.fetch_ledger(tenure.conn, page)
        ]
        while entries:
            count = fitting(
                (len(entry.message) for entry in entries),
                tenure.settings.relay_batch_messages,
                tenure.settings.relay_batch_bytes,
            )
            last_seq = await tenure.publish(entries[:count], last_seq)
            entries = entries[count:]
    return last_seq


def _missing(facts: Sequence[ScopeFacts], present: Mapping[int, Ranges]) -> Iterator[Span]:
    for fact in facts:
        there = Ranges()
        for low, high in (*present.get(fact.scope_key, ()), *fact.waiting):
            there.add(low, high)
        for low, high in there.missing(fact.floor + 1, fact.last_seq):
            yield Span(fact.scope_key, low, high)


def _entry(partition: int, fact: ScopeFacts, sequence: int, event_id: str, event_type: str, event: bytes) -> Entry:
    subject = ledger_subject(partition, fact.tenant_token, fact.scope_token, event_type)
    return Entry(subject, event_id, fact.ledger_epoch, sequence, event)
