"""Settings of the retention sweeper."""

from __future__ import annotations

from pydantic import Field

from pamspec_common.settings import CommonSettings


class Settings(CommonSettings):
    """What the retention sweeper needs beyond the common settings."""

    write_url: str = "http://127.0.0.1:8101"
    """The write service, when it runs in another process: whatever is done to memory is a command of it."""
    retention_poll_ms: int = Field(default=1000, ge=10)
    """How often to look whether something is due."""
    retention_batch: int = Field(default=200, ge=1, le=1000)
    """Objects in one batch of commands at most."""
    retention_objects_per_s: int = Field(default=500, ge=1)
    """Objects that one process acts on each second at most."""
    retention_lease_s: float = Field(default=30.0, gt=0, le=300)
    """How long a scope stays with a process that says nothing."""
    erasure_poll_ms: int = Field(default=1000, ge=10)
    """How often to look for erasures that are to be verified."""
    erasure_group: int = Field(default=100, ge=1, le=1000)
    """Erasures that one transaction verifies at most."""
    erasure_retry_s: float = Field(default=30.0, gt=0)
    """The longest pause between two verifications of an erasure that is not settled."""
    retention_retry_s: float = Field(default=60.0, gt=0)
    """How long an object that was refused is left alone before it is looked at again."""
    page_deadline_s: float = Field(default=24 * 3600.0, gt=0)
    """How long after an erasure its bytes may stay in files of the store; readiness shows what is overdue."""
    page_rewrite_after_s: float = Field(default=12 * 3600.0, ge=0)
    """How long a relation waits for further erasures before it is written anew for all of them at once."""
    page_rewrite_bytes: int = Field(default=4 * 1024**3, ge=1)
    """The largest relation, with its indexes, that is written anew by itself: nobody reads or writes it meanwhile."""
    page_poll_s: float = Field(default=60.0, gt=0)
    """How often to look for relations that are due."""
