"""A service whose tables are edited behind its back, and what verification says of them."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import asyncpg
import pytest

from pamspec_cli import composition, development
from pamspec_cli.__main__ import main
from pamspec_cli.data import DataDirectory
from pamspec_cli.deployment import Deployment
from pamspec_cli.servers import databases
from pamspec_cli.stack import servers
from pamspec_client import AsyncClient
from pamspec_client.documents import Provenance
from pamspec_common.ledger import entry_hash, genesis, version_digest
from pamspec_common.strict_json import dumps, loads

_numbers = itertools.count(1)
PROVENANCE: Provenance = {"activity": "test"}


class World:
    """A whole deployment on a database of its own, which can be stopped and started."""

    def __init__(self, data: DataDirectory, server_dsn: str, name: str, valkey_url: str) -> None:
        self.data, self.server_dsn, self.name = data, server_dsn, name
        self.dsn = databases.with_database(server_dsn, name)
        self._environment = {"PAMSPEC_DATABASE_URL": self.dsn, "PAMSPEC_VALKEY_URL": valkey_url}
        self._stack = AsyncExitStack()
        self.client: AsyncClient
        self.conn: asyncpg.Connection[asyncpg.Record]

    async def start(self) -> None:
        addresses = await self._stack.enter_async_context(servers(self.data, self._environment))
        deployment = Deployment.of(self.data, addresses, None)
        key = development.chosen_key(self.data)
        await development.ensure_principal(self.dsn, deployment.key_pepper.encode(), key)
        url = await self._stack.enter_async_context(composition.running(deployment))
        self.client = await self._stack.enter_async_context(AsyncClient(url, key.text))
        self.conn = await asyncpg.connect(self.dsn)
        self._stack.push_async_callback(self.conn.close)
        assert addresses.nats_seed is not None
        self.nats = addresses.nats_url, addresses.nats_seed

    async def stop(self) -> None:
        await self._stack.aclose()

    async def restart_on(self, prepare: Callable[[asyncpg.Connection[asyncpg.Record]], Awaitable[None]]) -> None:
        """Stop, do something to the databases of the server, start again."""
        await self.stop()
        admin = await asyncpg.connect(self.server_dsn)
        await prepare(admin)
        await admin.close()
        self._stack = AsyncExitStack()
        await self.start()

    async def scope(self) -> Ledger:
        """A scope with a history: seven entries, of which the fifth updates the second and the seventh deletes."""
        name = f"workspace:tampering-{next(_numbers)}"
        await self.client.create_scope(scope_id=name, scope_kind="workspace")
        made = [
            await self.client.create(scope_id=name, object_type="claim", canonical_content={"n": number},
                                     provenance=PROVENANCE, object_id=f"obj:{number}")
            for number in range(1, 5)
        ]  # fmt: skip
        for number, version in ((2, made[1]), (3, made[2])):
            await self.client.update(scope_id=name, object_id=f"obj:{number}", canonical_content={"n": number * 11},
                                     expected_version_id=version.version_id, provenance=PROVENANCE)  # fmt: skip
        await self.client.delete(
            scope_id=name, object_id="obj:4", expected_version_id=made[3].version_id, policy_basis="asked for"
        )
        key = await self.conn.fetchval("SELECT scope_key FROM core.scope WHERE scope_id = $1", name)
        ledger = Ledger(self, name, key)
        await ledger.anchored(7)
        return ledger


class Ledger:
    """A scope's tables in the hands of their owner."""

    def __init__(self, world: World, scope_id: str, key: int) -> None:
        self.world, self.scope_id, self.key = world, scope_id, key

    async def anchored(self, size: int) -> None:
        """Wait until the checkpoint of this size stands outside the store."""
        async with asyncio.timeout(60):
            while True:
                row = await self.world.conn.fetchrow(
                    "SELECT size, anchored_at FROM relay.checkpoint WHERE scope_key = $1", self.key
                )
                if row is not None and row["size"] == size and row["anchored_at"] > 0:
                    return
                await asyncio.sleep(0.02)

    async def edit(self, *statements: str) -> None:
        """As the owner, with the triggers disabled; $1 is the scope's key."""
        async with self.world.conn.transaction():
            for table in ("ledger", "version"):
                await self.world.conn.execute(f"ALTER TABLE core.{table} DISABLE TRIGGER insert_only")
            for statement in statements:
                await self.world.conn.execute(statement, *([self.key] if "$1" in statement else []))
            for table in ("ledger", "version"):
                await self.world.conn.execute(f"ALTER TABLE core.{table} ENABLE TRIGGER insert_only")

    async def rechain(self) -> None:
        """Make everything in PostgreSQL agree with the present rows: digests, numbers in events, hashes, the head."""
        conn = self.world.conn
        rows = await conn.fetch(
            "SELECT l.ctid, l.sequence, l.event, v.metadata FROM core.ledger l LEFT JOIN core.version v"
            " ON (v.scope_key, v.ledger_seq) = (l.scope_key, l.sequence) WHERE l.scope_key = $1 ORDER BY l.sequence",
            self.key,
        )
        last = genesis(await conn.fetchval("SELECT ledger_id FROM core.scope WHERE scope_key = $1", self.key))
        await conn.execute("ALTER TABLE core.ledger DISABLE TRIGGER insert_only")
        for ctid, sequence, stored, metadata in rows:
            event = loads(stored)
            event["sequence"] = sequence
            if metadata is not None:
                event["payload"]["version_digest"] = version_digest(metadata)
            changed = dumps(event)
            last = entry_hash(last, changed)
            await conn.execute(
                "UPDATE core.ledger SET event = $2, entry_hash = $3, event_id = $4, event_type = $5 WHERE ctid = $1",
                ctid, changed, last, event["event_id"], event["event_type"],
            )  # fmt: skip
        await conn.execute("ALTER TABLE core.ledger ENABLE TRIGGER insert_only")
        await conn.execute(
            "UPDATE core.scope_head SET last_seq = $2, last_hash = $3 WHERE scope_key = $1", self.key, len(rows), last
        )

    async def found(self) -> list[tuple[int, str]]:
        """What both verifiers say of the scope, which must be the same, and be said of this scope."""
        told = json.loads((await self.world.client.call("verify_ledger", {"scope_id": self.scope_id})).body)
        own = await verified(self.world, "--scope", self.scope_id)
        (scope,) = own["scopes"]
        assert own["ok"] == scope["ok"] == told["ok"] == (not told["problems"])
        assert scope["scope_id"] == told["scope_id"] == self.scope_id
        places = [[place for place in one["anchors"] if place["place"] == "bucket"] for one in (scope, told)]
        assert places[0] == places[1]
        kinds = [[(p["sequence"], p["kind"]) for p in one["problems"]] for one in (scope, told)]
        # The command looks into files as well, so it may find an anchor's problem twice.
        assert set(kinds[0]) == set(kinds[1])
        assert all(problem["detail"] for problem in told["problems"])
        return kinds[1]


