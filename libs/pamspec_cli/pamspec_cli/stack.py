"""The servers beneath a deployment: embedded ones, or those whose URLs are set; migrated, with a login per service.

Invariant: an embedded server that dies while the stack is up is started again at the same address.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlsplit

import asyncpg

from pamspec_cli.data import DataDirectory
from pamspec_cli.servers import databases
from pamspec_cli.servers.nats import EmbeddedNats, NatsAddress
from pamspec_cli.servers.postgres import EmbeddedPostgres
from pamspec_cli.servers.process import ServerError, ServerProcess
from pamspec_cli.servers.valkey import EmbeddedValkey
from pamspec_common.migrations import migrate

DATABASE = "pamspec"
CALLOUT_VARIABLES = (
    "PAMSPEC_CALLOUT_NKEY_SEED",
    "PAMSPEC_CALLOUT_ISSUER_SEED",
    "PAMSPEC_CALLOUT_XKEY_SEED",
    "PAMSPEC_SYSTEM_NKEY_SEED",
)
_PAUSE_SECONDS = 0.2
_ANSWER_SECONDS = 5.0
_PORTS = {"PAMSPEC_NATS_URL": 4222, "PAMSPEC_VALKEY_URL": 6379}

_log = logging.getLogger(__name__)


class Embedded(Protocol):
    """A server that we start ourselves."""

    process: ServerProcess

    async def start(self) -> object:
        """Starts it and returns once it is ready."""

    async def stop(self) -> None:
        """Ends it, bounded."""


@dataclass(frozen=True)
class Addresses:
    """Where the servers are. `database_url` is an administrator's; `role_urls` has one for each service role."""

    database_url: str = field(repr=False)
    role_urls: Mapping[str, str] = field(repr=False)
    nats_url: str
    nats_seed: str | None = field(repr=False)
    callout: Mapping[str, str] = field(repr=False)
    """The variables of a gateway that lets agents in to the bus; empty where there is no callout."""
    valkey_url: str = field(repr=False)

    def of_role(self, service: str) -> str:
        """The database URL of a service, by its short name."""
        return self.role_urls[f"pamspec_{service}"]


@asynccontextmanager
async def servers(data: DataDirectory, environment: Mapping[str, str] = os.environ) -> AsyncIterator[Addresses]:
    """All servers up, migrated and ready; at the end every embedded one has ended.

    PAMSPEC_DATABASE_URL (of a login that may create roles), PAMSPEC_NATS_URL with PAMSPEC_NATS_NKEY_SEED and the seeds
    in CALLOUT_VARIABLES, and PAMSPEC_VALKEY_URL name servers to use instead of embedded ones.
    """
    async with AsyncExitStack() as stack:
        async with together() as group:
            starting_postgres = group.create_task(_postgres(stack, data, environment.get("PAMSPEC_DATABASE_URL")))
            starting_nats = group.create_task(_nats(stack, data, environment.get("PAMSPEC_NATS_URL")))
            starting_valkey = group.create_task(_valkey(stack, data, environment.get("PAMSPEC_VALKEY_URL")))
        postgres, nats, valkey = starting_postgres.result(), starting_nats.result(), starting_valkey.result()
        role_urls = await _prepare(postgres, data)
        yield Addresses(
            database_url=postgres,
            role_urls=role_urls,
            nats_url=nats.url if isinstance(nats, NatsAddress) else nats,
            nats_seed=nats.service_seed if isinstance(nats, NatsAddress) else environment.get("PAMSPEC_NATS_NKEY_SEED"),
            callout=nats.callout_variables() if isinstance(nats, NatsAddress) else _callout(environment),
            valkey_url=valkey,
        )


