"""Three nodes of NATS, each in a network namespace of its own, cut off from one another (`make test-partitions`).

Needs root and iproute2, so it is no part of `make test`. Nothing leaves the machine: the nodes hang on a switch of the
test's own, in the addresses that are set aside for tests (RFC 2544).
"""

from __future__ import annotations

import asyncio
import json
import secrets
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
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
from pamspec_cli.servers.process import ServerProcess
from pamspec_relay.app import build
from pamspec_relay.settings import Settings
from services.relay.tests.conftest import QUICK, ledger
from services.relay.tests.ledger_rows import Ledger, by_scope, expected, stored, until

__all__ = ["ledger"]

STREAM = "PAMSPEC_LEDGER_0"
NODES = 3
CLIENTS, ROUTES = 4222, 6222


class Network:
    """A switch with a namespace of its own, which no filter of the machine concerns, and a namespace for each node."""

    def __init__(self) -> None:
        self.name = f"ps{secrets.token_hex(3)}"
        self.prefix = f"198.18.{secrets.randbelow(255)}"
        self._switch = f"{self.name}-switch"

    def __enter__(self) -> Network:
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for space in (*map(self.space, range(NODES)), self._switch):
            subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)

    def _make(self) -> None:
        _ip("netns", "add", self._switch)
        _ip("-n", self._switch, "link", "add", "switch", "type", "bridge")
        _ip("-n", self._switch, "link", "set", "switch", "up")
        self._plug(self.name, "")
        _ip("addr", "add", f"{self.prefix}.1/24", "dev", self.name)
        _ip("link", "set", self.name, "up")
        for number in range(NODES):
            space = self.space(number)
            _ip("netns", "add", space)
            self._plug("node", space, self._outside(number))
            _ip("-n", space, "addr", "add", f"{self.address(number)}/24", "dev", "node")
            _ip("-n", space, "link", "set", "node", "up")
            _ip("-n", space, "link", "set", "lo", "up")

    def _plug(self, inside: str, space: str, outside: str = "machine") -> None:
        """A wire between the switch and a device of that name in a namespace, or in the machine's."""
        draft, far = f"{self.name}a", f"{self.name}b"
        _ip("link", "add", draft, "type", "veth", "peer", "name", far)
        _ip("link", "set", far, "netns", self._switch)
        _ip("-n", self._switch, "link", "set", far, "name", outside)
        _ip("-n", self._switch, "link", "set", outside, "master", "switch", "up")
        if space:
            _ip("link", "set", draft, "netns", space)
        _ip(*(("-n", space) if space else ()), "link", "set", draft, "name", inside)

    def space(self, number: int) -> str:
        """The namespace of a node."""
        return f"{self.name}-{number}"

    def address(self, number: int) -> str:
        """Where a node listens."""
        return f"{self.prefix}.{10 + number}"

    def cut(self, number: int) -> None:
        """Nobody reaches the node, and it reaches nobody."""
        _ip("-n", self._switch, "link", "set", self._outside(number), "down")

    def mend(self, number: int) -> None:
        """It is back."""
        _ip("-n", self._switch, "link", "set", self._outside(number), "up")

    def _outside(self, number: int) -> str:
        return f"port{number}"


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr.strip()} (this needs root and iproute2)"


@pytest.fixture
def network() -> Iterator[Network]:
    with Network() as found:
        yield found


@pytest_asyncio.fixture(loop_scope="session")
async def urls(network: Network, tmp_path: Path) -> AsyncIterator[list[str]]:
    """The clients' addresses of three running nodes."""
    nodes = []
    for number in range(NODES):
        home = tmp_path / f"node{number}"
        home.mkdir()
        routes = [f"nats://{network.address(other)}:{ROUTES}" for other in range(NODES) if other != number]
        address = network.address(number)
        document = {
            "server_name": f"node{number}",
            "listen": f"{address}:{CLIENTS}",
            "jetstream": {"store_dir": str(home / "store"), "max_file_store": 2**30, "sync_interval": "always"},
            "cluster": {"name": "c", "listen": f"{address}:{ROUTES}", "routes": routes},
        }
        (home / "nats.conf").write_text(json.dumps(document))
        node = ServerProcess("nats-server", home, home / "nats.log")
        inside = [shutil.which("ip") or "/usr/sbin/ip", "netns", "exec", network.space(number)]
        node.spawn([*inside, str(binary()), "--config", str(home / "nats.conf")])
        await asyncio.sleep(0.5)
        assert node.running, (home / "nats.log").read_text()
        nodes.append(node)
    yield [f"nats://{network.address(number)}:{CLIENTS}" for number in range(NODES)]
    for node in nodes:
        await node.stop([])


@pytest_asyncio.fixture(loop_scope="session")
async def member(urls: list[str]) -> AsyncIterator[Client]:
    connection = await nats_client.connect(
        urls, max_reconnect_attempts=-1, reconnect_time_wait=0.05, ping_interval=1, error_cb=_quiet
    )
    await until(partial(_led, connection), 60)
    yield connection
    await connection.close()


async def _quiet(error: Exception) -> None:
    """Nodes are cut off on purpose."""


async def _led(client: Client) -> bool:
    try:
        reply = await client.request("$JS.API.INFO", timeout=2)
    except (Error, TimeoutError):
        return False
    return "error" not in orjson.loads(reply.data)


async def leader(client: Client) -> int | None:
    """The number of the node that leads the stream, as a reachable one knows it."""
    try:
        reply = await client.request(f"$JS.API.STREAM.INFO.{STREAM}", timeout=2)
    except (Error, TimeoutError):
        return None
    name = orjson.loads(reply.data).get("cluster", {}).get("leader")
    return int(name.removeprefix("node")) if name else None


@pytest.mark.timeout(600)
async def test_nodes_are_cut_off_in_a_burst(
    database: Database, ledger: Ledger, network: Network, urls: list[str], member: Client
) -> None:
    """Each node in turn, then whoever leads, then two at once: nothing lost, doubled or out of order."""
    scopes = await ledger.add_scopes(30)
    settings = Settings(database_url=database.role("relay"), nats_url=",".join(urls), stream_replicas=NODES, **QUICK)
    relay = build(settings)
    await relay.start()
    try:
        await ledger.commit(scopes)
        await ledger.drained(60)
        for victims in ([0], [1], [2], ["leader"], ["leader"], [0, 1]):
            await ledger.commit(scopes * 40)
            lead = await leader(member)
            cut = [(lead or 0) if one == "leader" else int(one) for one in victims]
            for number in cut:
                network.cut(number)
            for count in range(1, 20):
                await ledger.commit(scopes[:count])
            if len(cut) == 1:
                await ledger.drained(90)
            for number in cut:
                network.mend(number)
            await ledger.drained(90)
        await until(partial(_led, member), 60)
        assert by_scope(await stored(member)) == expected(scopes)
    finally:
        await relay.stop()
