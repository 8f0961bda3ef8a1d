"""Every service as a process of its own, watched: one that dies is started again, all end in order.

Invariant: no service outlives this process, and after `stop` none of them runs.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp

from pamspec_cli.data import DataDirectory
from pamspec_cli.deployment import SERVICES, Deployment
from pamspec_cli.servers.process import ServerError, ServerProcess, Step
from pamspec_cli.stack import together

START_SECONDS = 30.0
DRAIN_SECONDS = 15.0
_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 5.0

_log = logging.getLogger(__name__)


class ServiceProcess:
    """`python -m pamspec_<service>`, with its log in the data directory.

    A further one of the same service has an `instance` name of its own, and `variables` that differ: PAMSPEC_PORT.
    """

    def __init__(
        self,
        name: str,
        data: DataDirectory,
        deployment: Deployment,
        *,
        instance: str | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.instance = instance or name
        directory = data.path / "services" / self.instance
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        own = deployment.variables(name) | dict(variables or {})
        self.url = f"http://{own['PAMSPEC_HOST']}:{own['PAMSPEC_PORT']}"
        self.process = ServerProcess(self.instance, directory, directory / f"{self.instance}.log")
        self._environment = os.environ | own | {"PYTHONSAFEPATH": "1"}

    async def start(self) -> None:
        """Starts it and returns once it answers; ServerError with its log's end when it does not."""
        await self.process.end_remnants()
        self.process.spawn([sys.executable, "-m", f"pamspec_{self.name}"], environment=self._environment)
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session:
            await self.process.wait_ready(lambda: answers(session, self.url, self.name), START_SECONDS)

    async def stop(self) -> None:
        """Lets it drain, then ends it."""
        await self.process.stop([Step(signal.SIGTERM, DRAIN_SECONDS)])

    async def keep_running(self) -> None:
        """Starts it again whenever it ends, sooner the longer it had lived."""
        pause = _FIRST_PAUSE_SECONDS
        while True:
            began = asyncio.get_running_loop().time()
            code = await self.process.wait()
            if asyncio.get_running_loop().time() - began > _LONGEST_PAUSE_SECONDS:
                pause = _FIRST_PAUSE_SECONDS
            _log.error(
                "%s ended with code %d and is started again",
                self.name,
                code,
                extra={"action": "service_restarted", "service": self.name},
            )
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
            try:
                await self.start()
            except ServerError as error:
                _log.error("%s", error, extra={"action": "service_restart_failed", "service": self.name})


@asynccontextmanager
async def running(data: DataDirectory, deployment: Deployment) -> AsyncIterator[dict[str, ServiceProcess]]:
    """All services up; at the end they have drained and ended, the public door first."""
    async with AsyncExitStack() as stack:
        started = {name: ServiceProcess(name, data, deployment) for name in SERVICES}
        for service in started.values():
            stack.push_async_callback(service.stop)
        async with together() as group:
            for service in started.values():
                group.create_task(service.start())
        keepers = [
            asyncio.create_task(service.keep_running(), name=f"keep-{name}") for name, service in started.items()
        ]

        async def release() -> None:
            for keeper in keepers:
                keeper.cancel()
            await asyncio.gather(*keepers, return_exceptions=True)

        stack.push_async_callback(release)
        yield started


async def answers(session: aiohttp.ClientSession, url: str, service: str) -> bool:
    """Whether this service lives at this URL, and no other."""
    try:
        async with session.get(f"{url}/healthz") as answer:
            document = await answer.json(content_type=None)
            return answer.status == 200 and isinstance(document, dict) and document.get("service") == service
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
        return False
