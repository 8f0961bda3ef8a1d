"""Indexes through the whole product: how far they are, rebuilt, and those of scopes that were imported or are runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest
import pytest_asyncio

from libs.conftest import Product
from pamspec_client import AsyncClient, EmbeddingSpaceMismatch
from pamspec_client.documents import Provenance
from pamspec_client.models import Index
from pamspec_client.requests import RegisterSpaceRequest, VectorsOf
from pamspec_common.analysis import sought

PATIENCE_S = 60.0
FOUND_SQL = "SELECT object_id FROM index_.lexical_candidates($1, $2, $3, $4, $5, NULL)"
KEY_SQL = "SELECT scope_key FROM core.scope WHERE scope_id = $1"
LEXICAL = "index:lexical"


@pytest_asyncio.fixture(loop_scope="session")
async def admin(product: Product) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    conn = await asyncpg.connect(product.database_url)
    yield conn
    await conn.close()


async def settled(client: AsyncClient, scope: str) -> Index:
    """The lexical index once nothing is behind and no job runs."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            for one in (await client.list_indexes(scope_id=scope)).indexes:
                if one.index_id == LEXICAL and not one.lag.events and (one.job is None or one.job.state == "done"):
                    return one
            await asyncio.sleep(0.05)


async def found(admin: asyncpg.Connection[asyncpg.Record], scope: str, text: str) -> set[str]:
    """The ids of what a text finds in a scope."""
    key = await admin.fetchval(KEY_SQL, scope)
    looked = sought(text)
    async with admin.transaction():
        await admin.execute(f"SET LOCAL pamspec.scope_keys = '{{{key}}}'")
        await admin.execute("SET LOCAL ROLE pamspec_query")
        rows = await admin.fetch(FOUND_SQL, key, looked.terms, looked.words, looked.languages, looked.phrases)
    return {row["object_id"] for row in rows}


async def planted(client: AsyncClient, scope: str) -> tuple[str, str]:
    """An object that says marigold again after a restore, and one that working memory became."""
    await client.create_scope(scope_id=scope, scope_kind="workspace")
    told: Provenance = {"activity": "told"}
    first = await client.create(
        scope_id=scope, object_type="claim", canonical_content="marigold at the gate", provenance=told
    )
    assert first.object_id is not None
    second = await client.update(
        scope_id=scope, object_id=first.object_id, expected_version_id=first.version_id,
        canonical_content="nothing at the gate", provenance=told,
    )  # fmt: skip
    await client.update(
        scope_id=scope, object_id=first.object_id, expected_version_id=second.version_id,
        restore_version_id=first.version_id, provenance=told,
    )  # fmt: skip
    draft = await client.create(
        scope_id=scope, object_type="working_memory", provenance=told,
        canonical_content={"task_ref": "task:1", "content": "maybe lavender"},
    )  # fmt: skip
    assert draft.object_id is not None
    promoted = await client.promote(
        scope_id=scope, source_object_id=draft.object_id, expected_version_id=draft.version_id,
        target_object_type="decision", target_canonical_content="lavender it is", provenance=told,
    )  # fmt: skip
    assert promoted.object.object_id is not None
    return first.object_id, promoted.object.object_id


async def test_what_was_restored_promoted_and_imported_is_found(
    agent_client: AsyncClient, admin: asyncpg.Connection[asyncpg.Record]
) -> None:
    """Restores and promotions take effect; a remapped import is indexed under its new name, and only there."""
    scope, copy = "workspace:indexed", "workspace:indexed-copy"
    first, promoted = await planted(agent_client, scope)
    await settled(agent_client, scope)
    assert await found(admin, scope, "marigold") == {first}
    assert promoted in await found(admin, scope, "lavender")
    assert await found(admin, scope, "nothing") == set()
    body = b"".join([piece async for piece in agent_client.export(scope_id=scope)])
    await agent_client.import_(body, remap={"scope_id": copy})
    await settled(agent_client, copy)
    assert len(await found(admin, copy, "marigold")) == 1
    assert len(await found(admin, copy, "lavender")) == len(await found(admin, scope, "lavender"))
    before = await found(admin, scope, "marigold")
    for deleted in before:
        version = (await agent_client.read(scope_id=scope, object_id=deleted)).version_id
        await agent_client.delete(scope_id=scope, object_id=deleted, expected_version_id=version, policy_basis="test")
    await settled(agent_client, scope)
    assert await found(admin, scope, "marigold") == set()
    assert len(await found(admin, copy, "marigold")) == 1


async def test_an_evaluation_s_scope_is_indexed_and_rebuilt(
    agent_client: AsyncClient, admin: asyncpg.Connection[asyncpg.Record]
) -> None:
    scope = "evaluation:indexed"
    await agent_client.create_scope(scope_id=scope, scope_kind="evaluation")
    made = await agent_client.create(
        scope_id=scope, object_type="claim", canonical_content="marigold", provenance={"activity": "told"}
    )
    await settled(agent_client, scope)
    assert await found(admin, scope, "marigold") == {made.object_id}
    started = await agent_client.rebuild_index(scope_id=scope, index_id=LEXICAL)
    assert started.job.kind == "rebuild"
    ended = await settled(agent_client, scope)
    assert ended.job is not None
    assert (ended.job.done, ended.state) == (1, "ready")
    assert await found(admin, scope, "marigold") == {made.object_id}
    checked = await agent_client.verify_index(scope_id=scope, index_id=LEXICAL)
    assert checked.job.kind == "verify"
    problems = (await settled(agent_client, scope)).job
    assert problems is not None
    assert problems.problems is not None
    assert (problems.problems.missing, problems.problems.stale, problems.problems.stray) == (0, 0, 0)


async def test_vectors_that_a_client_brings_are_searched_in_their_space(agent_client: AsyncClient) -> None:
    client, scope, space = agent_client, "workspace:own-vectors", "space:own-vectors:1"
    await client.create_scope(scope_id=scope, scope_kind="workspace")
    described: RegisterSpaceRequest = {
        "embedding_space_id": space,
        "provider": "own",
        "model": "own",
        "model_revision": "1",
        "dimensions": 3,
        "distance_metric": "cosine",
        "normalization": "none",
        "preprocessing_profile": "none",
        "embedding_kind": "dense",
        "canonicalization_rules": "none",
    }
    registered = await client.register_embedding_space(**described)
    assert registered.embedding_space.dimensions == 3
    page = await client.list_embedding_spaces(embedding_space_id=space)
    assert [one.embedding_space_id for one in page.embedding_spaces] == [space]
    made = [
        await client.create(scope_id=scope, object_type="claim", canonical_content=n, provenance={"activity": "told"})
        for n in range(2)
    ]
    await settled(client, scope)
    vectors: list[VectorsOf] = [
        {"object_id": str(one.object_id), "version_id": one.version_id, "vector": [1.0, float(n), 0.0]}
        for n, one in enumerate(made)
    ]
    put = await client.put_vectors(scope_id=scope, embedding_space_id=space, vectors=vectors)
    assert (put.objects, put.vectors) == (2, 2)
    found = await client.query(
        scope_id=scope,
        query={"kind": "semantic", "vector": [1.0, 1.0, 0.0], "trust": "working"},
        embedding_space_id=space,
    )
    assert [item.envelope.object_id for item in found.items] == [made[1].object_id, made[0].object_id]
    with pytest.raises(EmbeddingSpaceMismatch):
        await client.put_vectors(scope_id=scope, embedding_space_id=space, vectors=[{**vectors[0], "vector": [1.0]}])
    dropped = await client.drop_vectors(scope_id=scope, embedding_space_id=space)
    assert dropped.state == "retired"
