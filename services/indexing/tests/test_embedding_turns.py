"""The embedding loop before slow and failing embedders: what is made is kept, so that every turn gets on."""

from __future__ import annotations

import secrets
from array import array
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import pytest_asyncio

from pamspec_common.embedding_spaces import EmbeddingSpace
from pamspec_common.service import Part
from pamspec_indexing.embedding.embedder import Kind, Unavailable, Vector
from pamspec_indexing.handlers.embedding import Embedding
from pamspec_indexing.settings import Settings
from pamspec_indexing.store import Store
from services.indexing.tests.test_vectors import rows, space
from services.indexing.tests.world import Garden, World

LONG = "word " * 1500
"""Five chunks and more."""


@dataclass
class Slow:
    """An embedder of one text at a time that answers so many, and then no more (Embedder)."""

    space: EmbeddingSpace
    answers: int
    batch: int = 1
    asked: list[str] = field(default_factory=list)

    async def start(self) -> None:
        """Nothing to do."""

    async def stop(self) -> None:
        """Nothing to do."""

    async def embed(self, texts: Sequence[str], kind: Kind, within_s: float) -> list[Vector]:
        """The same direction for all."""
        if len(self.asked) >= self.answers:
            raise Unavailable("Enough.")
        self.asked.extend(texts)
        return [array("d", [1.0, 0.0, 0.0]) for _ in texts]

    def part(self) -> Part:
        """Well."""
        return Part("embedder", True, {}, False)


@pytest_asyncio.fixture(loop_scope="session")
async def store(world: World) -> AsyncIterator[Store]:
    """Connections of a loop of this test."""
    made = Store(Settings(database_url=world.database.role("indexing")))
    await made.open()
    yield made
    await made.close()


async def described(_key: int, _space: EmbeddingSpace) -> bool:
    return True


async def waiting(garden: Garden, many: int) -> EmbeddingSpace:
    """A space into which so many long texts wait to be embedded."""
    space_id = await space(garden)
    await garden.writer.admin.execute(
        "INSERT INTO index_.scope_space (scope_key, embedding_space_id, automatic, state)"
        " VALUES ($1, $2, true, 'current')",
        garden.key,
        space_id,
    )
    for _ in range(many):
        await garden.writer.create(LONG + secrets.token_hex(4))
    await garden.settled()
    assert await rows(garden, "embedding_queue") == many
    return EmbeddingSpace(space_id, "local", "axes", "1", 3, "cosine", "none", "none", "dense", "none")


async def test_a_turn_that_ends_early_has_done_an_object(garden: Garden, store: Store) -> None:
    """Much that is long never starts over: a turn without time makes one object, and the next goes on."""
    slow = Slow(await waiting(garden, 3), answers=1000)
    loop = Embedding(store, slow, described, 32, 1.0, turn_s=0.0)
    for left in (2, 1, 0):
        assert await loop.step()
        assert await rows(garden, "embedding_queue") == left
    assert len(slow.asked) == await rows(garden), "each chunk was made once"
    assert not await loop.step()


async def test_what_was_made_before_an_embedder_failed_is_kept(garden: Garden, store: Store) -> None:
    space_of = await waiting(garden, 3)
    chunks = 6
    slow = Slow(space_of, answers=chunks * 2 - 1)
    assert await Embedding(store, slow, described, 32, 1.0).step()
    assert await rows(garden, "embedding_queue") == 2
    assert await rows(garden) == chunks
