"""Where figures are measured: servers of this run alone, and the product on them, in this process or in its own.

Invariant: product and floors use the same servers, whose durability was read before the first figure.
"""

import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pamspec_cli import development
from pamspec_cli.bench.durability import Durability, check
from pamspec_cli.data import DataDirectory
from pamspec_cli.demo.conversations import Conversation
from pamspec_cli.deployment import Deployment
from pamspec_cli.servers import databases
from pamspec_cli.servers.nats import EmbeddedNats
from pamspec_cli.servers.postgres import EmbeddedPostgres
from pamspec_cli.servers.process import ServerError
from pamspec_cli.servers.valkey import EmbeddedValkey
from pamspec_cli.stack import DATABASE, servers
from pamspec_client import AsyncClient, NatsLogin
from pamspec_common.principal import Principal, TokenSigner

START_SECONDS = 180.0


@dataclass(frozen=True)
class Product:
    """A running product in a process of its own."""

    url: str
    pid: int


@dataclass
class Environment:
    """The servers of a run, and how to start the product on them."""

    directory: Path
    deployment: Deployment
    database_url: str = field(repr=False)
    nats: NatsLogin
    key: str = field(repr=False)
    durability: Durability
    variables: dict[str, str] = field(repr=False)
    conversations: Sequence[Conversation] = field(repr=False)
    """What is looked for in where finding is measured."""

    def principal(self) -> str:
        """The signed principal of the development key, as the gateway would hand it on."""
        signer = TokenSigner("k1", self.deployment.token_keys["k1"].encode())
        rights, roles = frozenset(development.RIGHTS), frozenset(development.ROLES)
        return signer.sign(
            Principal(development.TENANT_ID, development.ACTOR_ID, development.ACTOR_KIND, rights, 0, roles)
        )

    def client(self, product: Product) -> AsyncClient:
        """A client of a running product."""
        return AsyncClient(product.url, self.key, nats=self.nats)

    @asynccontextmanager
    async def product(
        self, *arguments: str, module: str = "pamspec_cli", name: str = "", variables: Mapping[str, str] | None = None
    ) -> AsyncIterator[Product]:
        """`pamspec up` with these arguments and further variables, on the servers of this run; it has ended afterwards.

        Products that run at the same time have a name or a module of their own.
        """
        data = self.directory / ("-".join(["up", name or module]) + "".join(arguments))
        if not data.exists():
            data.mkdir(mode=0o700)
            shutil.copytree(self.directory / "deployment" / "secrets", data / "secrets")
        environment = {**self.variables, **(variables or {})}
        async with up(data, *arguments, environment=environment, module=module) as product:
            yield product


@asynccontextmanager
async def up(
    data: Path, *arguments: str, environment: dict[str, str], module: str = "pamspec_cli"
) -> AsyncIterator[Product]:
    """`pamspec up` on a data directory, as a child of this process; `module` stands for the command."""
    log = data / "up.log"
    data.mkdir(mode=0o700, exist_ok=True)
    with log.open("ab") as output:
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", module, "up", "--data", str(data), *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=os.environ | environment,
        )
    try:
        yield Product(await _gateway(data, child, log), child.pid)
    finally:
        if child.returncode is None:
            child.send_signal(signal.SIGTERM)
            await child.wait()


async def _gateway(data: Path, child: asyncio.subprocess.Process, log: Path) -> str:
    noted = data / "state.json"
    async with asyncio.timeout(START_SECONDS):
        while True:
            if child.returncode is not None:
                raise ServerError(f"pamspec up ended with code {child.returncode}:\n{log.read_text()[-2000:]}")
            try:
                return str(json.loads(noted.read_text())["gateway"])
            except (FileNotFoundError, ValueError, KeyError):
                await asyncio.sleep(0.01)


@asynccontextmanager
async def environment(conversations: Sequence[Conversation]) -> AsyncIterator[Environment]:
    """Fresh servers in a directory of this run, removed at the end; Weakened when they don't write through."""
    directory = Path(tempfile.mkdtemp(prefix="pamspec-bench-"))
    try:
        async with AsyncExitStack() as stack:
            postgres = EmbeddedPostgres(directory / "postgres")
            nats = EmbeddedNats(directory / "nats")
            valkey = EmbeddedValkey(directory / "valkey")
            for server in (postgres, nats, valkey):
                stack.push_async_callback(server.stop)
            database, bus, cache = await postgres.start(), await nats.start(), await valkey.start()
            durability = await check(database.dsn(), bus.monitor_url)
            variables = {
                "PAMSPEC_DATABASE_URL": await _database(database.dsn()),
                "PAMSPEC_NATS_URL": bus.url,
                "PAMSPEC_NATS_NKEY_SEED": bus.service_seed,
                "PAMSPEC_VALKEY_URL": cache.url,
                **bus.callout_variables(),
            }
            data = stack.enter_context(DataDirectory(directory / "deployment"))
            addresses = await stack.enter_async_context(servers(data, variables))
            deployment = Deployment.of(data, addresses, None)
            key = development.chosen_key(data)
            await development.ensure_principal(addresses.database_url, deployment.key_pepper.encode(), key)
            yield Environment(
                directory,
                deployment,
                addresses.database_url,
                NatsLogin(bus.url),
                key.text,
                durability,
                variables,
                conversations,
            )
    finally:
        shutil.rmtree(directory)


async def _database(dsn: str) -> str:
    return await databases.create_database(dsn, DATABASE)
