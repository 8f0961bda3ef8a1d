"""Settings of the write service."""

from __future__ import annotations

from pydantic import Field, SecretStr

from pamspec_common.settings import CommonSettings


class Settings(CommonSettings):
    """What the write service needs beyond the common settings."""

    key_pepper: SecretStr | None = None
    """The key under which gateways find API keys; without it no door makes any, only `pamspec keys` at the database."""
    lanes: int = Field(default=2, ge=1, le=64)
    """Group commits that may be under way at once; commands of one scope always share a lane."""
    batch_limit: int = Field(default=256, ge=1, le=4096)
    """Commands of one group commit at most."""
    batch_bytes: int = Field(default=8 * 1024 * 1024, ge=1)
    """Bytes after which a group commit takes no further command."""
    queue_limit: int = Field(default=10_000, ge=1)
    """Commands that may wait in one process before service_unavailable."""
    outbox_limit: int = Field(default=1_000_000, ge=1)
    """Rows that may wait for the bus before writes are refused."""
    outbox_alert: int = Field(default=50_000, ge=1)
    """Rows from which readiness shows the outbox as lagging."""
    hold_poll_ms: int = Field(default=1000, ge=10)
    """How often to look for legal holds whose objects have still to be moved."""
    hold_group: int = Field(default=100, ge=1, le=1000)
    """Objects that the job of legal holds moves at once."""
    hold_objects_per_s: float = Field(default=500.0, gt=0)
    """Objects per second, at most, that the job of legal holds moves in one process."""
    use_poll_ms: int = Field(default=5000, ge=10)
    """How often to look for uses of grants that are still to be told of."""
    deletion_poll_ms: int = Field(default=1000, ge=10)
    """How often to look for deleted scopes that are still to be erased."""
    deletion_versions: int = Field(default=1000, ge=1, le=10_000)
    """Versions that the erasure of a scope erases in one transaction."""
    deletion_pause_ms: float = Field(default=20.0, ge=0)
    """How long the erasure of a scope lets others work between two transactions."""
    forget_poll_ms: int = Field(default=500, ge=10)
    """How often to look for forgets that are still to be worked off."""
    forget_group: int = Field(default=200, ge=1, le=1000)
    """Objects that a forget erases at once."""
    commit_attempts: int = Field(default=8, ge=1)
    """How often a group commit is tried while the store restarts."""
    imports_at_once: int = Field(default=2, ge=1)
    """Imports that may be under way in one process; each holds a connection while its file is stored."""
    import_directory: str | None = None
    """Where the file of an import waits until it is checked; without it, where the system keeps such files."""
    import_max_bytes: int = Field(default=64 * 1024**3, ge=1)
    """The largest file that is taken."""
