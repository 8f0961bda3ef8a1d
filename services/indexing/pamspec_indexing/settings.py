"""Settings of the indexing service."""

from __future__ import annotations

from pydantic import Field

from pamspec_common.consuming.settings import ConsumingSettings


class Settings(ConsumingSettings):
    """What the indexing service needs beyond the common settings."""

    write_url: str = "http://127.0.0.1:8101"
    """The write service, when it runs in another process: it records that an index was rebuilt."""
    index_job_poll_ms: int = Field(default=500, ge=10)
    """How often to look for an index that is to be rebuilt, dropped or verified."""
    index_lag_s: float = Field(default=10.0, gt=0)
    """From this age of the oldest entry that is not indexed readiness shows the indexes as lagging."""
    index_cleaning_ms: int = Field(default=1000, ge=10)
    """How often to look for deleted scopes of which something is still indexed."""
