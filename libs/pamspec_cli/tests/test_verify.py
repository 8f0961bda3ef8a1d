"""`pamspec verify` on a real store: what is whole passes, and every kind of tampering is found where it was done."""

import itertools
from collections.abc import AsyncIterator

import asyncpg
import pytest
import pytest_asyncio

from libs.conftest import Product
from pamspec_cli.commands.verify import check_scope
from pamspec_cli.verification import ScopeCheck
from pamspec_client import AsyncClient

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

    async def check(self) -> ScopeCheck:
        return await check_scope(self.connection, self.scope_id, self.scope_key)

    async def found(self) -> list[tuple[int, str]]:
        return [(finding.sequence, finding.what) for finding in (await self.check()).findings]


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
    assert (check.findings, check.entries, check.versions, check.erased) == ([], 7, 7, 1)


@pytest.mark.parametrize(
    ("statement", "sequence", "what"),
    [
        (
            "UPDATE core.version_private SET content = '{\"n\":9}' WHERE scope_key = $1 AND ledger_seq = 4",
            4,
            "the version's content is not what was committed",
        ),
        (
            "UPDATE core.version_private SET content = NULL WHERE scope_key = $1 AND ledger_seq = 4",
            4,
            "the version's content is missing, or should be",
        ),
        (
            "UPDATE core.version_private SET content = NULL, private = NULL, salt = NULL "
            "WHERE scope_key = $1 AND ledger_seq = 1",
            1,
            "content or provenance is missing and no entry tells of its erasure",
        ),
        (
            "UPDATE core.version_private SET content = '1' WHERE scope_key = $1 AND ledger_seq = 3",
            3,
            "the version is only half erased",
        ),
        (
            "UPDATE core.version SET metadata = metadata || ' '::bytea WHERE scope_key = $1 AND ledger_seq = 5",
            5,
            "the version's metadata is not what the entry names",
        ),
        (
            "UPDATE core.ledger SET event = event || ' '::bytea WHERE scope_key = $1 AND sequence = 2",
            2,
            "the chain breaks here",
        ),
        (
            "UPDATE core.ledger SET event_type = 'object_updated' WHERE scope_key = $1 AND sequence = 2",
            2,
            "event_type differs from the entry's bytes",
        ),
        ("DELETE FROM core.ledger WHERE scope_key = $1 AND sequence = 4", 5, "follows entry 3"),
        (
            "DELETE FROM core.ledger WHERE scope_key = $1 AND sequence = 7",
            6,
            "the scope's head says 7 entries, or another last hash",
        ),
        ("DELETE FROM core.version WHERE scope_key = $1 AND ledger_seq = 6", 6, "its version is gone"),
        ("DELETE FROM core.ledger WHERE scope_key = $1 AND sequence = 6", 0, "1 versions have no entry"),
    ],
)
async def test_tampering_is_found(store: Store, statement: str, sequence: int, what: str) -> None:
    await store.tamper(statement)
    assert (sequence, what) in await store.found()
