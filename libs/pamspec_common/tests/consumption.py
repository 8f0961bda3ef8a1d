"""A ledger, a stream filled by hand, and an effect that writes down what it took in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import orjson
from nats.aio.client import Client

import pamspec_common.consuming
from pamspec_common import contracts, streams
from pamspec_common.consuming.consumer import Consumer
from pamspec_common.consuming.model import Entry, Poison
from pamspec_common.consuming.settings import ConsumingSettings
from pamspec_common.postgres import Connection
from pamspec_common.service import Background
from services.relay.tests.ledger_rows import Ledger, Row, Scope, until

SCHEMA = "consuming_test"
TABLES = Path(pamspec_common.consuming.__path__[0]) / "tables.sql"
QUICK: dict[str, Any] = {
    "consumer_lease_ms": 1500,
    "consumer_lease_poll_ms": 50,
    "consumer_heads_ms": 200,
    "drain_s": 5.0,
}
PATIENT: dict[str, Any] = QUICK | {"consumer_heads_ms": 60_000}
"""Comparisons that never come: what takes effect came over the bus."""

_TAKE_SQL = f"""
INSERT INTO {SCHEMA}.taken (scope_key, sequence, event_id)
SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[])"""


@dataclass
class Remembering:
    """An effect: each entry becomes a row, in the order of the transactions."""

    poison: set[str] = field(default_factory=set)
    defect: set[str] = field(default_factory=set)
    entered: asyncio.Event = field(default_factory=asyncio.Event)
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.gate.set()

    async def apply(self, conn: Connection, entries: Sequence[Entry]) -> None:
        await conn.execute(
            _TAKE_SQL, [e.scope_key for e in entries], [e.sequence for e in entries], [e.event_id for e in entries]
        )
        self.entered.set()
        await self.gate.wait()
        for entry in entries:
            if entry.event_id in self.poison:
                raise Poison(entry.scope_key, entry.sequence, "not to be taken")
            if entry.event_id in self.defect:
                raise KeyError(entry.event_id)

    async def forget(self, conn: Connection, scope_key: int) -> None:
        await conn.execute(f"DELETE FROM {SCHEMA}.taken WHERE scope_key = $1", scope_key)

    async def committed(self, entries: Sequence[Entry]) -> None:
        return


async def make_tables(conn: asyncpg.Connection[asyncpg.Record]) -> None:
    """The consumer's tables and those of the effect. A second effect of an entry would stand there too."""
    await conn.execute(
        f"CREATE SCHEMA {SCHEMA}; SET search_path = {SCHEMA}; {TABLES.read_text()};"
        " CREATE TABLE taken (n bigserial, scope_key bigint, sequence bigint, event_id text); RESET search_path"
    )


@dataclass
class Consumption:
    """One test's ledger, bus and consumers."""

    ledger: Ledger
    client: Client
    settings: dict[str, Any]

    async def open(self) -> None:
        """Tables and stream."""
        await make_tables(self.ledger.conn)
        await streams.ensure(self.client, contracts.streams().stream_request("ledger", 0))

    @asynccontextmanager
    async def consumer(self, effect: Remembering | None = None, **overrides: Any) -> AsyncIterator[Consumer]:
        """A running consumer."""
        background = Background()
        settings = ConsumingSettings(**(self.settings | QUICK | overrides))
        consumer = Consumer("delegation", SCHEMA, settings, effect or Remembering())
        await consumer.start(background)
        try:
            yield consumer
        finally:
            await background.stop(5)
            await consumer.stop()

    async def commit(self, scopes: Sequence[Scope]) -> list[Row]:
        """One entry for each of these, in the ledger alone."""
        rows = self.ledger.rows(scopes)
        await self.ledger.insert(rows)
        return rows

    async def publish(self, rows: Sequence[Row], epoch: int = 1) -> None:
        """Store these on the stream, in this order."""
        for row in rows:
            headers = {
                "Pamspec-Event-Id": row[2],
                "Pamspec-Ledger-Epoch": str(epoch),
                "Pamspec-Ledger-Sequence": str(row[1]),
            }
            reply = await self.client.request(row[4], row[3], timeout=30, headers=headers)
            assert "error" not in orjson.loads(reply.data)

    async def taken(self) -> dict[int, list[tuple[int, str]]]:
        """By scope: what took effect, in order."""
        found: dict[int, list[tuple[int, str]]] = {}
        rows = await self.ledger.conn.fetch(f"SELECT scope_key, sequence, event_id FROM {SCHEMA}.taken ORDER BY n")
        for row in rows:
            found.setdefault(row["scope_key"], []).append((row["sequence"], row["event_id"]))
        return found

    async def all_taken(self, timeout_s: float = 60.0) -> None:
        """Wait until every entry of every scope took effect, and see that each did once and in order."""
        wanted = {scope.scope_key: scope.last_seq for scope in self.ledger.scopes if scope.last_seq}

        async def reached() -> bool:
            rows = await self.ledger.conn.fetch(f"SELECT scope_key, last_seq FROM {SCHEMA}.inbox")
            return {row["scope_key"]: row["last_seq"] for row in rows} == wanted

        await until(reached, timeout_s)
        assert await self.taken() == {
            scope.scope_key: list(enumerate(scope.events, start=1)) for scope in self.ledger.scopes if scope.events
        }

    async def info(self) -> dict[str, Any]:
        """What the server says of the durable consumer."""
        reply = await self.client.request("$JS.API.CONSUMER.INFO.PAMSPEC_LEDGER_0.delegation_0", b"", timeout=30)
        document: dict[str, Any] = orjson.loads(reply.data)
        return document

    async def pulling(self) -> None:
        """Wait until the durable consumer exists and somebody waits for its messages."""

        async def waits() -> bool:
            return bool((await self.info()).get("num_waiting"))

        await until(waits, 60)

    async def acknowledged(self) -> None:
        """Wait until nothing is pending any more."""

        async def none() -> bool:
            found = await self.info()
            return found.get("num_ack_pending") == 0 and found.get("num_pending") == 0

        await until(none, 60)
