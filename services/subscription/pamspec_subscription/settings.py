"""Settings of the subscription service."""

from __future__ import annotations

from pydantic import Field

from pamspec_common.settings import CommonSettings

_WEEK_S = 7 * 24 * 3600.0


class Settings(CommonSettings):
    """What the subscription service needs beyond the common settings."""

    write_url: str = "http://127.0.0.1:8101"
    """The write service, when it runs in another process."""
    channel_buffer: int = Field(default=1000, ge=1, le=100_000)
    """Live frames that may wait for one channel; beyond it the channel reads from the ledger again."""
    channel_stall_s: float = Field(default=30.0, gt=0)
    """A channel whose client takes nothing for so long ends; so does one that overflows twice within that time."""
    channel_limit: int = Field(default=20_000, ge=1)
    """Open channels and waiting polls of one process; beyond it service_unavailable."""
    unacknowledged_limit_s: float = Field(default=_WEEK_S, gt=0)
    """A subscription whose oldest unacknowledged event is older closes, when nothing was acknowledged meanwhile."""
    nats_window: int = Field(default=1000, ge=1, le=10_000)
    """Unacknowledged events after which a channel over NATS waits."""
    keepalive_ms: int = Field(default=15_000, ge=100)
    """Interval of keepalives where a subscription names none."""
    heads_interval_s: float = Field(default=1.0, gt=0)
    """How often the heads of followed scopes are compared with the ledger: what a bus that is away costs at most."""
    follow_linger_s: float = Field(default=30.0, ge=0)
    """How long a scope stays followed after its last subscriber has left."""
    upkeep_interval_s: float = Field(default=10.0, gt=0)
    """How often half-opened, half-closed and long unacknowledged subscriptions are looked for."""
    lease_s: float = Field(default=10.0, gt=0)
    """How long a lease of a pushed subscription holds without renewal."""
