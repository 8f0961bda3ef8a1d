"""The service's door to PostgreSQL: every connection and every transaction is taken here.

Invariants: a channel holds a connection only while a statement runs, never while its client takes something or while it
waits for events; channels together leave connections over for operations.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

from pamspec_common.authorization.loading import load_rights
from pamspec_common.authorization.rights import Stored
from pamspec_common.errors import ServiceUnavailable
from pamspec_common.postgres import KEYED_PLANS, Connection, Pool, close_pool, connection, create_pool, scoped
from pamspec_subscription.entries import Entry
from pamspec_subscription.matching import Matcher
from pamspec_subscription.model import SCAN_ROWS, Head
from pamspec_subscription.queries import ledger, webhooks
from pamspec_subscription.rights import Permitted
from pamspec_subscription.settings import Settings

_KEPT_FOR_OPERATIONS = 2
_FORGET_AT_ONCE = 10_000


@dataclass(frozen=True)
class Page:
    """A stretch of a scope's ledger: what the columns left of it, and how far it reaches."""

    entries: list[Entry]
    scanned_to: int
    head: Head


class Store:
    """Connections of one process."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._pool: Pool | None = None
        self._channels = asyncio.Semaphore(max(1, settings.pool_size - _KEPT_FOR_OPERATIONS))

    async def open(self) -> None:
        """Make the pool, and see that the schema is there."""
        self._pool = await create_pool(self._settings, "subscription", planner=KEYED_PLANS, content=True)
        async with self.session() as conn:
            await conn.fetchval("SELECT 1 FROM subscription.subscription LIMIT 1")

    async def close(self) -> None:
        """Close the pool, bounded."""
        await close_pool(self._pool)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Connection]:
        """A connection for an operation; ServiceUnavailable when none is free in time."""
        if self._pool is None:
            raise ServiceUnavailable("The service is starting; try again with the same key.")
        async with connection(self._pool, self._settings.pool_wait_ms) as conn:
            yield conn

    @asynccontextmanager
    async def for_channels(self) -> AsyncIterator[Connection]:
        """A connection for a channel or the upkeep, which queue for it without a limit of time."""
        async with self._channels, self.session() as conn:
            yield conn

    async def page(
        self, scope_key: int, tenant_id: str, after: int, limit: int, matcher: Matcher | None, to: int | None = None
    ) -> Page:
        """The next stretch of the ledger after a position, at most SCAN_ROWS long, with the head that bounds it."""
        async with self.for_channels() as conn:
            head = await ledger.head(conn, scope_key, tenant_id)
            return await read_page(conn, scope_key, after, head, limit, matcher, to)

    async def heads(self, scopes: Sequence[tuple[int, str]]) -> dict[int, Head]:
        """The heads of many scopes in one query."""
        async with self.for_channels() as conn:
            return await ledger.heads(conn, scopes)

    async def forget_deliveries(self, age: timedelta) -> None:
        """Delete what the logs of webhooks hold beyond an age."""
        async with self.for_channels() as conn:
            await webhooks.forget(conn, age, _FORGET_AT_ONCE)

    async def rights(self, tenant_id: str, scope_key: int, actors: Sequence[str]) -> Stored:
        """What is stored now of some actors' rights in a scope."""
        async with self.session() as conn:
            return await load_rights(conn, tenant_id, scope_key, actors)

    async def in_sight(self, scope_key: int, entries: Sequence[Entry], permitted: Permitted) -> list[Entry]:
        """Those of some entries that may be received."""
        if permitted.sight.everything:
            return [entry for entry in entries if permitted.viewer.sees(entry)]
        async with self.for_channels() as conn, scoped(conn, [scope_key]):
            return await ledger.in_sight(conn, scope_key, entries, permitted)

    async def envelopes(self, scope_key: int, version_ids: Sequence[str]) -> dict[str, bytes]:
        """The envelopes of versions by id."""
        async with self.for_channels() as conn, scoped(conn, [scope_key]):
            return await ledger.envelopes(conn, scope_key, version_ids)


async def read_page(
    conn: Connection, scope_key: int, after: int, head: Head, limit: int, matcher: Matcher | None, to: int | None = None
) -> Page:
    """The same on a connection that is held already; nothing is read where nothing can be."""
    bound = min(head.last_seq, after + SCAN_ROWS, head.last_seq if to is None else to)
    if bound <= after:
        return Page([], after, head)
    async with scoped(conn, [scope_key]):
        entries = await ledger.page(conn, scope_key, after, bound, limit, matcher)
    return Page(entries, entries[-1].sequence if len(entries) == limit else bound, head)
