"""Settings of the query service."""

from __future__ import annotations

from pydantic import Field, SecretStr

from pamspec_common.settings import CommonSettings


class Settings(CommonSettings):
    """What the query service needs beyond the common settings."""

    write_url: str = "http://127.0.0.1:8101"
    """The write service, when it runs in another process."""
    indexing_url: str = "http://127.0.0.1:8105"
    """The indexing service, when it runs in another process; it makes vectors of the texts that are looked for."""
    rerank_url: str | None = None
    """An endpoint that takes {model, query, documents} and answers {results: [{index, relevance_score}]}; none: queries
    that ask for reranking keep their order, and say so. It is sent the beginning of up to rerank_depth versions."""
    rerank_model: str = "default"
    """What is sent as its model."""
    rerank_key: SecretStr | None = None
    """What is sent as its bearer token."""
    rerank_timeout_ms: int = Field(default=500, ge=1)
    """How long it may take; after it the order stays."""
    rerank_depth: int = Field(default=50, ge=1, le=200)
    """How many of the best candidates it is asked about."""
    query_timeout_ms: int = Field(default=5000, ge=1)
    """How long one statement of a query or history may run before invalid_request says what to narrow."""
    read_connections: int = Field(default=2, ge=1)
    """How many groups of reads by id may be under way; so many connections are never lent to queries."""
    read_group_bytes: int = Field(default=8 * 1024 * 1024, ge=1)
    """How much one group of reads may bring along before the rest of it waits for the next."""
    page_bytes: int = Field(default=8 * 1024 * 1024, ge=1024)
    """Where a page ends, whatever its limit."""
    floor_poll_ms: int = Field(default=20, ge=1)
    """How often the heads of scopes are looked at while a reader waits for its min_sequence."""
    hint_window: int = Field(default=10_000, ge=1)
    """How many of the newest objects are looked at to say whether the default filters made an answer empty."""
    hint_timeout_ms: int = Field(default=500, ge=1)
    """How long that may take; after it the answer comes without a hint."""
    reads_noted_s: float = Field(default=5.0, gt=0)
    """How often reads by id are noted for retention rules that ask when something was last read."""
    exports_at_once: int = Field(default=16, ge=1)
    """How many exports may be under way in one process; one that its client does not take costs a few MiB."""
    backup_days: int = Field(default=0, ge=0, le=36_500)
    """How many days backups of the store are kept, for the receipts of erasures; 0 where none are made."""
    checkpoint_public_keys: dict[str, str] = Field(default_factory=dict)
    """key id -> public key in base64 of those who sign checkpoints; without any no anchor is looked at."""
    anchor_wait_ms: int = Field(default=2000, ge=1)
    """How long a verification waits for the bus before its anchor counts as unreachable."""
