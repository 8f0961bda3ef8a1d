"""Checkpoints: the tree of each scope whose ledger has grown grows too, and what it is now is signed and anchored.

Runs beside the draining and takes no lock: the write path does not wait for it, and whatever fails here is retried and
shows in readiness. A scope belongs to whoever holds its partition's lease. Invariant: nothing is signed that
contradicts what is anchored outside PostgreSQL; a scope whose ledger does is refused until an operator has signed what
it is now.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import nats.errors

from pamspec_common.checkpoint_bucket import CheckpointBucket, Entry, Held
from pamspec_common.checkpoint_files import CheckpointFiles
from pamspec_common.checkpoints import Checkpoint, Signer, hash_bytes, hash_text, is_signed, read
from pamspec_common.instants import wire
from pamspec_common.merkle import Frontier, Node, leaf_hashes
from pamspec_common.postgres import Connection
from pamspec_common.streams import StreamIncomplete, StreamRefused
from pamspec_common.telemetry import metrics
from pamspec_relay.queries import Claim
from pamspec_relay.queries import checkpoints as queries
from pamspec_relay.queries.checkpoints import ScopeState, Stored

_log = logging.getLogger(__name__)

SCOPES_AT_ONCE = 500
ENTRIES_AT_ONCE = 50_000
BUS_AWAY = (nats.errors.Error, StreamRefused, StreamIncomplete, TimeoutError, OSError)


class Refused(Exception):
    """The ledger of a scope contradicts its anchor; the message says how."""


@dataclass
class Grown:
    """A scope's tree as far as it has grown, and its signed checkpoint."""

    state: ScopeState
    frontier: Frontier
    nodes: Mapping[Node, bytes]
    checkpoint: Checkpoint
    anchored_at: int

    def entry(self) -> Entry:
        """What the bucket is to hold."""
        state = self.state
        return Entry(state.tenant_token, state.scope_token, self.checkpoint.document(), abs(self.anchored_at))

    def stored(self) -> Stored:
        """What the store is to hold."""
        found = self.checkpoint
        packed = self.frontier.to_bytes()
        return Stored(self.state.scope_key, found.size, packed, found.ledger_epoch, found.document(), self.anchored_at)


