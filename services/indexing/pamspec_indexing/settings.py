"""Settings of the indexing service."""

from __future__ import annotations

from pydantic import Field

from pamspec_common.consuming.settings import ConsumingSettings


class Settings(ConsumingSettings):
    """What the indexing service needs beyond the common settings."""

    write_url: str = "http://127.0.0.1:8101"
    """The write service, when it runs in another process: it records that an index was rebuilt."""
    index_cleaning_ms: int = Field(default=1000, ge=10)
    """How often to look for deleted scopes of which something is still indexed."""
