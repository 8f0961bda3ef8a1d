"""What operations on embedding spaces and vectors take."""

from __future__ import annotations

from typing import Literal, NotRequired, Required, TypedDict

from pamspec_client.requests.common import Common


class RegisterSpaceRequest(Common, total=False):
    """A descriptor, for good: the same again answers the same, another under its id is DuplicateOperation."""

    embedding_space_id: Required[str]
    provider: Required[str]
    model: Required[str]
    model_revision: Required[str]
    dimensions: Required[int]
    distance_metric: Required[Literal["cosine", "l2", "inner_product"]]
    normalization: Required[str]
    preprocessing_profile: Required[str]
    embedding_kind: Required[str]
    canonicalization_rules: Required[str]


class ListSpacesRequest(Common, total=False):
    """One page of spaces: `limit` of them (1 to 1,000) from `cursor` on."""

    embedding_space_id: str
    limit: int
    cursor: str | None


class VectorsOf(TypedDict):
    """The vectors of an object's version: one, or one for each of its chunks (none takes them away)."""

    object_id: str
    version_id: str
    vector: NotRequired[list[float]]
    vectors: NotRequired[list[list[float]]]


class PutVectorsRequest(Common, total=False):
    """Vectors of 1 to 1,000 objects, all of them or none."""

    scope_id: Required[str]
    embedding_space_id: Required[str]
    vectors: Required[list[VectorsOf]]


class SpaceOfScopeRequest(Common, total=False):
    """One embedding space of a scope."""

    scope_id: Required[str]
    embedding_space_id: Required[str]
