"""Settings that every service shares; each reads them once, in its `__main__`, from the environment.

All names start with PAMSPEC_. Secrets come from the environment or from files in the directory PAMSPEC_SECRETS_DIR, and
never appear in a representation or in the error about a value. `docs/settings.md` lists every setting of every service.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

from pydantic import Field, SecretBytes, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from pamspec_common.sealing import KeyRing, decoded
from pamspec_common.tls import TlsFiles


class CommonSettings(BaseSettings):
    """What every service needs to know."""

    model_config = SettingsConfigDict(
        env_prefix="PAMSPEC_",
        extra="ignore",
        frozen=True,
        hide_input_in_errors=True,
        secrets_dir=os.environ.get("PAMSPEC_SECRETS_DIR"),
    )

    public_door: ClassVar[bool] = False
    """Whether clients of every kind connect, so that no client certificate is asked for."""

    database_url: SecretStr = SecretStr("postgresql://localhost/pamspec")
    """PostgreSQL, as the role of the service."""
    pool_size: int = Field(default=8, ge=1)
    """Connections to PostgreSQL that one process may hold."""
    pool_wait_ms: int = Field(default=2000, ge=1)
    """How long a call may wait for a connection before service_unavailable."""
    statement_timeout_ms: int = Field(default=10_000, ge=1)
    lock_timeout_ms: int = Field(default=2000, ge=1)
    """How long a command may wait for the lock of a scope."""
    nats_url: str = "nats://127.0.0.1:4222"
    """The bus; several servers of a cluster are separated by commas."""
    nats_nkey_seed: SecretStr | None = None
    """The nkey seed as which services log in (account SVC)."""
    partitions: int = Field(default=1, ge=1, le=1024)
    """P: how many streams the ledger is spread over. New scopes use the current P; old ones keep theirs."""
    token_keys: dict[str, SecretBytes] = Field(default_factory=dict)
    """kid -> key for the signed principal between services; JSON in the environment. The first signs."""
    encryption_keys: dict[str, SecretBytes] = Field(default_factory=dict)
    """kid -> key (32 bytes in base64) that content is sealed with in the database; JSON in the environment. The first
    seals, all open. Without any nothing is sealed; whoever loses one loses what it sealed."""
    quota_defaults: dict[str, dict[str, int]] = Field(
        default={
            "tenant": {"requests_per_s": 200_000},
            "principal": {"requests_per_s": 100_000, "subscriptions": 10_000},
        }
    )
    """The quotas of tenants whose own say nothing (contracts/schemas/quotas.json); JSON in the environment."""
    host: str = "127.0.0.1"
    port: int = Field(default=0, ge=0, le=65535)
    tls_certificate: Path | None = None
    """PEM: the certificate chain that the service shows, to those who call it and to those whom it calls."""
    tls_key: Path | None = None
    """PEM: the key of that certificate."""
    tls_authorities: Path | None = None
    """PEM: whom it trusts when it calls services and the bus, and whose client certificates its inner door takes."""
    tls_callers: tuple[str, ...] = (
        "gateway",
        "write",
        "relay",
        "query",
        "subscription",
        "delegation",
        "indexing",
        "retention-sweeper",
    )
    """Names (DNS or URI, subject alternative) of which a client certificate must have one at an inner door; JSON."""
    drain_s: float = Field(default=10.0, gt=0)
    """How long a stop may wait for what is under way."""
    log_level: str = "INFO"
    denial_window_s: float = Field(default=60.0, gt=0)
    """How long refusals of one principal are gathered before an access_denied entry tells of them."""

    @model_validator(mode="after")
    def _tls_is_whole(self) -> CommonSettings:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("PAMSPEC_TLS_CERTIFICATE and PAMSPEC_TLS_KEY go together: set both or neither")
        if self.tls_certificate and not self.tls_authorities and not self.public_door:
            raise ValueError("set PAMSPEC_TLS_AUTHORITIES too: an inner door checks the certificates of its callers")
        return self

    def tls(self) -> TlsFiles | None:
        """The files of TLS; None where the settings name none."""
        if self.tls_certificate is None and self.tls_authorities is None:
            return None
        return TlsFiles(self.tls_certificate, self.tls_key, self.tls_authorities)

    def key_ring(self) -> KeyRing:
        """The key-encryption keys; ValueError for one that is not 32 bytes in base64."""
        return KeyRing({kid: decoded(kid, key.get_secret_value()) for kid, key in self.encryption_keys.items()})

    def token_key_bytes(self) -> dict[str, bytes]:
        """The token keys by kid."""
        return {kid: key.get_secret_value() for kid, key in self.token_keys.items()}