@asynccontextmanager
async def together() -> AsyncIterator[asyncio.TaskGroup]:
    """A task group whose first ServerError ends it all and is raised as itself."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as errors:
        refused, others = errors.split(ServerError)
        if refused is None or others is not None:
            raise
        raise _first(refused) from errors


def _first(errors: BaseExceptionGroup[ServerError]) -> ServerError:
    first = errors.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


async def _postgres(stack: AsyncExitStack, data: DataDirectory, given: str | None) -> str:
    if given:
        await _admitted(given)
        return given
    server = EmbeddedPostgres(data.path / "postgres", port=data.port("postgres"))
    await _start(stack, server)
    if server.address is None:
        raise ServerError("PostgreSQL ended right after its start")
    data.keep_port("postgres", server.address.port)
    await _ensure_database(server.address.dsn())
    return server.address.dsn(DATABASE)


def _callout(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: environment[name] for name in CALLOUT_VARIABLES if environment.get(name)}


async def _nats(stack: AsyncExitStack, data: DataDirectory, given: str | None) -> NatsAddress | str:
    if given:
        await _warn_when_silent("PAMSPEC_NATS_URL", given)
        return given
    server = EmbeddedNats(data.path / "nats", port=data.port("nats"))
    await _start(stack, server)
    if server.address is None:
        raise ServerError("nats-server ended right after its start")
    data.keep_port("nats", server.address.port)
    return server.address


async def _valkey(stack: AsyncExitStack, data: DataDirectory, given: str | None) -> str:
    if given:
        await _warn_when_silent("PAMSPEC_VALKEY_URL", given)
        return given
    server = EmbeddedValkey(data.path / "valkey", port=data.port("valkey"))
    await _start(stack, server)
    if server.address is None:
        raise ServerError("Valkey ended right after its start")
    data.keep_port("valkey", server.address.port)
    return server.address.url


async def _admitted(dsn: str) -> None:
    """The login exists and may do what the migrations need; ServerError tells what is missing."""
    try:
        connection = await asyncpg.connect(dsn, timeout=_ANSWER_SECONDS)
    except asyncpg.InvalidCatalogNameError as error:
        raise ServerError(f"PAMSPEC_DATABASE_URL: {error}: create it with  createdb  first") from None
    except (OSError, TimeoutError, ValueError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        reason = str(error) or "no answer"
        raise ServerError(f"PAMSPEC_DATABASE_URL: {reason}: check the address and the login") from None
    try:
        creates_roles = await connection.fetchval(
            "SELECT rolsuper OR rolcreaterole FROM pg_roles WHERE rolname = current_user"
        )
    finally:
        await connection.close()
    if not creates_roles:
        raise ServerError("PAMSPEC_DATABASE_URL: this login may not create roles: name one with CREATEROLE")


async def _warn_when_silent(variable: str, urls: str) -> None:
    """The service works without the bus and the cache; whoever mistyped an address should know why a part lags."""
    for url in urls.split(","):
        parts = urlsplit(url if "//" in url else f"//{url}")
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                _, writer = await asyncio.open_connection(parts.hostname, parts.port or _PORTS[variable])
        except (OSError, TimeoutError, ValueError):
            continue
        writer.close()
        return
    _log.warning(
        "nothing answers at %s: the service starts, see  pamspec status",
        variable,
        extra={"action": "server_silent"},
    )


async def _start(stack: AsyncExitStack, server: Embedded) -> None:
    stack.push_async_callback(server.stop)
    await server.start()
    keeper = asyncio.create_task(_keep_running(server), name=f"keep-{server.process.name}")

    async def release() -> None:
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)

    stack.push_async_callback(release)


async def _keep_running(server: Embedded) -> None:
    while True:
        code = await server.process.wait()
        _log.error(
            "%s ended with code %d and is started again",
            server.process.name,
            code,
            extra={"action": "server_restarted"},
        )
        try:
            await server.start()
        except ServerError as error:
            _log.error("%s", error, extra={"action": "server_restart_failed"})
        await asyncio.sleep(_PAUSE_SECONDS)


async def _ensure_database(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        exists = await connection.fetchval("SELECT 1 FROM pg_database WHERE datname = $1", DATABASE)
    finally:
        await connection.close()
    if not exists:
        await databases.create_database(dsn, DATABASE)


async def _prepare(dsn: str, data: DataDirectory) -> dict[str, str]:
    await migrate(dsn, databases.migration_sources())
    passwords = {role: data.secret(role) for role in await databases.existing_roles(dsn)}
    await databases.set_role_passwords(dsn, passwords)
    return databases.role_dsns(dsn, passwords)
