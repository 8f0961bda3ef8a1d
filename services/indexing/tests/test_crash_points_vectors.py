"""The connection dies before and after every statement that leads to vectors: the end is that of a calm run."""

from __future__ import annotations

from array import array
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import orjson
import pytest

from pamspec_common.consuming import queries as consuming
from pamspec_common.consuming.intake import Intake
from pamspec_common.embedding_spaces import EmbeddingSpace
from pamspec_common.postgres import connection
from pamspec_common.principal import TokenSigner
from pamspec_common.service import Part
from pamspec_indexing.embedding.embedder import Kind, Vector
from pamspec_indexing.handlers.embedding import Embedding
from pamspec_indexing.handlers.entries import Indexing
from pamspec_indexing.handlers.lexical import Lexical
from pamspec_indexing.handlers.spaces import Spaces
from pamspec_indexing.handlers.telling import Telling
from pamspec_indexing.handlers.vectors import Vectors
from services.indexing.tests.test_crash_points import Bench, Snapshot, bench, killer
from services.write.tests.writer import KEY, KID, TENANT

__all__ = ["bench", "killer"]

VECTORS_SQL = """
SELECT x.object_id, e.embedding_space_id, v.chunk, v.embedding::text, v.digest, v.truncated FROM index_.vectors v
JOIN index_.indexed_object x USING (scope_key, doc) JOIN core.embedding_space e USING (space_key) ORDER BY 1, 2, 3"""
REST_SQL = (
    "SELECT embedding_space_id, automatic, state, backfill FROM index_.scope_space ORDER BY 1",
    "SELECT index_id, ledger_epoch, sequence FROM index_.watermark ORDER BY 1",
    "SELECT embedding_space_id, doc FROM index_.embedding_queue",
    "SELECT embedding_space_id, doc FROM index_.embedding_untold",
)
OF_VECTORS = ("vectors", "scope_space", "embedding_queue", "embedding_untold")
OLD, NEW = "space:crash:old", "space:crash:new"


@dataclass
class Lengths:
    """An embedder by the length of a text (Embedder)."""

    space: EmbeddingSpace
    batch: int = 2

    async def start(self) -> None:
        """Nothing to do."""

    async def stop(self) -> None:
        """Nothing to do."""

    async def embed(self, texts: Sequence[str], kind: Kind, within_s: float) -> list[Vector]:
        """A direction for each length."""
        return [array("d", [1.0, float(len(text)), 0.0]) for text in texts]

    def part(self) -> Part:
        """Well."""
        return Part("embedder", True, {}, False)


@dataclass
class Vectoring:
    """What makes vectors of a bench's scope, step by step."""

    bench: Bench
    embedders: dict[str, Lengths] = field(default_factory=dict)

    @classmethod
    async def made(cls, bench: Bench) -> Vectoring:
        """With both spaces described."""
        found = cls(bench)
        for name in (OLD, NEW):
            space = EmbeddingSpace(name, "test", name, "1", 3, "cosine", "none", "none", "dense", "none")
            found.embedders[name] = Lengths(space)
            document = {member: getattr(space, member) for member in space.__struct_fields__}
            await bench.admin.execute(
                "INSERT INTO core.embedding_space (tenant_id, embedding_space_id, descriptor, dimensions,"
                " distance_metric, operation_id) VALUES ($1, $2, $3, 3, 'cosine', 'op:test') ON CONFLICT DO NOTHING",
                TENANT, name, orjson.dumps(document).decode(),
            )  # fmt: skip
        return found

    async def take_in(self) -> None:
        """Everything that the ledger holds, into the old space."""
        async with connection(self.bench.pool, 30_000) as conn:
            effect = Indexing([Lexical(), Vectors(OLD, lambda: None)])
            worker = Intake(conn, effect, "indexing")
            while places := await consuming.fetch_behind(conn, 0, 10):
                await worker.behind(places)

    async def embed(self, space_id: str) -> None:
        """What waits in a space, two objects in a turn, and what the ledger has to be told of it."""
        loop = Embedding(self.bench.store, self.embedders[space_id], _described, 2, 1.0)
        while await loop.step():
            continue
        telling = Telling(self.bench.store, self.bench.told.peer, TokenSigner(KID, KEY), 1.0)
        while await telling.step():
            continue

    async def fill(self) -> None:
        """From the ledger to vectors."""
        await self.take_in()
        await self.embed(OLD)

    async def move(self) -> None:
        """From the old space to the new one."""
        spaces = Spaces(self.bench.store, NEW, 1.0)
        await spaces.adopt()
        for _ in range(2):
            while await spaces.step():
                continue
            await self.embed(NEW)

    async def later(self) -> None:
        """What a dead process had taken is free again."""
        await self.bench.admin.execute("UPDATE index_.embedding_queue SET due_at = clock_timestamp()")

    async def wipe(self) -> None:
        """As before the first entry."""
        for table in OF_VECTORS:
            await self.bench.admin.execute(f"DELETE FROM index_.{table}")
        await self.bench.wipe()
        self.bench.told.events.clear()

    async def rows(self) -> Snapshot:
        """All that is there, but for numbers that are given and times."""
        found = [tuple(row) for row in await self.bench.admin.fetch(VECTORS_SQL)]
        for sql in REST_SQL:
            found += [tuple(row) for row in await self.bench.admin.fetch(sql)]
        return found

    async def everywhere(
        self, before: Callable[[], Awaitable[None]], run: Callable[[], Awaitable[None]], *, after: bool
    ) -> int:
        """Run killed around each statement and then to its end, from the same beginning; how many statements it has."""
        await self.wipe()
        await before()
        await run()
        calm = await self.rows()
        at = 0
        while True:
            await self.wipe()
            await before()
            reached = await self.bench.crash(run, at, after=after)
            await self.later()
            await run()
            assert await self.rows() == calm, (at, after)
            if not reached:
                return at
            at += 1


async def _described(_key: int, _space: EmbeddingSpace) -> bool:
    return True


async def _nothing() -> None:
    return


@pytest.mark.parametrize("after", [False, True])
async def test_vectors_end_the_same_wherever_they_were_killed(bench: Bench, after: bool) -> None:
    vectoring = await Vectoring.made(bench)
    assert await vectoring.everywhere(_nothing, vectoring.fill, after=after) > 25
    held = await vectoring.rows()
    assert {row[1] for row in held if len(row) == 6} == {OLD}
    assert set(bench.told.events.values()) == {"embedding_generated"}


@pytest.mark.parametrize("after", [False, True])
async def test_another_space_takes_over_wherever_it_was_killed(bench: Bench, after: bool) -> None:
    vectoring = await Vectoring.made(bench)
    assert await vectoring.everywhere(vectoring.fill, vectoring.move, after=after) > 20
    held = await vectoring.rows()
    assert {row[1] for row in held if len(row) == 6} == {NEW}
    assert (NEW, True, "current", None) in held
    assert not [row for row in held if OLD in row]
