"""Embedding spaces: what must be equal for two vectors to be compared (PAMSPEC P26-P31).

Invariant: whether two vectors may be compared is decided by their embedding_space_id alone, never by dimensions, model,
provider or metric. A descriptor never changes, so what was decided by one holds for good.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

import msgspec

from pamspec_common.errors import EmbeddingSpaceMismatch, InvalidRequest
from pamspec_common.ids import ID_PATTERN

MAX_DIMENSIONS: Final = 16_000
"""What the store can hold of one vector."""
MAX_SPACES: Final = 1000
"""How many spaces a tenant may describe."""
INDEX_PREFIX: Final = "index:vector:"
LEAST: Final = 2.0**-24
"""The least number above 0 of half precision: a vector of smaller ones has no direction in an index."""
UNIT_TOLERANCE: Final = 1e-3
"""How far the length of a vector of a normalized space may be from 1: single precision and half precision pass."""

Metric = Literal["cosine", "l2", "inner_product"]
SpaceId = Annotated[str, msgspec.Meta(pattern=ID_PATTERN, max_length=200)]
Dimensions = Annotated[int, msgspec.Meta(ge=1, le=MAX_DIMENSIONS)]
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=1000, pattern=r"^[^\x00-\x1f\x7f]+\Z")]


class EmbeddingSpace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A descriptor (P30): its members but for when and by whom it was made."""

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


NAMES: Final = EmbeddingSpace.__struct_fields__


def described(members: dict[str, Any]) -> EmbeddingSpace:
    """The descriptor in a document that may hold more; InvalidRequest names what breaks its form."""
    try:
        return msgspec.convert({name: members[name] for name in NAMES if name in members}, EmbeddingSpace)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"The embedding space is not well described: {error}.") from None


def unknown_space(field: str = "embedding_space_id") -> EmbeddingSpaceMismatch:
    """The refusal of a space that the tenant has not described."""
    return EmbeddingSpaceMismatch(
        "No such embedding space exists here; register it first, or list the spaces.",
        details={"field": field, "reason": "unknown_space"},
    )


def check_vector(space: EmbeddingSpace, vector: Sequence[float], field: str = "vector") -> None:
    """Raise EmbeddingSpaceMismatch unless this can be a vector of the space (P27, P28): its dimensions and its length.

    Numbers are finite already where strict JSON was read; half precision must hold them too, as indexes do.
    """
    if len(vector) != space.dimensions:
        raise EmbeddingSpaceMismatch(
            f"A vector of this space has {space.dimensions} dimensions, this one {len(vector)}; send one of the space.",
            details={"field": field, "reason": "dimensions", "dimensions": space.dimensions},
        )
    length = math.sqrt(math.fsum(number * number for number in vector)) if all(map(_fits, vector)) else math.inf
    if not math.isfinite(length):
        raise InvalidRequest(
            "A number of the vector is beyond 65,504, which no index holds; scale the vector.",
            details={"field": field, "reason": "finite"},
        )
    if space.normalization == "l2" and abs(length - 1) > UNIT_TOLERANCE:
        raise EmbeddingSpaceMismatch(
            "Vectors of this space have the length 1; normalize this one, or use the space that it is of.",
            details={"field": field, "reason": "normalization"},
        )
    if space.distance_metric == "cosine" and all(abs(number) < LEAST for number in vector):
        raise EmbeddingSpaceMismatch(
            "A vector of zeros, or of numbers that no index tells from 0, has no direction; scale it, or send another.",
            details={"field": field, "reason": "zero"},
        )


def index_id(embedding_space_id: str) -> str:
    """The name of the index over a space's vectors."""
    return INDEX_PREFIX + embedding_space_id


def _fits(number: float) -> bool:
    return -65_504 <= number <= 65_504
