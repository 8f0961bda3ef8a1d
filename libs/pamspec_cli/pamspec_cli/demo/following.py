"""Followers of the demonstration, and what they must have received in the end.

Invariant: a follower is right when it received every acknowledged event exactly once, in ledger order.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from pamspec_client import AsyncClient, Event
from pamspec_client.documents import FollowChannel

Shown = Callable[["Follower", Event], None]


@dataclass(frozen=True)
class Acknowledged:
    """A write that was answered: its event."""

    event_id: str
    sequence: int


@dataclass(frozen=True)
class Verdict:
    """How a follower's events compare with the acknowledged ones."""

    scope_id: str
    channel: str
    received: int
    missing: list[str]
    repeated: int
    out_of_order: int
    others: int
    copies_dropped: int
    reconnects: int

    @property
    def ok(self) -> bool:
        """Every acknowledged event once, in order."""
        return not self.missing and not self.repeated and not self.out_of_order


@dataclass
class Follower:
    """One subscription, followed over one channel."""

    scope_id: str
    channel: FollowChannel
    subscription_id: str = ""
    received: list[tuple[str, int]] = field(default_factory=list)
    copies_dropped: int = 0
    reconnects: int = 0
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)

    async def open(self, client: AsyncClient) -> None:
        """Subscribe to the objects that are created in the scope, from its first entry on."""
        made = await client.subscribe(
            scope_id=self.scope_id,
            after_sequence=0,
            filter={"event_classes": ["object_created"]},
            channel=self.channel,
            include_content=True,
        )
        self.subscription_id = made.subscription_id

    async def run(self, client: AsyncClient, shown: Shown) -> None:
        """Receive until cancelled."""
        async with client.follow(self.subscription_id, channel=self.channel) as events:
            async for event in events:
                self.received.append((event.event_id, event.sequence))
                self.copies_dropped, self.reconnects = events.duplicates, events.reconnects
                self._arrived.set()
                shown(self, event)

    async def has(self, wanted: Sequence[Acknowledged], within_s: float) -> bool:
        """Whether all wanted events came within a time."""
        missing = {event.event_id for event in wanted}
        seen = 0
        try:
            async with asyncio.timeout(within_s):
                while True:
                    missing.difference_update(event_id for event_id, _ in self.received[seen:])
                    seen = len(self.received)
                    if not missing:
                        return True
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            return False

    def verdict(self, wanted: Sequence[Acknowledged]) -> Verdict:
        """The comparison with what was acknowledged in its scope."""
        ids = [event_id for event_id, _ in self.received]
        sequences = [sequence for _, sequence in self.received]
        known = set(ids)
        expected = {event.event_id for event in wanted}
        return Verdict(
            scope_id=self.scope_id,
            channel=self.channel,
            received=len(ids),
            missing=[event.event_id for event in wanted if event.event_id not in known],
            repeated=len(ids) - len(known),
            out_of_order=sum(1 for before, after in pairwise(sequences) if after <= before),
            others=len(known - expected),
            copies_dropped=self.copies_dropped,
            reconnects=self.reconnects,
        )
