"""Settings of the subscription service."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, IPvAnyNetwork, SecretBytes, field_validator

from pamspec_common.settings import CommonSettings
from pamspec_subscription.webhooks.attempts import Patience
from pamspec_subscription.webhooks.secrets import Sealing
from pamspec_subscription.webhooks.targets import Targets, port_ranges
from pamspec_subscription.webhooks.terms import Terms

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
    lease_s: float = Field(default=10.0, gt=0, le=300)
    """How long a lease of a pushed subscription holds without renewal."""
    webhook_networks: tuple[IPvAnyNetwork, ...] = ()
    """Networks that webhooks may reach although they are not public; a JSON list of CIDRs in the environment."""
    webhook_http: bool = False
    """Whether webhooks may be plain http: anybody on the way reads them, and only the signature protects them."""
    webhook_ports: tuple[str, ...] = ("443", "8443")
    """Ports of webhooks, single or as ranges FIRST-LAST."""
    webhook_ca_file: Path | None = None
    """Certificates to trust for webhooks beside the system's."""
    webhook_keys: dict[str, SecretBytes] = Field(default_factory=dict)
    """kid -> key (32 bytes or more) that seals the secrets of webhooks in the database; JSON in the environment. The
    first seals, all open. Without any the database alone reveals them."""
    webhook_places: int = Field(default=1000, ge=0)
    """Endpoints that this process delivers to at once, each with at most one request under way; 0: none."""
    webhook_timeout_s: float = Field(default=15.0, gt=0)
    """How long an endpoint may take for its answer."""
    webhook_connect_s: float = Field(default=5.0, gt=0)
    webhook_retry_s: float = Field(default=1.0, gt=0)
    """The first pause after a failure; the next ones double, up to webhook_retry_limit_s."""
    webhook_retry_limit_s: float = Field(default=600.0, gt=0)
    webhook_parked_retry_s: float = Field(default=3600.0, gt=0)
    """The pause of a parked event; the longest Retry-After that is honoured."""
    webhook_attempts: int = Field(default=10, ge=1)
    """Failures in a row after which an event is parked."""
    webhook_refusals: int = Field(default=3, ge=1)
    """The same where the endpoint refuses for good (another 4xx, or a redirect)."""
    webhook_body_bytes: int = Field(default=1024 * 1024, ge=1024)
    """Where a body ends; one event may be larger."""
    webhook_log_rows: int = Field(default=1000, ge=1)
    """Attempts that the log of a subscription keeps."""
    webhook_log_s: float = Field(default=_WEEK_S, gt=0)
    """And for how long."""

    @field_validator("webhook_ports")
    @classmethod
    def _ports(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        port_ranges(value)
        return value

    @field_validator("webhook_keys")
    @classmethod
    def _long_enough(cls, value: dict[str, SecretBytes]) -> dict[str, SecretBytes]:
        if any(not kid or "\0" in kid or len(key.get_secret_value()) < 32 for kid, key in value.items()):
            raise ValueError("a key has a name and at least 32 bytes")
        return value

    def webhook_targets(self) -> Targets:
        """What webhooks may reach."""
        return Targets(self.webhook_networks, port_ranges(self.webhook_ports), self.webhook_http)

    def webhook_terms(self) -> Terms:
        """How webhooks are delivered."""
        keys = {kid: key.get_secret_value() for kid, key in self.webhook_keys.items()}
        patience = Patience(
            self.webhook_retry_s,
            self.webhook_retry_limit_s,
            self.webhook_parked_retry_s,
            self.webhook_attempts,
            self.webhook_refusals,
        )
        bounds = (self.webhook_places, self.webhook_body_bytes, self.webhook_log_rows)
        return Terms(self.webhook_targets(), Sealing(keys), patience, *bounds)
