"""One deployment of real processes over servers of its own, which a test may kill, stop, resume and start again.

Invariant: when `deployed` ends, nothing that it started runs; what a test stopped by SIGSTOP is killed, never left.
"""

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import asyncpg
import nats
from nats.aio.client import Client as NatsClient

from pamspec_cli import development
from pamspec_cli.data import DataDirectory
from pamspec_cli.deployment import SERVICES, Deployment
from pamspec_cli.processes import ServiceProcess
from pamspec_cli.servers.databases import create_database
from pamspec_cli.servers.nats import EmbeddedNats
from pamspec_cli.servers.postgres import EmbeddedPostgres
from pamspec_cli.servers.process import ServerProcess, free_port
from pamspec_cli.stack import DATABASE, servers
from pamspec_client import AsyncClient, NatsLogin, RetryPolicy
from pamspec_common.peers import peer_session
from tests.servers import pooler
from tests.servers.chosen import servers as beneath

STOP_SECONDS = 20.0
SECOND_DOOR = "gateway-2"
"""The gateway in front of a second write process, where a deployment has one."""
PATIENCE = RetryPolicy(attempts=200, cap_s=0.5)
"""Of writers that must have every write acknowledged, however long a server is away."""


@dataclass
class Fleet:
    """A running deployment and what it stands on."""

    directory: Path
    data: DataDirectory
    deployment: Deployment
    postgres: EmbeddedPostgres
    nats: EmbeddedNats
    key: development.DevelopmentKey
    variables: Mapping[str, str]
    peers: aiohttp.ClientSession
    """For calls over the internal doors of services."""
    services: dict[str, ServiceProcess] = field(default_factory=dict)
    clients: list[AsyncClient] = field(default_factory=list)
    _read_up_to: dict[Path, int] = field(default_factory=dict)

    def __getitem__(self, instance: str) -> ServiceProcess:
        return self.services[instance]

    @property
    def database_url(self) -> str:
        """The superuser's, whom no row-level security holds up."""
        return self.deployment.addresses.database_url

    @property
    def headers(self) -> dict[str, str]:
        """What a request to a gateway carries."""
        return {"Authorization": f"Bearer {self.key.text}", "Content-Type": "application/json"}

    @property
    def agent(self) -> NatsLogin:
        """Where agents log in to the bus."""
        assert self.nats.address is not None
        return NatsLogin(self.nats.address.url)

    def client(self, gateway: str = "gateway", *, retry: RetryPolicy = PATIENCE, url: str | None = None) -> AsyncClient:
        """A client of a gateway, closed with the fleet."""
        client = AsyncClient(url or self.services[gateway].url, self.key.text, retry=retry, nats=self.agent)
        self.clients.append(client)
        return client

    def add(self, name: str, instance: str | None = None, variables: Mapping[str, str] | None = None) -> ServiceProcess:
        """A service that can be started, or a further instance of it on a port of its own."""
        own = dict(self.variables) | ({"PAMSPEC_PORT": str(free_port())} if instance else {})
        service = ServiceProcess(
            name, self.data, self.deployment, instance=instance, variables=own | dict(variables or {})
        )
        # A process under SIGSTOP would not end by a milder signal if the tests were killed.
        service.process.death_signal = signal.SIGKILL
        self.services[service.instance] = service
        return service

    def kill(self, instance: str) -> None:
        """SIGKILL: as a crash."""
        self.services[instance].process.kill()

    def signal(self, instance: str, number: signal.Signals) -> None:
        """Any other signal, to this process alone."""
        pid = self.services[instance].process.pid
        assert pid is not None, f"{instance} does not run"
        os.kill(pid, number)

    async def terminate(self, instance: str) -> int:
        """SIGTERM; the exit code, in bounded time."""
        self.signal(instance, signal.SIGTERM)
        async with asyncio.timeout(STOP_SECONDS):
            return await self.services[instance].process.wait()

    @asynccontextmanager
    async def extra(self, *services: ServiceProcess) -> AsyncIterator[None]:
        """Further instances for a while; they have ended afterwards."""
        try:
            await start_all(services)
            yield
        finally:
            for service in services:
                del self.services[service.instance]
            await asyncio.gather(*(self._end(service) for service in services))

    async def restart_nats(self, *, pause_s: float = 0.0) -> None:
        """SIGKILL of nats-server, and a new one on its address and store."""
        self.nats.process.kill()
        await asyncio.sleep(pause_s)
        await self.nats.start()

    async def ready(self, gateway: str = "gateway", within_s: float = 30.0) -> None:
        """Every part of every service is well, as the gateway sees it."""
        seen: dict[str, object] = {}

        async def well() -> bool:
            seen.clear()
            seen.update(await self.readiness(gateway))
            return seen.get("status") == "ready"

        try:
            await until(well, within_s, "every part is well", every_s=0.1)
        except AssertionError as error:
            error.add_note(f"readiness: {seen}")
            raise

    async def readiness(self, gateway: str = "gateway") -> dict[str, object]:
        """What a gateway says of all services; empty when it does not answer."""
        timeout = aiohttp.ClientTimeout(total=10)
        with suppress(aiohttp.ClientError, TimeoutError, OSError):
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(f"{self.services[gateway].url}/readyz") as answer,
            ):
                document: dict[str, object] = await answer.json()
                return document
        return {}

    @asynccontextmanager
    async def database(self) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
        """A superuser's session."""
        connection = await asyncpg.connect(self.database_url)
        try:
            yield connection
        finally:
            await connection.close()

    @asynccontextmanager
    async def bus(self) -> AsyncIterator[NatsClient]:
        """A connection as a service."""
        address = self.nats.address
        assert address is not None
        client = await nats.connect(address.url, nkeys_seed_str=address.service_seed)
        try:
            yield client
        finally:
            await client.close()

    def logs(self, lines: int = 40) -> dict[str, str]:
        """The end of every log."""
        every: dict[str, ServerProcess] = {"postgres": self.postgres.process, "nats": self.nats.process}
        every |= {label: service.process for label, service in self.services.items()}
        return {label: process.log_tail(lines) for label, process in every.items()}

    def surprises(self) -> list[str]:
        """Lines that services have logged since the last call and never should: tracebacks, and what is no JSON."""
        found = []
        for log in sorted((self.data.path / "services").glob("*/*.log")):
            with log.open("rb") as lines:
                lines.seek(self._read_up_to.get(log, 0))
                for line in lines:
                    text = line.decode("utf-8", "replace").strip()
                    if not text.startswith("{") or '"traceback":' in text:
                        found.append(f"{log.stem}: {text}")
                self._read_up_to[log] = lines.tell()
        return found

    async def recover(self) -> None:
        """What a failed test may have left: stopped or killed processes are started again."""
        if not self.postgres.process.running:
            await self.postgres.start()
        if not self.nats.process.running:
            await self.nats.start()
        for service in self.services.values():
            if service.process.running:
                self.signal(service.instance, signal.SIGCONT)
            else:
                await service.start()
        await self._close_clients()

    async def close(self) -> None:
        """Everything ends."""
        await self._close_clients()
        await asyncio.gather(*(self._end(service) for service in reversed(self.services.values())))

    async def _close_clients(self) -> None:
        for client in self.clients:
            await client.aclose()
        self.clients.clear()

    @staticmethod
    async def _end(service: ServiceProcess) -> None:
        pid = service.process.pid
        if pid is not None:
            os.kill(pid, signal.SIGCONT)
        await service.stop()


