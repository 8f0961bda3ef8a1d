"""Embedding spaces, and vectors that clients bring."""

from __future__ import annotations

import msgspec

from pamspec_client.models.document import Document


class EmbeddingSpace(msgspec.Struct, kw_only=True):
    """What vectors of a space were made with; only vectors of one space can be compared (PAMSPEC P26-P31)."""

    embedding_space_id: str
    provider: str
    model: str
    model_revision: str
    dimensions: int
    distance_metric: str
    normalization: str
    preprocessing_profile: str
    embedding_kind: str
    canonicalization_rules: str
    created_at: str | None = None


class SpaceRegistered(Document, kw_only=True):
    """The answer to register_embedding_space."""

    operation_id: str
    embedding_space: EmbeddingSpace


class SpacePage(Document, kw_only=True):
    """A page of a tenant's spaces, by their ids."""

    embedding_spaces: list[EmbeddingSpace]
    next_cursor: str | None = None


class VectorsPut(Document, kw_only=True):
    """How many vectors of how many objects are stored."""

    embedding_space_id: str
    index_id: str
    objects: int
    vectors: int


class SpaceMoved(Document, kw_only=True):
    """What a space is to a scope from now on: current, shadow or retired."""

    embedding_space_id: str
    index_id: str
    state: str
