"""What makes vectors: one interface for models of this machine and endpoints elsewhere."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

from pamspec_common.embedding_spaces import EmbeddingSpace
from pamspec_common.errors import ServiceUnavailable
from pamspec_common.service import Part

Kind = Literal["query", "passage"]
Vector: TypeAlias = "array[float]"


class Unavailable(ServiceUnavailable):
    """The embedder makes no vectors now; what waits is embedded when it does again."""


class Embedder(Protocol):
    """Makes vectors of one space."""

    @property
    def space(self) -> EmbeddingSpace:
        """The space that every vector is of."""

    @property
    def batch(self) -> int:
        """How many passages are asked for at once at most."""

    async def start(self) -> None:
        """Begin; what it needs may come up later."""

    async def stop(self) -> None:
        """End, bounded; twice is fine."""

    async def embed(self, texts: Sequence[str], kind: Kind, within_s: float) -> list[Vector]:
        """One vector for each text, in their order; Unavailable when there are none within the time."""

    def part(self) -> Part:
        """How it is, for readiness; never essential."""