@dataclass
class Checkpointer:
    """Makes the checkpoints of the partitions that this process owns."""

    signer: Signer
    public_keys: Mapping[str, bytes]
    files: CheckpointFiles | None
    refused: dict[int, str] = field(default_factory=dict)
    """Scopes by key whose ledger contradicts their anchor, and how."""
    away: str = ""
    """Why the last round could not anchor."""
    _floors: dict[int, int] = field(default_factory=dict)

    async def advance(
        self, conn: Connection, bucket: CheckpointBucket | None, claim: Claim, scope_keys: Sequence[int]
    ) -> list[int]:
        """Bring these scopes of a partition up to their heads; those that are not there yet.

        Without a bucket, and when the bus fails, checkpoints reach files and the store alone.
        """
        states = await queries.fetch_states(conn, scope_keys)
        grown, behind = await self._grow(conn, [state for state in states if state.partition == claim.partition])
        await self._anchor(conn, bucket, grown)
        kept = [item for item in grown if item.state.scope_key not in self.refused]
        if self.files is not None and kept:
            await asyncio.to_thread(self.files.append, [item.checkpoint.document() for item in kept])
        if kept:
            nodes = {item.state.scope_key: item.nodes for item in kept}
            if await queries.store(conn, claim, [item.stored() for item in kept], nodes):
                metrics.CHECKPOINTS.add(len(kept), {"partition": str(claim.partition)})
        return behind

    async def _grow(self, conn: Connection, states: Iterable[ScopeState]) -> tuple[list[Grown], list[int]]:
        """The trees with what the ledgers have beyond them, up to a bound; and the scopes that have still more."""
        ranges: list[tuple[int, int, int]] = []
        due: list[ScopeState] = []
        behind: list[int] = []
        room = ENTRIES_AT_ONCE
        for state in states:
            if state.last_seq < state.size:
                self._refuse(state, f"its ledger ends at {state.last_seq}, a checkpoint of {state.size} was signed")
                continue
            upto = min(state.last_seq, state.size + room)
            if upto < state.last_seq:
                behind.append(state.scope_key)
            room -= upto - state.size
            if upto > state.size:
                ranges.append((state.scope_key, state.size, upto))
                due.append(state)
            elif state.size and (state.signed_epoch != state.ledger_epoch or state.anchored_at <= 0):
                due.append(state)
        hashes = await queries.fetch_hashes(conn, ranges) if ranges else {}
        wanted = {key: range(after + 1, upto + 1) for key, after, upto in ranges}
        grown = [self._grown(state, wanted.get(state.scope_key), hashes.get(state.scope_key, [])) for state in due]
        return [item for item in grown if item is not None], behind

    def _grown(self, state: ScopeState, wanted: range | None, hashes: list[tuple[int, bytes]]) -> Grown | None:
        frontier = Frontier.of_bytes(state.size, state.frontier)
        nodes: Mapping[Node, bytes] = {}
        if wanted is not None:
            if [sequence for sequence, _ in hashes] != list(wanted):
                self._refuse(state, f"its ledger has a gap between {wanted.start} and {wanted.stop - 1}")
                return None
            nodes = frontier.extend(leaf_hashes(entry_hash for _, entry_hash in hashes))
            head = hash_text(hashes[-1][1])
        else:
            assert state.document is not None
            head = read(state.document).head_hash
        checkpoint = self.signer.sign(
            Checkpoint(
                scope_id=state.scope_id,
                ledger_id=state.ledger_id.hex(),
                ledger_epoch=state.ledger_epoch,
                size=frontier.size,
                head_hash=head,
                root=hash_text(frontier.root()),
                made_at=wire(state.now),
                key_id="",
            )
        )
        return Grown(state, frontier, nodes, checkpoint, -abs(state.anchored_at))

    async def _anchor(self, conn: Connection, bucket: CheckpointBucket | None, grown: Sequence[Grown]) -> None:
        """Put the checkpoints into the bucket; what it says about each becomes the item's `anchored_at`."""
        ready = [item for item in grown if item.checkpoint.size >= self._floors.get(item.state.scope_key, 0)]
        if bucket is None or not ready:
            return
        for item in ready:
            self._floors.pop(item.state.scope_key, None)
        try:
            for item, sequence in zip(ready, await bucket.put([item.entry() for item in ready]), strict=True):
                item.anchored_at = sequence or item.anchored_at
                if sequence is None:
                    await self._reconcile(conn, bucket, item)
                else:
                    self.refused.pop(item.state.scope_key, None)
        except BUS_AWAY as error:
            self._is_away(f"{type(error).__name__}: {error}")
        else:
            self._is_away("")

    async def _reconcile(self, conn: Connection, bucket: CheckpointBucket, item: Grown) -> None:
        """Something else stands in the bucket than what was known: follow it where it says the same, or refuse."""
        state = item.state
        held = await bucket.get(state.tenant_token, state.scope_token)
        try:
            anchor = None if held is None else await self._checked(conn, item, held)
        except Refused as error:
            self._refuse(state, str(error))
            return
        item.anchored_at = -(held.sequence if held is not None else 0)
        if held is None:
            _log.error("anchor lost: %s", state.scope_id, extra={"action": "checkpoint_anchor_lost"})
            metrics.RELAY_ALARMS.add(1, {"kind": "checkpoint_anchor_lost"})
        elif anchor is not None and anchor.size > item.checkpoint.size:
            # The tree is being built anew; the bucket keeps the larger one until then.
            self._floors[state.scope_key] = anchor.size
            return
        (sequence,) = await bucket.put([item.entry()])
        if sequence is not None:
            item.anchored_at = sequence
            self.refused.pop(state.scope_key, None)

    async def _checked(self, conn: Connection, item: Grown, held: Held) -> Checkpoint | None:
        """What is anchored, None of a ledger that was given up for lost; Refused unless the ledger continues it."""
        state = item.state
        try:
            anchor = read(held.document)
        except ValueError:
            raise Refused("what the bucket holds is no checkpoint") from None
        if not is_signed(anchor, self.public_keys):
            raise Refused(f"what the bucket holds is not signed by a known key ({anchor.key_id})")
        if not anchor.size:
            return None
        if (anchor.scope_id, anchor.ledger_id) != (state.scope_id, state.ledger_id.hex()):
            raise Refused("the bucket holds the checkpoint of another ledger")
        if anchor.ledger_epoch > state.ledger_epoch:
            raise Refused(f"epoch {anchor.ledger_epoch} is anchored, the ledger is in epoch {state.ledger_epoch}")
        if anchor.size > state.last_seq:
            raise Refused(f"its ledger ends at {state.last_seq}, {anchor.size} entries are anchored")
        if await root_of(conn, state.scope_key, anchor.size) != hash_bytes(anchor.root):
            raise Refused(f"the first {anchor.size} entries of its ledger are not those that are anchored")
        return anchor

    def _refuse(self, state: ScopeState, reason: str) -> None:
        if self.refused.get(state.scope_key) != reason:
            text = "no checkpoint of %s: %s; see  pamspec verify"
            _log.error(text, state.scope_id, reason, extra={"action": "checkpoint_refused"})
            metrics.RELAY_ALARMS.add(1, {"kind": "checkpoint_refused"})
        self.refused[state.scope_key] = reason

    def _is_away(self, reason: str) -> None:
        if reason and reason != self.away:
            _log.warning("checkpoints not anchored: %s", reason, extra={"action": "checkpoint_not_anchored"})
        self.away = reason


async def root_of(conn: Connection, scope_key: int, size: int) -> bytes:
    """The root over the first `size` entries, from the ledger itself."""
    frontier = Frontier()
    while frontier.size < size:
        upto = min(size, frontier.size + ENTRIES_AT_ONCE)
        hashes = (await queries.fetch_hashes(conn, [(scope_key, frontier.size, upto)])).get(scope_key, [])
        if not hashes:
            break
        frontier.extend(leaf_hashes(entry_hash for _, entry_hash in hashes))
    return frontier.root()
