"""Retention sweepers beside a real write service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from pamspec_cli.servers.databases import Database
from pamspec_common.peers import LocalPeer, Peer
from pamspec_common.service import Service
from pamspec_retention_sweeper.app import build
from pamspec_retention_sweeper.settings import Settings
from services.write.tests.writer import KEY, KID, Document, Writer


@dataclass
class World:
    """What a test works with."""

    database: Database
    writer: Writer
    services: list[Service] = field(default_factory=list)

    @property
    def peer(self) -> Peer:
        """The write service."""
        return LocalPeer(self.writer.service)

    def settings(self, **changes: Any) -> Settings:
        """Settings of a sweeper on this database."""
        given: Document = {
            "database_url": self.database.role("retention_sweeper"),
            "token_keys": {KID: KEY},
            "drain_s": 3.0,
            "retention_poll_ms": 50,
            "erasure_poll_ms": 50,
            "erasure_retry_s": 0.5,
        }
        return Settings(**(given | changes))

    async def sweeper(self, ahead: timedelta = timedelta(), write: Peer | None = None, **changes: Any) -> Service:
        """A started retention sweeper, whose clock may be ahead."""
        made = build(self.settings(**changes), write or LocalPeer(self.writer.service), ahead)
        await made.start()
        self.services.append(made)
        return made

    @asynccontextmanager
    async def sweeping(self, ahead: timedelta = timedelta(), **changes: Any) -> AsyncIterator[Service]:
        """A sweeper for as long as this lasts."""
        made = await self.sweeper(ahead, **changes)
        try:
            yield made
        finally:
            await made.stop()

    async def stop(self) -> None:
        """Stop what was started here."""
        for service in self.services:
            await service.stop()


async def until(met: Callable[[], Awaitable[bool]], within_s: float = 60.0) -> None:
    """Wait for something that somebody else does."""
    async with asyncio.timeout(within_s):
        while not await met():
            await asyncio.sleep(0.05)


@dataclass
class Garden:
    """A scope of one test, with a policy."""

    writer: Writer

    async def govern(self, *, version: int = 0, **rule: Any) -> None:
        """Give the scope a retention rule for all types."""
        request = {
            "scope_id": self.writer.scope,
            "policy": {"retention": {"default": rule}},
            "expected_policy_version": version,
            "policy_basis": "test",
        }
        await self.writer.ok("update_scope", request)

    async def head(self, of: Document) -> dict[str, Any]:
        """The states of an object now."""
        row = await self.writer.admin.fetchrow(
            "SELECT s.*, s.from_seq AS sequence FROM core.version_span s WHERE object_id = $1"
            " AND to_seq = 9223372036854775807 AND scope_key = $2",
            of["object_id"],
            await self.writer.scope_key(),
        )
        assert row is not None
        return dict(row)

    async def reaches(self, of: Document, **states: str) -> dict[str, Any]:
        """The head once it has these states."""

        async def met() -> bool:
            head = await self.head(of)
            return all(head[name] == state for name, state in states.items())

        await until(met)
        return await self.head(of)

    async def looked_at(self) -> None:
        """Wait until the sweeper has looked at everything, and nothing is due or under way."""
        key = await self.writer.scope_key()

        async def met() -> bool:
            found: bool = await self.writer.admin.fetchval(
                "SELECT r.followed_seq = h.last_seq AND r.policy_version = r.wanted_version AND r.leased_until < now()"
                " FROM retention.scope r JOIN core.scope_head h USING (scope_key) WHERE r.scope_key = $1",
                key,
            )
            return found

        await until(met)

    async def events(self) -> list[Document]:
        """What the sweeper has done, oldest first."""
        return [
            entry.event
            for entry in await self.writer.ledger()
            if entry.event["actor"]["actor_id"] == "service:retention_sweeper"
        ]
