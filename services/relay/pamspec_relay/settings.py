"""Settings of the relay."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, SecretStr

from pamspec_common.settings import CommonSettings


class Settings(CommonSettings):
    """What moving the outbox to the bus needs beyond the common settings."""

    relay_lease_ms: int = Field(default=5000, ge=200, le=300_000)
    """How long a partition stays with an owner that says nothing more: the longest gap after a crash."""
    relay_lease_poll_ms: int = Field(default=250, ge=20)
    """How often a relay looks for partitions without an owner: the gap after an orderly stop."""
    relay_poll_ms: int = Field(default=200, ge=10)
    """How often the outbox is read when no wake-up came."""
    relay_publish_timeout_ms: int = Field(default=5000, ge=50)
    """After this without an acknowledgement the owner reads the stream back instead of guessing."""
    relay_batch_messages: int = Field(default=1000, ge=1, le=1000)
    relay_batch_bytes: int = Field(default=2 * 1024 * 1024, ge=1024, le=4 * 1024 * 1024)
    relay_stream_check_ms: int = Field(default=2000, ge=20)
    """How often an owner asks whether its stream is still what it was."""
    relay_retry_ms: int = Field(default=1000, ge=10)
    """The longest pause before another try after a failure."""
    relay_gauge_ms: int = Field(default=1000, ge=20)
    """How often depth and age of the outbox are measured."""
    relay_alert_depth: int = Field(default=100_000, ge=1)
    """Waiting rows in one partition beyond which the outbox is not well; the count stops just above."""
    relay_alert_age_s: float = Field(default=60.0, gt=0)
    """Age of the oldest waiting row beyond which the outbox is not well."""
    stream_replicas: int | None = Field(default=None, ge=1, le=5)
    """Copies of each stream in a cluster; unset: as in the contract."""
    stream_max_age_s: int | None = Field(default=None, ge=1)
    """How long the bus keeps events; unset: as in the contract."""
    checkpoint_key: SecretStr | None = None
    """The Ed25519 key that signs checkpoints: base64 of 32 bytes; unset: none are made."""
    checkpoint_public_keys: dict[str, str] = Field(default_factory=dict)
    """key id -> public key in base64 of earlier signers; the present one need not be named."""
    checkpoint_dir: Path | None = None
    """Where checkpoints and the erasure log are also appended to files; unset: the bus alone holds them."""
    checkpoint_ms: int = Field(default=500, ge=10)
    """How long a scope's newest entries may wait for their checkpoint, beside the time that it takes."""
    checkpoint_events: int = Field(default=1000, ge=1)
    """So many new entries are not left waiting."""
    checkpoint_scan_ms: int = Field(default=5000, ge=10)
    """How often, at most, all heads of a partition are compared with their checkpoints."""
    erasure_log_ms: int = Field(default=1000, ge=10)
    """How often to look for erasures that are not in the erasure log yet."""
