"""`pamspec verify` on a real store: what is whole passes, and every kind of tampering is found where it was done."""

import itertools
import multiprocessing
from collections.abc import AsyncIterator

import asyncpg
import pytest
import pytest_asyncio

from libs.conftest import Product
from pamspec_cli import workers
from pamspec_cli.commands.verify import check_scope
from pamspec_cli.connection import Misused
from pamspec_client import AsyncClient
from pamspec_common.verification import walk
from pamspec_common.verification.rules import Chain

_numbers = itertools.count(1)


class Store:
    """One scope with five claims, of which the second was updated and the third deleted."""

    def __init__(self, connection: "asyncpg.Connection[asyncpg.Record]", scope_id: str, scope_key: int) -> None:
        self.connection, self.scope_id, self.scope_key = connection, scope_id, scope_key

    async def tamper(self, statement: str) -> None:
        """What only a superuser can do: change rows that accept INSERT alone. $1 is the scope's key."""
        async with self.connection.transaction():
            await self.connection.execute("SET LOCAL session_replication_role = replica")
            await self.connection.execute(statement, self.scope_key)

    async def check(self) -> Chain:
        return await check_scope(self.connection, self.scope_id, self.scope_key)

    async def found(self) -> list[tuple[int, str]]:
        return [(problem.sequence, problem.kind) for problem in (await self.check()).problems]


@pytest_asyncio.fixture
async def store(product: Product, agent_client: AsyncClient) -> AsyncIterator[Store]:
    scope_id = f"workspace:verify-{next(_numbers)}"
    await agent_client.create_scope(scope_id=scope_id, scope_kind="workspace")
    made = [
        await agent_client.create(
            scope_id=scope_id,
            object_type="claim",
            canonical_content={"n": number},
            provenance={"activity": "test"},
            object_id=f"obj:{number}",
        )
        for number in range(1, 6)
    ]
    await agent_client.update(
        scope_id=scope_id,
        object_id="obj:2",
        expected_version_id=made[1].version_id,
        canonical_content={"n": 22},
        provenance={"activity": "test"},
    )
    await agent_client.delete(
        scope_id=scope_id, object_id="obj:3", expected_version_id=made[2].version_id, policy_basis="asked for"
    )
    connection = await asyncpg.connect(product.database_url)
    key = await connection.fetchval("SELECT scope_key FROM core.scope WHERE scope_id = $1", scope_id)
    yield Store(connection, scope_id, key)
    await connection.close()


async def test_a_whole_ledger_passes_erasures_included(store: Store) -> None:
    check = await store.check()
    assert (check.problems, check.entries, check.versions, check.erased_versions) == ([], 7, 7, 1)


@pytest.mark.parametrize(
    ("statement", "sequence", "what"),
    [
        (
            "UPDATE core.version_private SET content = '{\"n\":9}' WHERE scope_key = $1 AND ledger_seq = 4",
            4,
            "content_differs",
        ),
        (
            "UPDATE core.version_private SET content = NULL WHERE scope_key = $1 AND ledger_seq = 4",
            4,
            "content_missing",
        ),
        (
            "UPDATE core.version_private SET content = NULL, private = NULL, salt = NULL "
            "WHERE scope_key = $1 AND ledger_seq = 1",
            1,
            "content_missing",
        ),
        (
            "UPDATE core.version_private SET content = '1' WHERE scope_key = $1 AND ledger_seq = 3",
            3,
            "content_differs",
        ),
        (
            "UPDATE core.version SET metadata = metadata || ' '::bytea WHERE scope_key = $1 AND ledger_seq = 5",
            5,
            "metadata_differs",
        ),
        (
            "UPDATE core.ledger SET event = event || ' '::bytea WHERE scope_key = $1 AND sequence = 2",
            2,
            "chain_broken",
        ),
        (
            "UPDATE core.ledger SET event_type = 'object_updated' WHERE scope_key = $1 AND sequence = 2",
            2,
            "entry_differs",
        ),
        ("DELETE FROM core.ledger WHERE scope_key = $1 AND sequence = 4", 4, "entry_missing"),
        (
            "DELETE FROM core.ledger WHERE scope_key = $1 AND sequence = 7",
            7,
            "entry_missing",
        ),
        ("DELETE FROM core.version WHERE scope_key = $1 AND ledger_seq = 6", 6, "version_missing"),
        ("DELETE FROM core.ledger WHERE scope_key = $1 AND sequence = 6", 6, "entry_missing"),
    ],
)
async def test_tampering_is_found(store: Store, statement: str, sequence: int, what: str) -> None:
    await store.tamper(statement)
    assert (sequence, what) in await store.found()


async def test_segments_in_several_processes_say_the_same(
    store: Store, product: Product, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walk, "SEGMENT_ROWS", 2)
    with workers.runner(product.database_url, 2) as runner:
        one = await store.check()
        several = await check_scope(store.connection, store.scope_id, store.scope_key, runner=runner)
        assert several.document() == one.document()
        assert several.tree.root() == one.tree.root()
        assert several.document()["ok"]
        await store.tamper("UPDATE core.version SET metadata = metadata || ' '::bytea WHERE scope_key = $1")
        await store.tamper("DELETE FROM core.ledger WHERE scope_key = $1 AND sequence = 3")
        several = await check_scope(store.connection, store.scope_id, store.scope_key, runner=runner)
        assert several.document() == (await store.check()).document()
        kinds = [(problem.sequence, problem.kind) for problem in several.problems]
        assert (2, "metadata_differs") in kinds
        assert (3, "entry_missing") in kinds


async def test_a_process_that_ends_ends_the_verification(
    store: Store, product: Product, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walk, "SEGMENT_ROWS", 2)
    with workers.runner(product.database_url, 2) as runner:
        await check_scope(store.connection, store.scope_id, store.scope_key, runner=runner)
        for child in multiprocessing.active_children():
            child.kill()
        with pytest.raises(Misused, match="--jobs 1"):
            await check_scope(store.connection, store.scope_id, store.scope_key, runner=runner)


def test_there_are_between_one_and_few_processes() -> None:
    assert 1 <= workers.default_jobs() <= workers.MOST
    with workers.runner("postgresql://nobody@127.0.0.1:1/none", 1) as runner:
        assert runner is None
