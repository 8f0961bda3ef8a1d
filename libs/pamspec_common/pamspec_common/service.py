"""What a service is: an ASGI application, the operations that it owns, and background tasks with one lifecycle.

Invariant: `start` makes it ready or raises; `stop` is bounded, may be called twice and before `start`. Order of a
stop: not ready, end channels (`drain`), stop claiming, drain what is under way, cancel, close. A background task that
ends by itself or fails is a defect: it is logged, shows in readiness, and is started again after a pause.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from uvicorn.protocols.utils import ClientDisconnected

from pamspec_common.asgi import ASGIApp, ClientGone, Receive, Scope, Send, send_answer
from pamspec_common.calls import Answer, Operations, refusal
from pamspec_common.errors import InternalError, InvalidRequest, PamspecError
from pamspec_common.internal import PATH as INTERNAL_PATH
from pamspec_common.internal import InternalDoor
from pamspec_common.strict_json import dumps
from pamspec_common.telemetry import begin, render_metrics
from pamspec_common.telemetry.metrics import TASK_FAILURES

_log = logging.getLogger(__name__)
_RESTART_PAUSE_S = 0.5


@dataclass(frozen=True)
class Part:
    """One part of a readiness answer: its name, whether it is well, and what lags.

    A service whose part is not well but not `essential` still takes work: it is degraded.
    """

    name: str
    ok: bool
    detail: Mapping[str, Any] = field(default_factory=dict)
    essential: bool = True


Readiness = Callable[[], Awaitable[list[Part]]]
Hook = Callable[[], Awaitable[None]]


async def stored_part(reach: Hook) -> Part:
    """The part `store`: well where `reach` raises nothing."""
    try:
        await reach()
    except PamspecError as error:
        return Part("store", False, {"error": error.message})
    return Part("store", True)


class Background:
    """Supervised tasks: each runs until `stop`, is restarted when it fails, and says so in readiness."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._failed: dict[str, str] = {}
        self.stopping = asyncio.Event()

    def spawn(self, name: str, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start a task that should run until `stopping` is set."""
        TASK_FAILURES.add(0, {"task": name})
        self._tasks[name] = asyncio.create_task(self._supervise(name, run), name=name)

    async def _supervise(self, name: str, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while not self.stopping.is_set():
            try:
                await run()
                if not self.stopping.is_set():
                    self._failed[name] = "ended"
            except Exception as error:
                self._failed[name] = type(error).__name__
                TASK_FAILURES.add(1, {"task": name})
                _log.exception("background task failed", extra={"action": "background_failed", "task": name})
            if not self.stopping.is_set():
                await self.pause(_RESTART_PAUSE_S)

    async def pause(self, seconds: float) -> bool:
        """Wait, but not beyond a stop; True when stopping."""
        try:
            async with asyncio.timeout(seconds):
                await self.stopping.wait()
        except TimeoutError:
            return False
        return True

    def recovered(self, name: str) -> None:
        """A task says that it works again."""
        self._failed.pop(name, None)

    def parts(self) -> list[Part]:
        """A part for each task."""
        return [
            Part(name, name not in self._failed, {"error": self._failed[name]} if name in self._failed else {})
            for name in self._tasks
        ]

    async def stop(self, timeout_s: float) -> None:
        """Ask all to end, wait, then cancel."""
        self.stopping.set()
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks.values(), timeout=timeout_s)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        self._tasks.clear()


@dataclass
class Service:
    """A built service; nothing runs before `start`."""

    name: str
    operations: Operations
    readiness: Readiness
    on_start: Hook
    on_stop: Hook
    app: ASGIApp | None = None
    """Routes beyond the internal door and the health pages (streams, the public door)."""
    on_drain: Hook | None = None
    """Gives long-lived channels their end; afterwards every open request must be able to end. Bounded by the hook."""
    started: bool = False
    draining: bool = False
    stopped: bool = False

    async def start(self) -> None:
        """Connect, verify, and become ready; raises when that is impossible."""
        if not self.started:
            begin(self.name)
            await self.on_start()
            self.started = True

    async def drain(self) -> None:
        """Be not ready and end the channels, while requests are still answered; further calls do nothing."""
        if not self.draining:
            self.draining = True
            if self.started and self.on_drain is not None:
                await self.on_drain()

    async def stop(self) -> None:
        """Stop in order and within the drain time; further calls do nothing."""
        if not self.stopped:
            await self.drain()
            self.stopped = True
            await self.on_stop()

    async def ready(self) -> tuple[bool, list[Part]]:
        """Whether it takes work, with the parts that it depends on."""
        if not self.started or self.draining:
            return False, [Part(self.name, False, {"state": "stopping" if self.draining else "starting"})]
        parts = await self.readiness()
        return all(part.ok or not part.essential for part in parts), parts

    def asgi(self) -> ASGIApp:
        """The whole HTTP surface of the service; it has an internal door only where it owns operations."""
        door = InternalDoor(self.name, self.operations) if self.operations else None

        async def routes(scope: Scope, receive: Receive, send: Send) -> None:
            path = scope.get("path", "")
            if door is not None and scope["type"] == "http" and path == INTERNAL_PATH:
                await door(scope, receive, send)
            elif scope["type"] == "http" and path in ("/healthz", "/readyz", "/metrics"):
                await send_health(self, path, send)
            elif self.app is not None:
                await self.app(scope, receive, send)
            elif scope["type"] == "http":
                await send_answer(send, refusal(InvalidRequest("No such path in this service.", status=404)))

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "lifespan":
                await _lifespan(self, receive, send)
                return
            try:
                await routes(scope, receive, send)
            except (ClientGone, ClientDisconnected):
                _log.debug("a client left", extra={"action": "client_left", "path": scope.get("path", "")})
            except Exception as error:
                await _tell_failure(error, scope, send)

        return app


async def _tell_failure(error: Exception, scope: Scope, send: Send) -> None:
    """Whatever fails is an answer in the envelope, unless the answer had begun: then the connection breaks off."""
    _log.error("request failed", exc_info=error, extra={"action": "request_failed", "path": scope.get("path", "")})
    if scope["type"] != "http":
        raise error
    try:
        await send_answer(send, refusal(InternalError()))
    except RuntimeError:
        raise error from None


async def send_health(service: Service, path: str, send: Send) -> None:
    """Answer /healthz (the process lives), /readyz (it takes work; which part lags) or /metrics."""
    if path == "/metrics":
        body, content_type = render_metrics()
        headers = [(b"content-type", content_type.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})
        return
    if path == "/healthz":
        await send_answer(send, Answer(200, dumps({"service": service.name, "status": "alive"})))
        return
    ok, parts = await service.ready()
    await send_answer(send, readiness_answer(service.name, ok, parts))


def readiness_answer(service: str, ok: bool, parts: list[Part]) -> Answer:
    """The body of /readyz: 200 when ready or degraded, 503 otherwise; whose it is, and each part with its detail."""
    well = "ready" if all(part.ok for part in parts) else "degraded"
    document = {
        "service": service,
        "status": well if ok else "not_ready",
        "parts": {part.name: {**part.detail, "ok": part.ok, "essential": part.essential} for part in parts},
    }
    return Answer(200 if ok else 503, dumps(document))


async def _lifespan(service: Service, receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            try:
                await service.start()
            except Exception as error:
                _log.exception("start failed", extra={"action": "start_failed", "service": service.name})
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                return
            await send({"type": "lifespan.startup.complete"})
        else:
            await service.stop()
            await send({"type": "lifespan.shutdown.complete"})
            return