async def verified(world: World, *arguments: str) -> dict[str, Any]:
    """`pamspec verify` as a process of its own would run it."""
    out: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PAMSPEC_DATABASE_URL", world.dsn)
        patch.setattr("builtins.print", lambda *texts, **_: out.append(" ".join(map(str, texts))))
        code = await asyncio.to_thread(main, ["verify", "--json", "--data", str(world.data.path), *arguments])
    document: dict[str, Any] = json.loads("\n".join(out))
    assert code == (0 if document["ok"] else 1)
    return document


async def command(world: World, *arguments: str) -> int:
    """A command on the world's store and data directory; its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PAMSPEC_DATABASE_URL", world.dsn)
        return await asyncio.to_thread(main, [*arguments, "--data", str(world.data.path)])


MOVE_DOWN = (
    "UPDATE core.ledger SET sequence = sequence - 1 WHERE scope_key = $1 AND sequence > 1",
    "UPDATE core.version SET ledger_seq = ledger_seq - 1 WHERE scope_key = $1 AND ledger_seq > 1",
    "UPDATE core.version_private SET ledger_seq = ledger_seq - 1 WHERE scope_key = $1 AND ledger_seq > 1",
    "UPDATE core.version_span SET from_seq = from_seq - 1, to_seq = CASE WHEN to_seq < 9223372036854775807"
    " THEN to_seq - 1 ELSE to_seq END WHERE scope_key = $1 AND from_seq > 1",
)
"""The rest closes the gap; the rows are few, so each takes a place that the one before has left."""


def removed(sequence: int) -> list[str]:
    """An entry with everything that it made is gone."""
    return [
        f"DELETE FROM core.{table} WHERE scope_key = $1 AND {column} = {sequence}"
        for table, column in (
            ("ledger", "sequence"),
            ("version", "ledger_seq"),
            ("version_private", "ledger_seq"),
            ("version_span", "from_seq"),
        )
    ]
