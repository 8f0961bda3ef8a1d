"""The request documents of the operations; whatever else a request carries is invalid_request."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from pamspec_common.documents import Actor, CommonFields
from pamspec_common.embedding_spaces import MAX_DIMENSIONS
from pamspec_common.ids import Id
from pamspec_common.strict_json import LosslessFloat

_Vector = Annotated[list[float], msgspec.Meta(min_length=1, max_length=MAX_DIMENSIONS)]


class OfScope(CommonFields, kw_only=True):
    """A request about one scope."""

    scope_id: Id
    actor: Actor | None = None


class ListIndexes(OfScope, kw_only=True):
    """list_indexes."""


class OfIndex(OfScope, kw_only=True):
    """rebuild_index, drop_index and verify_index."""

    index_id: Id


class VectorsOf(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The vectors of one version of an object: one, or one for each of its chunks; none takes them away."""

    object_id: Id
    version_id: Id
    vector: _Vector | None = None
    vectors: Annotated[list[_Vector], msgspec.Meta(max_length=16)] | None = None


class PutVectors(OfScope, kw_only=True):
    """put_vectors."""

    embedding_space_id: Id | None = None
    vectors: Annotated[list[VectorsOf], msgspec.Meta(min_length=1, max_length=1000)]


class EmbedText(CommonFields, kw_only=True):
    """embed_text."""

    scope_id: Id | None = None
    embedding_space_id: Id
    text: Annotated[str, msgspec.Meta(max_length=100_000)]


class Reembed(OfScope, kw_only=True):
    """reembed."""

    embedding_space_id: Id


class DropVectors(OfScope, kw_only=True):
    """drop_vectors."""

    embedding_space_id: Id


def with_numbers(document: Any) -> Any:
    """A document of put_vectors whose vectors are numbers, not the tokens that strict JSON keeps."""
    if isinstance(document, dict) and "vectors" in document:
        return {**document, "vectors": _numbers(document["vectors"])}
    return document


def _numbers(value: Any) -> Any:
    """The same with numbers for the tokens that strict JSON keeps."""
    if isinstance(value, LosslessFloat):
        return float(value)
    if isinstance(value, list):
        return [_numbers(one) for one in value]
    return {name: _numbers(one) for name, one in value.items()} if isinstance(value, dict) else value
