"""Settings of the delegation service."""

from __future__ import annotations

from pamspec_common.consuming.settings import ConsumingSettings


class Settings(ConsumingSettings):
    """What the delegation service needs beyond the common settings."""
