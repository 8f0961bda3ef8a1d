"""The composition root of the delegation service."""

from __future__ import annotations

from pamspec_common.consuming.consumer import Consumer
from pamspec_common.service import Background, Part, Service
from pamspec_delegation.handlers.entries import Counting
from pamspec_delegation.settings import Settings


class _App:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._background = Background()
        self.consumer = Consumer("delegation", "delegation", settings, Counting())
        self.service = Service("delegation", {}, self._readiness, self._start, self._stop)

    async def _start(self) -> None:
        await self.consumer.start(self._background)

    async def _stop(self) -> None:
        await self._background.stop(self._settings.drain_s)
        await self.consumer.stop()

    async def _readiness(self) -> list[Part]:
        return [*self.consumer.parts(), *self._background.parts()]


def build(settings: Settings) -> Service:
    """The delegation service; nothing runs before its `start`."""
    return _App(settings).service
