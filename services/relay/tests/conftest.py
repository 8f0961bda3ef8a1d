"""A ledger to fill by SQL, a bus of the test's own, and relays in this process or as processes to kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import nats as nats_client
import pytest_asyncio
from nats.aio.client import Client

from pamspec_cli.servers.databases import Database
from pamspec_cli.servers.nats import NatsAddress
from pamspec_cli.servers.process import free_port
from pamspec_common.service import Service
from pamspec_relay.app import build
from pamspec_relay.settings import Settings
from services.relay.tests.ledger_rows import Ledger, until

QUICK: dict[str, Any] = {
    "relay_lease_ms": 1200,
    "relay_lease_poll_ms": 50,
    "relay_poll_ms": 100,
    "relay_publish_timeout_ms": 1500,
    "relay_stream_check_ms": 100,
    "relay_retry_ms": 100,
    "relay_gauge_ms": 50,
    "drain_s": 5.0,
}
"""The product's durations, scaled down."""

StartRelay = Callable[..., Awaitable[Service]]


class RelayProcess:
    """`python -m pamspec_relay`, to stop, continue and kill."""

    def __init__(self, environment: dict[str, str], log: Path) -> None:
        self.log = log
        with log.open("wb") as sink:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "pamspec_relay"], env=environment, stdout=sink, stderr=sink
            )

    @property
    def pid(self) -> int:
        """Its process id, which is part of the owner's name."""
        return self._child.pid

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        os.kill(self._child.pid, number)

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        if self._child.poll() is None:
            self._child.kill()
            self._child.wait(60)

    def end(self) -> int:
        """SIGTERM, and wait for the end; the exit code."""
        self._child.terminate()
        return self._child.wait(60)


StartProcess = Callable[..., RelayProcess]


@pytest_asyncio.fixture(loop_scope="session")
async def ledger(database: Database) -> AsyncIterator[Ledger]:
    """The store, written to as a commit does."""
    found = Ledger(database.dsn)
    await found.open()
    yield found
    await found.close()


@pytest_asyncio.fixture(loop_scope="session")
async def client(nats: NatsAddress) -> AsyncIterator[Client]:
    """A connection to the bus as a service, which finds its server again."""
    connection = await nats_client.connect(
        nats.url, nkeys_seed_str=nats.service_seed, max_reconnect_attempts=-1, reconnect_time_wait=0.05, error_cb=_quiet
    )
    yield connection
    await connection.close()


async def _quiet(error: Exception) -> None:
    """Servers are killed here on purpose."""


@pytest_asyncio.fixture(loop_scope="session")
async def start_relay(database: Database, nats: NatsAddress) -> AsyncIterator[StartRelay]:
    """Starts relays in this process; stopped at the end."""
    running: list[Service] = []

    async def start(**overrides: Any) -> Service:
        given = {
            "database_url": database.role("relay"),
            "nats_url": nats.url,
            "nats_nkey_seed": nats.service_seed,
            **QUICK,
            **overrides,
        }
        service = build(Settings(**given))
        await service.start()
        running.append(service)
        return service

    yield start
    for service in running:
        await service.stop()


@pytest_asyncio.fixture(loop_scope="session")
async def start_process(database: Database, nats: NatsAddress, tmp_path: Path) -> AsyncIterator[StartProcess]:
    """Starts relays as processes; killed at the end."""
    running: list[RelayProcess] = []

    def start(**overrides: Any) -> RelayProcess:
        given = {
            "database_url": database.role("relay"),
            "nats_url": nats.url,
            "nats_nkey_seed": nats.service_seed,
            "port": free_port(),
            **QUICK,
            **overrides,
        }
        variables = {f"PAMSPEC_{name.upper()}": str(value) for name, value in given.items()}
        process = RelayProcess(os.environ | variables, tmp_path / f"relay-{len(running)}.log")
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()


async def owner_of(ledger: Ledger, partition: int = 0) -> str | None:
    """Who holds a partition now."""
    name: str | None = await ledger.conn.fetchval(
        "SELECT owner FROM relay.lease WHERE partition = $1 AND expires_at > clock_timestamp()", partition
    )
    return name


async def owned_by(ledger: Ledger, process: RelayProcess, timeout_s: float = 15.0) -> None:
    """Wait until a process owns partition 0."""

    async def owns() -> bool:
        return f"-{process.pid}-" in (await owner_of(ledger) or "")

    await until(owns, timeout_s)
