"""The life of a partition's owner: pull, take in, acknowledge; once a second compare every scope with the ledger."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from opentelemetry.trace import SpanKind

from pamspec_common.consuming import queries
from pamspec_common.consuming.intake import PASSING, Effect, Intake
from pamspec_common.consuming.model import Place, heard
from pamspec_common.consuming.puller import Puller
from pamspec_common.consuming.settings import ConsumingSettings
from pamspec_common.postgres import Connection, Pool, connection
from pamspec_common.telemetry import metrics, tracing

_log = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 1.0
_BUS_AGAIN_S = 1.0
_SCOPES_AT_ONCE = 1000


@dataclass
class Status:
    """What readiness tells of a partition."""

    state: str = "starting"
    """starting, consuming, ledger (the bus is away, the ledger alone feeds it), retrying."""
    reason: str = ""
    lag: int = 0
    """Entries that the last comparison found missing."""


class Owner:
    """Works on one partition until it is told to end."""

    def __init__(
        self,
        service: str,
        partition: int,
        pool: Pool,
        client: Callable[[], Client | None],
        stream: str,
        consumer: Mapping[str, Any],
        effect: Effect,
        settings: ConsumingSettings,
    ) -> None:
        self.partition, self.status, self.ending = partition, Status(), asyncio.Event()
        self._service, self._pool, self._client, self._effect = service, pool, client, effect
        self._stream, self._consumer, self._settings = stream, consumer, settings
        self._labels = {"service": service, "partition": str(partition)}
        self._suspected: dict[int, int] = {}
        self._compare_at = self._pull_at = 0.0

    async def run(self) -> None:
        """Keep the partition moving."""
        pause = _FIRST_PAUSE_S
        while not self.ending.is_set():
            began = _now()
            try:
                await self._hold()
            except PASSING as error:
                reason = f"{type(error).__name__}: {error}"
                if self.status.reason != reason:
                    extra = {"action": "consumer_doubt", "service": self._service, "partition": self.partition}
                    _log.info("%s", reason, extra=extra)
                self.status.state, self.status.reason = "retrying", reason
            pause = _FIRST_PAUSE_S if _now() - began > _LONGEST_PAUSE_S else min(pause * 2, _LONGEST_PAUSE_S)
            await self._pause(pause)

    async def _hold(self) -> None:
        """One connection, as long as nothing goes wrong."""
        async with connection(self._pool, self._settings.pool_wait_ms) as conn:
            intake = Intake(conn, self._effect, self._service)
            puller: Puller | None = None
            try:
                while not self.ending.is_set():
                    puller = puller or await self._opened()
                    if _now() >= self._compare_at:
                        await self._compare(conn, intake)
                    puller = await self._pull(intake, puller)
            finally:
                if puller is not None:
                    await puller.close()

    async def _opened(self) -> Puller | None:
        """A puller, when the bus and its stream are there; else the ledger alone feeds the partition for a while."""
        client = self._client()
        if _now() < self._pull_at or client is None or not client.is_connected:
            return None
        puller = Puller(client, self._stream, self._consumer, self._settings.consumer_batch)
        try:
            await puller.open()
        except PASSING as error:
            self._without_bus(error)
            return None
        self.status.state, self.status.reason = "consuming", ""
        return puller

    async def _pull(self, intake: Intake, puller: Puller | None) -> Puller | None:
        """Messages until the next comparison; None when the puller is of no more use."""
        wait_s = max(0.0, self._compare_at - _now())
        if puller is None:
            self.status.state = "ledger"
            await self._pause(wait_s)
            return None
        try:
            messages = await puller.messages(wait_s)
        except PASSING as error:
            self._without_bus(error)
            await puller.close()
            return None
        if messages:
            if tracing.enabled:
                with tracing.batched(
                    self._service, f"process {self._stream}", SpanKind.CONSUMER, _traces(messages), self._told(messages)
                ):
                    await self._take_in(intake, messages)
            else:
                await self._take_in(intake, messages)
            await puller.acknowledge(messages)
            metrics.CONSUMER_SEQUENCE.set(messages[-1].metadata.sequence.stream, self._labels)
        return puller

    async def _take_in(self, intake: Intake, messages: Sequence[Msg]) -> None:
        told = [heard(message.subject, message.headers, message.data) for message in messages]
        await intake.heard([one for one in told if one is not None])

    def _told(self, messages: Sequence[Msg]) -> tracing.Attributes:
        told = tracing.messages("nats", "process", "process", self._stream, len(messages))
        return {**told, "messaging.consumer.group.name": self._service}

    def _without_bus(self, error: BaseException) -> None:
        self.status.state, self.status.reason = "ledger", f"{type(error).__name__}: {error}"
        self._pull_at = _now() + _BUS_AGAIN_S

    async def _compare(self, conn: Connection, intake: Intake) -> None:
        """Take in from the ledger what has been missing since the last comparison; what is on its way has its time.

        Without the bus nothing is on its way.
        """
        behind = await queries.fetch_behind(conn, self.partition, _SCOPES_AT_ONCE)
        stuck = [place for place in behind if self._lost(place)]
        self._suspected = {place.scope_key: place.taken for place in behind}
        self.status.lag = sum(max(0, place.head - place.taken) for place in behind)
        metrics.CONSUMER_LAG.set(self.status.lag, self._labels)
        if stuck:
            await intake.behind(stuck)
        full = len(behind) == _SCOPES_AT_ONCE and stuck
        self._compare_at = _now() + (0.0 if full else self._settings.consumer_heads_ms / 1000)

    def _lost(self, place: Place) -> bool:
        waits = self.status.state == "consuming" and self._suspected.get(place.scope_key) != place.taken
        return place.outdated or not waits

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self.ending.wait()
        except TimeoutError:
            return


def _traces(messages: Sequence[Msg]) -> list[str | None]:
    return [tracing.valid((message.headers or {}).get(tracing.HEADER)) for message in messages]


def _now() -> float:
    return asyncio.get_running_loop().time()
