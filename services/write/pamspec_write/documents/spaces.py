"""Requests about embedding spaces."""

from __future__ import annotations

from pamspec_common.documents import Pagination
from pamspec_common.embedding_spaces import Dimensions, Metric, SpaceId, Text
from pamspec_common.ids import Id
from pamspec_write.documents.administration import Administrative


class RegisterEmbeddingSpace(Administrative, kw_only=True):
    """The members of a descriptor, each as the descriptor has it."""

    embedding_space_id: SpaceId
    provider: Text
    model: Text
    model_revision: Text
    dimensions: Dimensions
    distance_metric: Metric
    normalization: Text
    preprocessing_profile: Text
    embedding_kind: Text
    canonicalization_rules: Text


class ListEmbeddingSpaces(Administrative, kw_only=True):
    embedding_space_id: Id | None = None
    pagination: Pagination | None = None
