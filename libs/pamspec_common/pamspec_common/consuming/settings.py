"""Settings of a service that consumes the ledger."""

from __future__ import annotations

from pydantic import Field

from pamspec_common.settings import CommonSettings


class ConsumingSettings(CommonSettings):
    """What a consumer needs beyond the common settings."""

    consumer_lease_ms: int = Field(default=10_000, ge=100, le=300_000)
    """How long a partition stays with a process that says nothing."""
    consumer_lease_poll_ms: int = Field(default=1000, ge=10)
    """How often leases are renewed and free partitions looked for; well below the lease."""
    consumer_heads_ms: int = Field(default=1000, ge=10)
    """How often all heads are compared with what took effect; a loss on the bus is noticed within two comparisons."""
    consumer_batch: int = Field(default=1000, ge=1, le=5000)
    """Messages that take effect in one transaction at most."""
