"""Fills scopes, ledger and outbox by SQL as a commit does, and reads a stream back to compare."""

from __future__ import annotations

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import asyncpg
from nats.aio.client import Client

from pamspec_common import ids, streams
from pamspec_common.bus import ledger_subject
from pamspec_common.streams import StoredMessage

TENANT = "tenant:relay-tests"
EVENT_TYPE = "object_created"

INSERT_SCOPES_SQL = """
WITH made AS (
  INSERT INTO core.scope (scope_key, tenant_id, scope_id, tenant_token, scope_token, partition, document, ledger_id,
                          created_at)
  SELECT nextval('core.scope_key'), $1, r.scope_id, $2, r.scope_token, $3, '{}', uuid_send(gen_random_uuid()),
    clock_timestamp()
  FROM unnest($4::text[], $5::text[]) AS r(scope_id, scope_token) RETURNING scope_key, scope_id, scope_token)
, heads AS (
  INSERT INTO core.scope_head (scope_key, last_hash, last_at) SELECT scope_key, '\\x00', clock_timestamp() FROM made)
SELECT scope_key, scope_id, scope_token FROM made"""

COMMIT_SQL = """
WITH given AS (
  SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bytea[], $5::text[], $6::smallint[])
    WITH ORDINALITY AS r(scope_key, sequence, event_id, event, subject, partition, n)),
heads AS (
  UPDATE core.scope_head h SET last_seq = g.upto, revision = revision + 1, last_at = clock_timestamp()
  FROM (SELECT scope_key, max(sequence) AS upto FROM given GROUP BY scope_key) g WHERE h.scope_key = g.scope_key),
entries AS (
  INSERT INTO core.ledger (scope_key, sequence, event_id, event_type, recorded_at, event, entry_hash)
  SELECT scope_key, sequence, event_id, 'object_created', clock_timestamp() - $7::interval, event, sha256(event)
  FROM given)
INSERT INTO relay.outbox (partition, scope_key, sequence, event_id, ledger_epoch, subject, message)
SELECT partition, scope_key, sequence, event_id, 1, subject, event FROM given ORDER BY n"""


@dataclass
class Scope:
    """A scope of the test and what was committed to it."""

    scope_key: int
    scope_id: str
    scope_token: str
    partition: int
    tenant_token: str = ids.subject_token(TENANT)
    last_seq: int = 0
    events: list[str] = field(default_factory=list)


Row = tuple[int, int, str, bytes, str, int]


class Ledger:
    """Commits to the store as the write service does: ledger, head and outbox in one transaction."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self.conn: asyncpg.Connection[asyncpg.Record]
        self.scopes: list[Scope] = []

    async def open(self) -> None:
        """Connect, and make the tenant."""
        self.conn = await asyncpg.connect(self._dsn)
        await self.conn.execute("INSERT INTO core.tenant (tenant_id) VALUES ($1) ON CONFLICT DO NOTHING", TENANT)

    async def close(self) -> None:
        """Disconnect."""
        await self.conn.close()

    async def add_scopes(self, count: int, partition: int = 0) -> list[Scope]:
        """New empty scopes."""
        names = [f"scope:{len(self.scopes) + n}" for n in range(count)]
        tokens = [ids.subject_token(TENANT, name) for name in names]
        rows = await self.conn.fetch(INSERT_SCOPES_SQL, TENANT, ids.subject_token(TENANT), partition, names, tokens)
        made = [Scope(row["scope_key"], row["scope_id"], row["scope_token"], partition) for row in rows]
        self.scopes += made
        return made

    def rows(self, scopes: Sequence[Scope]) -> list[Row]:
        """One new event for each of these scopes, in this order."""
        rows: list[Row] = []
        for scope in scopes:
            scope.last_seq += 1
            event_id = ids.mint("evt")
            scope.events.append(event_id)
            digest = hashlib.sha256(event_id.encode()).hexdigest()
            event = (
                f'{{"event_id":"{event_id}","event_type":"{EVENT_TYPE}","object_id":"obj:{digest[:36]}",'
                f'"payload":{{"object_type":"observation","version_digest":"sha256:{digest}"}},'
                f'"sequence":{scope.last_seq},"scope_id":"{scope.scope_id}"}}'
            ).encode()
            subject = ledger_subject(scope.partition, scope.tenant_token, scope.scope_token, EVENT_TYPE)
            rows.append((scope.scope_key, scope.last_seq, event_id, event, subject, scope.partition))
        return rows

    async def insert(
        self,
        rows: Sequence[Row],
        conn: asyncpg.Connection[asyncpg.Record] | None = None,
        *,
        age: timedelta = timedelta(0),
    ) -> None:
        """Write rows in one statement, which commits unless the connection is in a transaction."""
        await (conn or self.conn).execute(COMMIT_SQL, *([row[n] for row in rows] for n in range(6)), age)

    async def commit(self, scopes: Sequence[Scope], client: Client | None = None) -> None:
        """One event for each scope named, in one transaction; then the wake-up."""
        rows = self.rows(scopes)
        await self.insert(rows)
        if client is not None:
            for partition in {scope.partition for scope in scopes}:
                await client.publish(f"pamspec.wake.{partition}")

    async def depth(self) -> int:
        """How many rows wait."""
        return int(await self.conn.fetchval("SELECT count(*) FROM relay.outbox"))

    async def drained(self, timeout_s: float = 20.0) -> None:
        """Wait until nothing waits."""

        async def empty() -> bool:
            return await self.depth() == 0

        await until(empty, timeout_s)


async def until(condition: Callable[[], Awaitable[bool]], timeout_s: float = 20.0, every_s: float = 0.01) -> None:
    """Wait for a condition; TimeoutError when it does not come."""
    async with asyncio.timeout(timeout_s):
        while not await condition():
            await asyncio.sleep(every_s)


async def stored(client: Client, partition: int = 0) -> list[StoredMessage]:
    """Everything that a partition's stream holds."""
    info = await streams.inspect(client, f"PAMSPEC_LEDGER_{partition}")
    assert info is not None
    return [message async for page in streams.read(client, info, 0) for message in page]


def by_scope(messages: Sequence[StoredMessage]) -> dict[str, list[tuple[int, str]]]:
    """(sequence, event id) of each scope token in stream order."""
    found: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for message in messages:
        headers = message.headers
        token = message.subject.split(".")[4]
        found[token].append((int(headers["Pamspec-Ledger-Sequence"]), headers["Pamspec-Event-Id"]))
    return found


def expected(scopes: Sequence[Scope]) -> dict[str, list[tuple[int, str]]]:
    """What the stream should hold of these scopes."""
    return {scope.scope_token: list(enumerate(scope.events, start=1)) for scope in scopes if scope.events}
