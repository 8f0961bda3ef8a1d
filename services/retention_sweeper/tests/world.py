"""Retention sweepers beside a real write service."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pamspec_cli.servers.databases import Database
from pamspec_common.peers import LocalPeer
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

    async def sweeper(self, **changes: Any) -> Service:
        """A started retention sweeper."""
        made = build(self.settings(**changes), LocalPeer(self.writer.service))
        await made.start()
        self.services.append(made)
        return made

    async def stop(self) -> None:
        """Stop what was started here."""
        for service in self.services:
            await service.stop()
