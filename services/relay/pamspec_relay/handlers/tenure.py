"""What an owner works with while it holds a partition."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from nats.aio.client import Client

from pamspec_common.postgres import Connection
from pamspec_common.telemetry import metrics
from pamspec_relay.handlers.lease import Lease
from pamspec_relay.model import CHAIN_MESSAGES, Entry
from pamspec_relay.publisher import Publisher
from pamspec_relay.queries import Claim
from pamspec_relay.settings import Settings

_log = logging.getLogger(__name__)


Settled = Callable[[Lease, Sequence[int], int], None]
"""Takes the lease, scope keys, and how many entries of theirs it was."""


@dataclass
class Status:
    """What readiness tells of a partition."""

    state: str = "starting"
    """starting, draining, repairing, retrying, halted."""
    reason: str = ""
    stream_seq: int = 0
    drift: list[str] = field(default_factory=list)

    def became(self, state: str, reason: str = "") -> None:
        """Change the state."""
        self.state, self.reason = state, reason


@dataclass
class Tenure:
    """One owner, one partition, one connection."""

    lease: Lease
    conn: Connection
    client: Client
    publisher: Publisher
    settings: Settings
    stream: Mapping[str, Any]
    """The stream's create request."""
    status: Status
    settled: Settled
    """Told of the scopes whose entries have reached the stream."""
    chain: int = CHAIN_MESSAGES

    @property
    def claim(self) -> Claim:
        """How statements name the lease."""
        return self.lease.claim

    @property
    def partition(self) -> int:
        """The partition's number."""
        return self.lease.claim.partition

    @property
    def stream_name(self) -> str:
        """The partition's stream."""
        return str(self.stream["name"])

    @property
    def max_age(self) -> timedelta:
        """How long the stream keeps a message."""
        return timedelta(microseconds=int(self.stream["max_age"]) // 1000)

    @property
    def young(self) -> timedelta:
        """An age at which no message has expired yet, whatever the difference between the clocks of the servers."""
        return self.max_age * 0.98

    @property
    def lease_s(self) -> float:
        """The time to live of a lease."""
        return self.settings.relay_lease_ms / 1000

    @property
    def timeout_s(self) -> float:
        """How long to wait for an answer of the bus."""
        return self.settings.relay_publish_timeout_ms / 1000

    async def publish(self, entries: list[Entry], last_seq: int) -> int:
        """Publish a batch and wait for it; the stream's new last sequence."""
        batch = self.publisher.prepare(entries, self.chain)
        self.lease.check()
        return await (await self.publisher.send(batch, last_seq))

    def alarm(self, kind: str, message: str) -> None:
        """Tell operators, by log and metric, of what should not happen in normal service."""
        _log.error("%s: %s", kind, message, extra={"action": f"relay_{kind}", "partition": self.partition})
        metrics.RELAY_ALARMS.add(1, {"kind": kind})
