"""Hints: what happened to a grant reaches every process over the bus, so that the next check looks again at once.

A hint that is lost costs nothing but the time for which a confirmation holds.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

import orjson
from nats.aio.client import Client
from nats.aio.msg import Msg

from pamspec_common import bus, contracts
from pamspec_common.instants import parse
from pamspec_common.service import Background
from pamspec_common.telemetry.metrics import DELEGATION_PROPAGATION
from pamspec_delegation.settings import Settings


class Hints:
    """One connection of the process."""

    def __init__(self, settings: Settings, told: Callable[[], None]) -> None:
        self._settings, self._told = settings, told
        self._client: Client | None = None

    async def run(self, background: Background) -> None:
        """Connect, however long it takes, and listen until the service stops."""
        self._client = await bus.connect(self._settings, "delegation")
        topic = contracts.streams().subjects["events"]
        for event_type in ("delegation_granted", "delegation_revoked"):
            await self._client.subscribe(topic.filter(event_type=event_type), cb=self._heard)
        await background.stopping.wait()

    async def _heard(self, message: Msg) -> None:
        self._told()
        with suppress(orjson.JSONDecodeError, KeyError, TypeError, ValueError):
            committed = parse(orjson.loads(message.data)["recorded_at"])
            DELEGATION_PROPAGATION.observe(max(0.0, (datetime.now(UTC) - committed).total_seconds()))

    async def close(self) -> None:
        """Close the connection, bounded."""
        await bus.close(self._client)
