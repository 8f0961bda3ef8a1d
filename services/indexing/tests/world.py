"""An indexing service beside a real write service; whatever it answers is held against the contracts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import orjson

from pamspec_cli.servers.databases import Database
from pamspec_cli.servers.nats import NatsAddress
from pamspec_common.calls import Answer, Call
from pamspec_common.consuming.model import Entry
from pamspec_common.internal import answer as run
from pamspec_common.peers import LocalPeer
from pamspec_common.postgres import Connection, scoped
from pamspec_common.principal import Principal
from pamspec_common.service import Service
from pamspec_indexing.app import build
from pamspec_indexing.handlers.entries import Indexing
from pamspec_indexing.handlers.lexical import Lexical
from pamspec_indexing.settings import Settings
from services.write.tests.writer import AGENT, KEY, KID, Document, Writer, check_answer

PATIENCE_S = 60.0
ENTRIES_SQL = """
SELECT scope_key, sequence, event_id, event_type, event FROM core.ledger WHERE scope_key = $1 ORDER BY sequence"""
OBJECTS_SQL = """
SELECT object_id, kind, version_id, sequence, removed FROM index_.indexed_object WHERE scope_key = $1 ORDER BY 1"""


@dataclass
class World:
    """What a test works with."""

    database: Database
    writer: Writer
    bus: NatsAddress
    services: list[Service] = field(default_factory=list)

    async def service(self, **changes: Any) -> Service:
        """A started indexing service."""
        given: Document = {
            "database_url": self.database.role("indexing"),
            "nats_url": self.bus.url,
            "nats_nkey_seed": self.bus.service_seed,
            "token_keys": {KID: KEY},
            "drain_s": 3.0,
            "consumer_heads_ms": 50,
            "index_cleaning_ms": 50,
            "index_job_poll_ms": 20,
        }
        made = build(Settings(**(given | changes)), LocalPeer(self.writer.service))
        await made.start()
        self.services.append(made)
        return made

    async def stop(self) -> None:
        """Stop what was started here."""
        for service in self.services:
            await service.stop()


@dataclass
class Garden:
    """One scope, and what the indexes hold of it."""

    writer: Writer
    service: Service
    key: int
    conn: Connection
    """As the role of the service."""

    @classmethod
    async def made(cls, world: World, service: Service) -> Garden:
        """A new scope."""
        writer = await world.writer.afresh()
        conn = await asyncpg.connect(world.database.role("indexing"))
        return cls(writer, service, await writer.scope_key(), conn)

    async def close(self) -> None:
        """Give the connection back."""
        await self.conn.close()

    async def call(self, operation: str, document: Document, by: Principal = AGENT) -> Answer:
        """An answer of the service, valid by its contract."""
        signed = self.writer.signer.sign(by)
        answer = await run(self.service.operations, Call(operation, signed, orjson.dumps(document)))
        check_answer(operation, answer)
        return answer

    async def indexes(self) -> Document:
        """What list_indexes tells of the scope."""
        answer = await self.call("list_indexes", {"scope_id": self.writer.scope})
        assert answer.status == 200, answer.body
        found: Document = orjson.loads(answer.body)
        return found

    async def ok(self, operation: str, document: Document) -> Document:
        """The body of an answer that must be a success."""
        answer = await self.call(operation, document)
        assert answer.status == 200, answer.body
        body: Document = orjson.loads(answer.body)
        return body

    async def index(self, index_id: str = "index:lexical") -> Document:
        """The index as it is now."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for index in (await self.indexes())["indexes"]:
                    if index["index_id"] == index_id:
                        return dict(index)
                await asyncio.sleep(0.02)

    async def taken_in(self) -> None:
        """Wait until the consumer is at the head of the scope's ledger."""
        sql = "SELECT last_seq FROM index_.inbox WHERE scope_key = $1"
        head = len(await self.entries())
        async with asyncio.timeout(PATIENCE_S):
            while (await self.conn.fetchval(sql, self.key) or 0) < head:
                await asyncio.sleep(0.02)

    async def settled(self, index_id: str = "index:lexical") -> Document:
        """The index, once it has taken in all that the ledger holds now."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                found = await self.indexes()
                for index in found["indexes"]:
                    if index["index_id"] == index_id and not index["lag"]["events"]:
                        return dict(index)
                await asyncio.sleep(0.02)

    async def entries(self) -> list[Entry]:
        """The scope's ledger, as a consumer gets it."""
        return [Entry(*row) for row in await self.writer.admin.fetch(ENTRIES_SQL, self.key)]

    async def take(self, entries: Sequence[Entry]) -> None:
        """The effect of these entries, in one transaction."""
        async with scoped(self.conn, [self.key]):
            await Indexing([Lexical()]).apply(self.conn, entries)

    async def take_again(self, object_id: str) -> None:
        """The effect of the object's entries, as if nothing of it had been taken in."""
        async with scoped(self.conn, [self.key]):
            sql = "UPDATE index_.indexed_object SET sequence = sequence - 1 WHERE object_id = $1"
            await self.conn.execute(sql, object_id)
        await self.take(await self.entries())

    async def objects(self) -> list[tuple[str, str, int, bool]]:
        """What is indexed: id, version, its sequence and whether it was removed."""
        async with scoped(self.conn, [self.key]):
            rows = await self.conn.fetch(OBJECTS_SQL, self.key)
        return [(row["object_id"], row["version_id"], row["sequence"], row["removed"]) for row in rows]

    async def until_cleared(self) -> None:
        """Wait until nothing is indexed of a scope that was deleted."""
        async with asyncio.timeout(PATIENCE_S):
            while not await self.conn.fetchval("SELECT count(*) FROM index_.cleared WHERE scope_key = $1", self.key):
                await asyncio.sleep(0.02)
