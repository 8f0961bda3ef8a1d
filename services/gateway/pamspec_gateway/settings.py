"""Settings of the gateway."""

from __future__ import annotations

from typing import ClassVar, Self

from pydantic import Field, SecretStr, model_validator

from pamspec_common.settings import CommonSettings
from pamspec_gateway.identity_tokens import MAX_SKEW_S, TokenIssuer

MIB = 1024 * 1024


class Settings(CommonSettings):
    """What the public door needs beyond the common settings."""

    public_door: ClassVar[bool] = True

    key_pepper: SecretStr
    """The key under which API keys are hashed; the same for every gateway and for `pamspec keys`."""
    key_cache_s: float = Field(default=20.0, ge=0, le=25)
    """How long a key that was found is trusted without another look at it, as long as no key was revoked."""
    key_watch_s: float = Field(default=0.25, gt=0, le=1)
    """How often to look whether a key was revoked: a revocation bites after this, on open channels too."""
    key_blind_s: float = Field(default=1.0, gt=0)
    """For how long found keys stay trusted while the database can't be asked whether any was revoked."""
    key_use_s: float = Field(default=15.0, gt=0)
    """How often to note which keys were used."""
    channel_recheck_s: float = Field(default=10.0, gt=0)
    """How long a channel may stay open after its key or token has expired."""
    key_guesses_per_s: float = Field(default=10.0, gt=0)
    key_guess_burst: int = Field(default=50, ge=1)
    """Wrong keys that one address may try; keys that have worked before are never held up by this."""
    token_issuers: list[TokenIssuer] = Field(default_factory=list)
    """Identity providers whose signed tokens are accepted; JSON in the environment."""
    token_skew_s: int = Field(default=30, ge=0, le=MAX_SKEW_S)
    """How far the clocks of issuers may be off."""
    write_url: str = "http://127.0.0.1:8101"
    query_url: str = "http://127.0.0.1:8102"
    subscription_url: str = "http://127.0.0.1:8103"
    delegation_url: str = "http://127.0.0.1:8104"
    indexing_url: str = "http://127.0.0.1:8105"
    relay_url: str | None = None
    """Only asked for its readiness."""
    retention_sweeper_url: str | None = None
    """Only asked for its readiness."""
    max_body_bytes: int = Field(default=16 * MIB, ge=1024)
    max_buffered_bytes: int = Field(default=256 * MIB, ge=1024)
    """Request bodies that may be in memory together; beyond it service_unavailable."""
    max_requests: int = Field(default=2048, ge=1)
    """Operations under way in this process; beyond it service_unavailable."""
    max_waiting: int = Field(default=20_000, ge=1)
    """Polls and channels that may wait in this process."""
    callout_nkey_seed: SecretStr | None = None
    """The seed of the user in the account AUTH that answers logins of agents to the bus; without it there are none."""
    callout_issuer_seed: SecretStr | None = None
    """The seed of the account key that the bus server trusts as the callout's issuer."""
    callout_xkey_seed: SecretStr | None = None
    """The seed of the curve key with which the server seals logins; unset where the server's `xkey` is."""
    system_nkey_seed: SecretStr | None = None
    """The seed of a user in the system account, to end connections of revoked keys; without it they end in time."""
    agents_account: str = "AGENTS"
    agent_login_s: float = Field(default=900.0, ge=2, le=86_400)
    """How long a connection to the bus may stand before the agent must log in again."""
    agent_recheck_s: float = Field(default=5.0, gt=0)
    """How often the keys of connected agents are looked at without a reason; after a revocation at once."""
    agent_adopt_s: float = Field(default=30.0, gt=0)
    """How often the servers are asked for connections that another gateway let in."""

    absence_step_ms: float = Field(default=8.0, ge=0, le=1000)
    """An answer that something is not there leaves a whole number of these after its request came; 0: at once."""
    max_turns: int = Field(default=256, ge=4)
    """Operations that the services are given at once; what is more waits here, tenant by tenant in turn."""
    valkey_url: SecretStr | None = None
    """Where gateways share their limits; without it each limits by itself."""
    limit_share_ms: int = Field(default=100, ge=10)
    """How often, at least, gateways tell one another what was spent."""
    limit_timeout_ms: int = Field(default=100, ge=1)
    """How long Valkey may take before the gateway goes on without it; no request waits for that."""
    quota_cache_s: float = Field(default=2.0, gt=0)
    """How long changed quotas may take until they hold here."""

    public_url: str | None = None
    """The address under which hosts reach the gateway, for OAuth metadata; else what the request was sent to."""
    mcp_origins: list[str] = Field(default_factory=list)
    """Origins of web pages that may use the MCP door, beside pages of this machine; JSON in the environment."""
    mcp_graph_scope: str = "workspace:default"
    """The scope whose knowledge graph is at /mcp/graph, where the address names no other."""
    mcp_session_idle_s: float = Field(default=300.0, gt=0)
    """A session of an MCP host without a request or stream for this long ends, and with it what it watches."""
    mcp_max_sessions: int = Field(default=10_000, ge=1)
    """Sessions of MCP hosts in this process; beyond it 503."""
    mcp_sessions_each: int = Field(default=100, ge=1)
    """Sessions of one principal of them; beyond it 429."""
    mcp_answer_tokens: int = Field(default=20_000, ge=4_000, le=200_000)
    """How large a result for an MCP host may be, a token for every three bytes; the rest comes by its cursor."""

    amp_scope: str = "workspace:amp"
    """The scope of each tenant that holds the cells of the AMP door."""
    amp_development_key: SecretStr | None = None
    """Development mode of the AMP door: requests without a key act by this one. Unset: they are refused."""
    amp_embedding_space: str | None = None
    """The embedding space by which searches of the AMP door compare; without it they go by words."""
    retention_poll_ms: int = Field(default=1000, ge=10)
    """How often the retention sweeper looks for what is due, as clients of the AMP door are told."""

    @property
    def serves_agents(self) -> bool:
        """Whether agents may log in to the bus here."""
        return self.callout_nkey_seed is not None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.serves_agents and (self.callout_issuer_seed is None or self.nats_nkey_seed is None):
            raise ValueError("PAMSPEC_CALLOUT_NKEY_SEED needs PAMSPEC_CALLOUT_ISSUER_SEED and PAMSPEC_NATS_NKEY_SEED")
        return self
