"""Settings of the delegation service."""

from __future__ import annotations

from pydantic import Field

from pamspec_common.consuming.settings import ConsumingSettings


class Settings(ConsumingSettings):
    """What the delegation service needs beyond the common settings."""

    write_url: str = "http://127.0.0.1:8101"
    """The write service, when it runs in another process: a check that uses a grant is a write."""
    valkey_url: str | None = None
    """Where processes share permissions; without it each has its own."""
    delegation_confirm_ms: int = Field(default=100, ge=0, le=500)
    """A permission is repeated only when the epochs that it rests on were read within this time."""
    delegation_lifetime_ms: int = Field(default=2000, ge=0, le=10_000)
    """After this time a permission is decided anew, whatever its epochs say: credentials of a grantor have none."""
