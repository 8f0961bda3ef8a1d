"""Leases: which process owns which partition, on PostgreSQL's clock.

Invariant: a lease is one row with an epoch that only grows. The owner counts its time from before it asked, so it stops
earlier than PostgreSQL lets another in; what it might still do late is refused by the epoch and by the stream's fence.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Iterable
from datetime import timedelta

from pamspec_common.postgres import Connection
from pamspec_relay import queries
from pamspec_relay.model import LeaseLost, share
from pamspec_relay.queries import Claim

_log = logging.getLogger(__name__)


class Lease:
    """A lease that this process holds, or held."""

    def __init__(self, claim: Claim, until: float) -> None:
        self.claim = claim
        self._until = until
        self._lost = False
        self.ending = asyncio.Event()
        """Set when the owner should finish: its lease is lost, or it is to give the partition up."""
        self.wake = asyncio.Event()
        """Set when there may be something to do before the next poll."""

    @property
    def lost(self) -> bool:
        """Whether another process took it."""
        return self._lost

    def extend(self, until: float) -> None:
        """It was renewed."""
        self._until = until

    def lose(self) -> None:
        """Another process took it."""
        self._lost = True
        self.end()

    def end(self) -> None:
        """Ask the owner to finish."""
        self.ending.set()
        self.wake.set()

    def check(self) -> None:
        """LeaseLost unless it is certain that nobody else owns the partition yet."""
        if self._lost or time.monotonic() >= self._until:
            raise LeaseLost(f"the lease of partition {self.claim.partition} has run out")


async def renew(conn: Connection, leases: Iterable[Lease], owner: str, ttl_s: float) -> None:
    """Renew these leases; those that another took are told so."""
    held = [lease for lease in leases if not lease.lost]
    if not held:
        return
    asked = time.monotonic()
    kept = await queries.renew_leases(conn, [lease.claim for lease in held], owner, timedelta(seconds=ttl_s))
    for lease in held:
        if lease.claim.partition in kept:
            lease.extend(asked + ttl_s)
        else:
            _log.warning("lease lost", extra={"action": "lease_lost", "partition": lease.claim.partition})
            lease.lose()


async def confirm(conn: Connection, lease: Lease, ttl_s: float) -> None:
    """Renew one lease now; LeaseLost when another process took it."""
    await renew(conn, [lease], lease.claim.owner, ttl_s)
    lease.check()


async def take(
    conn: Connection, owner: str, partitions: Collection[int], held: Collection[int], members: int, ttl_s: float
) -> list[Lease]:
    """Leases of free partitions, up to this process's share."""
    room = share(len(partitions), members) - len(held)
    taken: list[Lease] = []
    if room <= 0:
        return taken
    for partition in (await queries.fetch_free(conn, [p for p in partitions if p not in held]))[:room]:
        asked = time.monotonic()
        epoch = await queries.take_lease(conn, partition, owner, timedelta(seconds=ttl_s))
        if epoch is not None:
            _log.info("lease taken", extra={"action": "lease_taken", "partition": partition})
            taken.append(Lease(Claim(partition, epoch, owner), asked + ttl_s))
    return taken


def surplus(partitions: Collection[int], held: Collection[int], members: int) -> list[int]:
    """Partitions that this process should give up so that others get their share."""
    return sorted(held)[share(len(partitions), members) :]
