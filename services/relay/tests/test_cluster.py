"""Three nodes: leaders step down and die in the middle of a burst; every event is stored once and in order (B39)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import nats as nats_client
import orjson
import pytest
import pytest_asyncio
from nats.aio.client import Client
from nats.errors import Error

from pamspec_cli.servers.databases import Database
from pamspec_cli.servers.nats import binary
from pamspec_cli.servers.process import ServerProcess, free_port
from pamspec_relay.app import build
from pamspec_relay.settings import Settings
from services.relay.tests.conftest import QUICK
from services.relay.tests.ledger_rows import Ledger, by_scope, expected, stored, until

STREAM = "PAMSPEC_LEDGER_0"
NODES = 3


class Cluster:
    """Three nats-servers on loopback."""

    def __init__(self, directory: Path) -> None:
        self.ports = [free_port() for _ in range(NODES)]
        routes = [free_port() for _ in range(NODES)]
        self.nodes: list[tuple[ServerProcess, Path]] = []
        for number, (port, route) in enumerate(zip(self.ports, routes, strict=True)):
            home = directory / f"node{number}"
            home.mkdir()
            config = home / "nats.conf"
            config.write_text(
                json.dumps(
                    {
                        "server_name": f"node{number}",
                        "listen": f"127.0.0.1:{port}",
                        "jetstream": {"store_dir": str(home / "store"), "max_file_store": 2**30},
                        "cluster": {
                            "name": "c",
                            "listen": f"127.0.0.1:{route}",
                            "routes": [f"nats://127.0.0.1:{other}" for other in routes],
                        },
                    }
                )
            )
            self.nodes.append((ServerProcess("nats-server", home, home / "nats.log"), config))

    @property
    def urls(self) -> list[str]:
        return [f"nats://127.0.0.1:{port}" for port in self.ports]

    def start(self, number: int) -> None:
        process, config = self.nodes[number]
        process.spawn([str(binary()), "--config", str(config)])


@pytest_asyncio.fixture(loop_scope="session")
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    found = Cluster(tmp_path)
    for number in range(NODES):
        found.start(number)
    yield found
    for process, _ in found.nodes:
        await process.stop([])


@pytest_asyncio.fixture(loop_scope="session")
async def member(cluster: Cluster) -> AsyncIterator[Client]:
    """A connection to any node, once the cluster has a leader."""
    connection = await nats_client.connect(
        cluster.urls, max_reconnect_attempts=-1, reconnect_time_wait=0.05, error_cb=_quiet
    )

    async def led() -> bool:
        try:
            reply = await connection.request("$JS.API.INFO", timeout=2)
        except (Error, TimeoutError):
            return False
        return "error" not in orjson.loads(reply.data)

    await until(led, 30)
    yield connection
    await connection.close()


async def _quiet(error: Exception) -> None:
    """Nodes are killed here on purpose."""


async def leader(client: Client) -> str:
    """The node that leads the stream; empty when there is none just now."""
    try:
        reply = await client.request(f"$JS.API.STREAM.INFO.{STREAM}", timeout=1)
    except (Error, TimeoutError):
        return ""
    return str(orjson.loads(reply.data).get("cluster", {}).get("leader") or "")


async def test_leaders_step_down_and_die_during_a_burst(
    database: Database, ledger: Ledger, cluster: Cluster, member: Client
) -> None:
    scopes = await ledger.add_scopes(50)
    settings = Settings(
        database_url=database.role("relay"), nats_url=",".join(cluster.urls), stream_replicas=NODES, **QUICK
    )
    relay = build(settings)
    await relay.start()
    try:
        await ledger.commit(scopes)
        await ledger.drained(40)
        for round_ in range(6):
            await ledger.commit(scopes * 40)
            before = await leader(member)
            for _ in range(30):
                await ledger.commit(scopes[: 1 + round_], member)
            if round_ % 3 < 2:
                await member.request(f"$JS.API.STREAM.LEADER.STEPDOWN.{STREAM}", timeout=5)
            elif before:
                number = int(before.removeprefix("node"))
                cluster.nodes[number][0].kill()
                await until(partial(_another, member, before), 30)
                await ledger.commit(scopes)
                cluster.start(number)
        await ledger.drained(60)
        await until(partial(_another, member, ""), 30)
        assert by_scope(await stored(member)) == expected(scopes)
    finally:
        await relay.stop()


async def _another(client: Client, before: str) -> bool:
    now = await leader(client)
    return bool(now) and now != before


async def test_small_and_large_batches_pass_a_cluster_without_refusals(
    database: Database, ledger: Ledger, cluster: Cluster, member: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """Messages in a row, each fenced behind the one before, as well as atomic batches."""
    scopes = await ledger.add_scopes(20)
    settings = Settings(
        database_url=database.role("relay"), nats_url=",".join(cluster.urls), stream_replicas=NODES, **QUICK
    )
    relay = build(settings)
    await relay.start()
    try:
        await ledger.commit(scopes)
        await ledger.drained(40)
        for count in (1, 2, 5, 8, 9, 20, 3, 1, 8) * 5:
            await ledger.commit(scopes[:count], member)
            await asyncio.sleep(0)
        await ledger.drained(40)
        assert by_scope(await stored(member)) == expected(scopes)
        assert not [record for record in caplog.records if "refused" in record.getMessage()]
    finally:
        await relay.stop()
