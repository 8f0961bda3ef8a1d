"""Forgetting what the stream has: outbox rows go and the position moves, in one statement, beside the publishing.

Invariant: a row is deleted only after its batch was acknowledged, together with the move of the position; until that
has committed its id stays in `ids`, which every read of the outbox leaves out.
"""

from __future__ import annotations

import asyncio

from pamspec_common.postgres import Connection
from pamspec_common.telemetry import metrics
from pamspec_relay import queries
from pamspec_relay.handlers.tenure import Tenure
from pamspec_relay.model import Doubt


class Settling:
    """Settles the acknowledged batches of a drain in order, on a connection of its own, all that wait at once."""

    def __init__(self, tenure: Tenure, conn: Connection, created: str) -> None:
        self._tenure, self._conn, self._created = tenure, conn, created
        self._landed: list[int] = []
        self._under_way: list[int] = []
        self._upto = 0
        self._closing = False
        self._arrived, self._emptied = asyncio.Event(), asyncio.Event()
        self._emptied.set()
        self._task = asyncio.create_task(self._run(), name=f"settling-{tenure.partition}")
        self._task.add_done_callback(lambda _: self._ended())
        self.settled = 0
        """Rows that are gone for good."""

    @property
    def ids(self) -> list[int]:
        """Acknowledged rows that may still be seen in the outbox."""
        return self._under_way + self._landed

    def add(self, ids: list[int], upto: int) -> None:
        """The stream has these rows, and stands at `upto`."""
        self._landed += ids
        self._upto = upto
        self._emptied.clear()
        self._arrived.set()

    async def room(self, limit: int) -> None:
        """Wait while more than `limit` rows are unsettled; raises what the settling has failed with."""
        self.check()
        while len(self._under_way) + len(self._landed) > limit:
            self._emptied.clear()
            await self._emptied.wait()
            self.check()

    def check(self) -> None:
        """Raise what the settling has failed with."""
        if self._task.done():
            self._task.result()

    async def close(self, timeout_s: float) -> None:
        """Begin nothing more; what is under way may finish in this time."""
        self._closing = True
        if self._under_way and not self._task.done():
            await asyncio.wait([self._task], timeout=timeout_s)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while not self._closing:
            await self._arrived.wait()
            self._arrived.clear()
            self._under_way, self._landed, upto = self._landed, [], self._upto
            claim = self._tenure.claim
            scope_keys = await queries.settle(self._conn, claim, self._created, upto, self._under_way)
            if scope_keys is None:
                raise Doubt("the position was changed by another")
            self._tenure.settled(self._tenure.lease, scope_keys, len(self._under_way))
            count = len(self._under_way)
            self._under_way = []
            self.settled += count
            self._tenure.status.stream_seq = upto
            partition = {"partition": str(self._tenure.partition)}
            metrics.RELAYED.add(count, partition)
            metrics.STREAM_SEQUENCE.set(upto, partition)
            self._emptied.set()

    def _ended(self) -> None:
        """A failure is raised where the drain looks next: wake it."""
        self._emptied.set()
        self._tenure.lease.wake.set()
