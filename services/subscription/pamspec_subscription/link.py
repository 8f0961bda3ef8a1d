"""The connection to the bus: made in the background, so that the service starts and works while the bus is away."""

from __future__ import annotations

import asyncio

from nats.aio.client import Client

from pamspec_common import bus
from pamspec_common.service import Background
from pamspec_subscription.fanout import Fanout
from pamspec_subscription.settings import Settings


class BusLink:
    """One connection of the process, for hints and for delivery over NATS."""

    def __init__(self, settings: Settings, fanout: Fanout) -> None:
        self._settings, self._fanout = settings, fanout
        self.client: Client | None = None
        self.connected = asyncio.Event()
        """Set while the connection stands."""

    async def run(self, background: Background) -> None:
        """Connect, and stay until the service stops."""
        self.client = await bus.connect(
            self._settings, "subscription", on_disconnect=self._lost, on_reconnect=self._back
        )
        self.connected.set()
        await self._fanout.use_bus(self.client)
        await background.stopping.wait()

    async def _lost(self) -> None:
        self.connected.clear()

    async def _back(self) -> None:
        self.connected.set()

    async def close(self) -> None:
        """Close the connection, bounded."""
        await bus.close(self.client)