@asynccontextmanager
async def deployed(
    variables: Mapping[str, str] | None = None, *, before_migration: Callable[[str], Awaitable[None]] | None = None
) -> AsyncIterator[Fleet]:
    """Servers and one process of each service in a directory of their own, ready; nothing is left at the end.

    `before_migration` gets the administrator's URL of the empty database.
    """
    directory = Path(tempfile.mkdtemp(prefix="pamspec-fleet-"))
    postgres = beneath().postgres(directory / "postgres")
    bus = beneath().nats(directory / "nats")
    valkey = beneath().valkey(directory / "valkey")
    try:
        async with AsyncExitStack() as stack:
            for server in (postgres, bus, valkey):
                stack.push_async_callback(server.stop)
            database, address, cache = await asyncio.gather(postgres.start(), bus.start(), valkey.start())
            urls = {
                "PAMSPEC_DATABASE_URL": await create_database(database.dsn(), DATABASE),
                "PAMSPEC_NATS_URL": address.url,
                "PAMSPEC_NATS_NKEY_SEED": address.service_seed,
                "PAMSPEC_VALKEY_URL": cache.url,
                **address.callout_variables(),
            }
            if before_migration is not None:
                await before_migration(urls["PAMSPEC_DATABASE_URL"])
            data = stack.enter_context(DataDirectory(directory / "deployment"))
            addresses = await stack.enter_async_context(servers(data, urls))
            if pooler.wanted():
                addresses = await stack.enter_async_context(pooler.pooled(addresses, directory / "pooler"))
            deployment = Deployment.of(data, addresses, None)
            key = development.chosen_key(data)
            await development.ensure_principal(addresses.database_url, deployment.key_pepper.encode(), key)
            peers = await stack.enter_async_context(peer_session())
            fleet = Fleet(directory, data, deployment, postgres, bus, key, dict(variables or {}), peers)
            stack.push_async_callback(fleet.close)
            try:
                await start_all([fleet.add(name) for name in SERVICES])
                await fleet.ready()
            except BaseException as error:
                error.add_note("\n".join(f"--- {label}\n{text}" for label, text in fleet.logs().items()))
                raise
            yield fleet
    finally:
        shutil.rmtree(directory)


async def start_all(services: Iterable[ServiceProcess]) -> None:
    """Returns when all of them answer."""
    async with asyncio.TaskGroup() as group:
        for service in services:
            group.create_task(service.start())


async def until(
    condition: Callable[[], Awaitable[bool]], within_s: float, what: str, *, every_s: float = 0.05
) -> float:
    """Seconds until a condition of another process holds; AssertionError when it does not in time."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while not await condition():
        assert loop.time() - began < within_s, f"not within {within_s:.0f} s: {what}"
        await asyncio.sleep(every_s)
    return loop.time() - began
