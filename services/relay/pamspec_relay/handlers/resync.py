"""Reading the stream back: what an owner does first, and again after any doubt.

Invariant: afterwards the outbox holds exactly what the stream lacks, the position says so, and the sequence returned is
the fence of the next batch. Nothing is inferred from the last message alone or from an outbox id.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pamspec_common import streams
from pamspec_common.streams import StreamInfo
from pamspec_relay import queries
from pamspec_relay.handlers import lease, repair
from pamspec_relay.handlers.tenure import Tenure
from pamspec_relay.model import LeaseLost, Position, Seen, loss, purged, seen

_log = logging.getLogger(__name__)


async def resync(tenure: Tenure) -> Position:
    """Make sure of the lease, the stream and the position; repair the stream when it has lost events.

    Raises LeaseLost, Halted when the stream contradicts the ledger, Doubt or an error of the servers otherwise.
    """
    await lease.confirm(tenure.conn, tenure.lease, tenure.lease_s)
    ensured = await streams.ensure(tenure.client, tenure.stream, tenure.timeout_s)
    _report_drift(tenure, ensured)
    info = ensured.info
    position = await queries.adopt_position(tenure.conn, tenure.claim)
    if position is None and not await queries.holds_lease(tenure.conn, tenure.claim):
        raise LeaseLost(f"the lease of partition {tenure.partition} is another's")
    young = await young_sequence(tenure, info)
    await mark(tenure, info)
    lost = loss(position, info, young)
    if position is None or lost is not None:
        fresh = position is None and ensured.made
        position = await repair.repair(tenure, info, lost or "", fresh=fresh)
    else:
        position = await _read_back(tenure, info, position)
    tenure.status.stream_seq = position.stream_seq
    return position


async def _read_back(tenure: Tenure, info: StreamInfo, position: Position) -> Position:
    """Delete the outbox rows whose events the stream has beyond the position."""
    upto = position.stream_seq
    async for page in streams.read(tenure.client, info, position.stream_seq, tenure.timeout_s):
        ours = [item for item in map(seen, page) if item is not None]
        scopes = await queries.fetch_scopes(tenure.conn, tenure.partition, [item.scope_token for item in ours])
        known = await repair.judge(tenure, ours, scopes)
        upto = page[-1].sequence
        await _settle(tenure, info.created, upto, known)
        _log.info("read back", extra={"action": "relay_read_back", "partition": tenure.partition, "count": len(known)})
    if upto < info.last_seq:
        await _settle(tenure, info.created, info.last_seq, [])
    return Position(info.created, info.last_seq, position.first_seq, position.deleted)


async def _settle(tenure: Tenure, created: str, upto: int, known: Sequence[Seen]) -> None:
    if not await queries.settle_read_back(tenure.conn, tenure.claim, created, upto, known):
        raise LeaseLost(f"the position of partition {tenure.partition} is another's")


async def mark(tenure: Tenure, info: StreamInfo) -> None:
    """Note where the stream stands."""
    await queries.insert_mark(tenure.conn, tenure.claim, info.created, info.last_seq, tenure.max_age)


async def young_sequence(tenure: Tenure, info: StreamInfo) -> int | None:
    """Where the stream stood at the oldest note that is younger than what it keeps."""
    return await queries.fetch_young_mark(tenure.conn, tenure.partition, info.created, tenure.young)


async def still_whole(tenure: Tenure, position: Position, last_seq: int) -> StreamInfo | None:
    """The stream's state when it is what its owner left, else None: then it must be read back."""
    info = await streams.inspect(tenure.client, tenure.stream_name, tenure.timeout_s)
    if info is None or info.created != position.stream_created or info.last_seq != last_seq:
        return None
    if info.deleted > position.deleted:
        return None
    if info.first_seq > position.first_seq and purged(position.first_seq, info, await young_sequence(tenure, info)):
        return None
    return info


def _report_drift(tenure: Tenure, ensured: streams.Ensured) -> None:
    drift = [f"{item.setting}: {item.found!r} instead of {item.wanted!r}" for item in ensured.drift]
    if drift and drift != tenure.status.drift:
        tenure.alarm("stream_drift", f"{tenure.stream_name} differs from its contract in " + "; ".join(drift))
    tenure.status.drift = drift
