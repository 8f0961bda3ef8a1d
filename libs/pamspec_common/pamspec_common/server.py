"""How a service becomes a process: one HTTP server around it, signals, and a stop that loses nothing.

Invariant: the listener opens after the service has started; a stop goes in the order not ready, channels get their end,
stop accepting, drain what is under way, stop the service, close. All of it is bounded by `settings.drain_s`.
"""

from __future__ import annotations

import asyncio
import logging
import math
import resource
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import FrameType

import uvicorn
import uvloop

from pamspec_common import http_protocol
from pamspec_common.errors import PamspecError
from pamspec_common.http_protocol import LimitedHttpProtocol, cut_off_stalled
from pamspec_common.service import Service
from pamspec_common.settings import CommonSettings
from pamspec_common.telemetry import setup_logging, setup_metrics, tracing
from pamspec_common.tls import TlsFiles, server_context
from pamspec_common.websocket_protocol import OrderlyWebSocketProtocol

KEEP_ALIVE_S = 75
_WEBSOCKET_MAX_BYTES = 64 * 1024
_BACKLOG = 2048
_FILES_FOR_OTHERS = 256
_FILES_WANTED = 65_536

_log = logging.getLogger(__name__)

Build = Callable[[], Service]


def run(service: Service | Build, settings: CommonSettings) -> int:
    """Run a service until SIGTERM or SIGINT; the exit code of the process: 0 after a clean stop, 1 after a failure.

    A function is called inside the running event loop, for services whose peers need one.
    """
    setup_logging(settings.log_level)
    setup_metrics()
    try:
        tracing.setup()
        uvloop.run(_run(service, settings))
    except PamspecError as error:
        # It says what an operator has to do, such as to migrate the database.
        _log.error("the service ended: %s", error, extra={"action": "service_failed"})
        return 1
    except Exception:
        _log.exception("the service ended", extra={"action": "service_failed"})
        return 1
    finally:
        tracing.shutdown()
    return 0


async def _run(service: Service | Build, settings: CommonSettings) -> None:
    built = service if isinstance(service, Service) else service()
    sock = bind(settings.host, settings.port)
    files = settings.tls()
    callers = None if settings.public_door or settings.tls_certificate is None else frozenset(settings.tls_callers)
    server = _server(built, settings.drain_s, signals=True, tls=files, callers=callers)
    try:
        await built.start()
        await server.serve(sockets=[sock])
    finally:
        sock.close()
        await built.stop()
    _log.info("stopped", extra={"action": "stopped", "service": built.name})


@asynccontextmanager
async def serving(
    service: Service,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    drain_s: float = 10.0,
    tls: TlsFiles | None = None,
    callers: frozenset[str] | None = None,
) -> AsyncIterator[str]:
    """Start a service in this event loop and yield its base URL; at the end it is stopped in order.

    Signals are left to the caller. Raises what the start of the service raises, and OSError for a port that is taken.
    """
    setup_metrics()
    sock = bind(host, port)
    server = _server(service, drain_s, signals=False, tls=tls, callers=callers)
    try:
        await service.start()
        task = asyncio.create_task(server.serve(sockets=[sock]), name=f"server-{service.name}")
        await server.accepting.wait()
        try:
            scheme = "https" if tls and tls.certificate else "http"
            yield "{}://{}:{}".format(scheme, *sock.getsockname()[:2])
        finally:
            server.should_exit = True
            await task
    finally:
        sock.close()
        await service.stop()


def bind(host: str, port: int) -> socket.socket:
    """A bound TCP socket; port 0 takes a free one. Nothing is accepted before a server listens on it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock


def most_connections() -> int:
    """How many connections this process may hold, after raising its limit of open files as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES_WANTED if hard == resource.RLIM_INFINITY else min(_FILES_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    limit = _FILES_WANTED if soft == resource.RLIM_INFINITY else soft
    return max(limit - _FILES_FOR_OTHERS, limit // 2)


def _server(
    service: Service,
    drain_s: float,
    *,
    signals: bool,
    tls: TlsFiles | None = None,
    callers: frozenset[str] | None = None,
) -> _Server:
    http_protocol.MAX_CONNECTIONS = most_connections()
    shown = server_context(tls, client_certificates=callers is not None) if tls and tls.certificate else None
    config = uvicorn.Config(
        service.asgi(),
        loop="uvloop",
        http=type("LimitedHttpProtocol", (LimitedHttpProtocol,), {"callers": callers}),
        ws=OrderlyWebSocketProtocol,
        ws_max_size=_WEBSOCKET_MAX_BYTES,
        ws_per_message_deflate=False,
        ssl_context_factory=(lambda _config, _default: shown) if shown else None,
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=math.ceil(drain_s),
    )
    return _Server(config, service, signals=signals)


class _Server(uvicorn.Server):
    """uvicorn, which lets the service end its channels before it closes connections, and ends with exit code 0."""

    def __init__(self, config: uvicorn.Config, service: Service, *, signals: bool) -> None:
        super().__init__(config)
        self._service, self._signals = service, signals
        self.accepting = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for sock in sockets or ():
            address = "{}:{}".format(*sock.getsockname()[:2])
            _log.info("listening on %s", address, extra={"action": "listening", "service": self._service.name})
        self.accepting.set()

    async def on_tick(self, counter: int) -> bool:
        if counter % 10 == 0:
            connections = [one for one in self.server_state.connections if isinstance(one, LimitedHttpProtocol)]
            for connection in connections:
                connection.close_when_slow()
            cut_off_stalled(connections)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._service.drain()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if not self._signals:
            yield
            return
        handled = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in handled}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal asks for the ordered stop, the second ends the waiting."""
        self.force_exit = self.should_exit
        self.should_exit = True
