"""Embedded servers start on what is there, keep their data, and end with their parent."""

import asyncio
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import asyncpg
import nats as nats_client
import psutil
import pytest
from redis.asyncio import Redis

from pamspec_cli.processes import answers
from pamspec_cli.servers import postgres as postgres_room
from pamspec_cli.servers.nats import MAX_PAYLOAD, EmbeddedNats
from pamspec_cli.servers.postgres import LOWEST, EmbeddedPostgres
from pamspec_cli.servers.process import ServerError, ServerProcess, Step, free_port, working_in
from pamspec_cli.servers.valkey import EmbeddedValkey
from pamspec_common.server import serving
from pamspec_common.service import Part, Service

PARENT = """
import asyncio, sys
from pathlib import Path
from pamspec_cli.servers.nats import EmbeddedNats
from pamspec_cli.servers.postgres import EmbeddedPostgres
from pamspec_cli.servers.valkey import EmbeddedValkey

async def main(root):
    for server in (EmbeddedPostgres(root / "postgres"), EmbeddedNats(root / "nats"), EmbeddedValkey(root / "valkey")):
        await server.start()
        print(server.process.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main(Path(sys.argv[1])))
"""


@pytest.fixture
def root() -> Iterator[Path]:
    """A directory that nobody but its owner may enter, as a data directory is."""
    path = Path(tempfile.mkdtemp(prefix="pamspec-servers-"))
    yield path
    for note in path.rglob("run"):
        shutil.rmtree(note.read_text(encoding="utf-8").strip(), ignore_errors=True)
    shutil.rmtree(path)


def ended(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


async def all_ended(processes: list[psutil.Process]) -> None:
    """Waits until they have ended, reaped or not; TimeoutError after 30 s."""
    async with asyncio.timeout(30):
        while not all(ended(process) for process in processes):
            await asyncio.sleep(0.01)


@pytest.fixture
async def cluster(root: Path) -> AsyncIterator[EmbeddedPostgres]:
    server = EmbeddedPostgres(root / "postgres")
    await server.start()
    yield server
    await server.stop()


async def fetchval(dsn: str, query: str) -> object:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


async def execute(dsn: str, statement: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def dsn_of(server: EmbeddedPostgres) -> str:
    assert server.address is not None
    return server.address.dsn()


async def test_postgres_is_durable_private_and_unprivileged(cluster: EmbeddedPostgres) -> None:
    dsn = dsn_of(cluster)
    for setting in ("fsync", "full_page_writes", "synchronous_commit", "data_checksums"):
        assert await fetchval(dsn, f"SHOW {setting}") == "on"
    assert await fetchval(dsn, "SHOW listen_addresses") == "127.0.0.1"
    await execute(dsn, "CREATE EXTENSION vector")
    assert mode(cluster.data) == 0o700
    assert mode(cluster.directory / "superuser.password") == 0o600
    assert mode(cluster.process.log) == 0o600
    pid = cluster.process.pid
    assert pid is not None
    assert psutil.Process(pid).uids().real != 0
    assert cluster.address is not None
    assert await fetchval(cluster.address.tcp_dsn(), "SELECT 1") == 1
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(cluster.address.dsn(user="postgres", password="wrong"))


async def test_postgres_keeps_its_data_over_a_stop_and_a_kill(cluster: EmbeddedPostgres) -> None:
    address = cluster.address
    await execute(dsn_of(cluster), "CREATE TABLE kept (n int); INSERT INTO kept VALUES (1)")
    await cluster.stop()
    await cluster.stop()
    assert await cluster.start() == address
    await execute(dsn_of(cluster), "INSERT INTO kept VALUES (2)")
    cluster.process.kill()
    assert (cluster.data / "postmaster.pid").exists()
    # The pid of a live process that is not ours, as after a restart of the machine.
    (cluster.data / "postmaster.pid").write_text(f"{os.getpid()}\n{cluster.data}\n", encoding="ascii")
    assert await cluster.start() == address
    assert await fetchval(dsn_of(cluster), "SELECT sum(n) FROM kept") == 3


async def test_the_lowest_supported_postgres_starts_too(root: Path) -> None:
    server = EmbeddedPostgres(root / "postgres", version=LOWEST)
    address = await server.start()
    assert address.version == LOWEST
    assert int(str(await fetchval(address.dsn(), "SHOW server_version_num"))) // 10_000 == LOWEST
    await execute(address.dsn(), "CREATE EXTENSION vector")
    await server.stop()
    # An existing cluster keeps its version.
    again = EmbeddedPostgres(root / "postgres")
    assert (await again.start()).version == LOWEST
    await again.stop()


async def test_postgres_starts_when_its_account_cannot_read_the_wheel(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = postgres_room.installation(postgres_room.NEWEST)
    hidden = root / "venv" / original.parent.name
    shutil.copytree(original, hidden / original.name)
    libraries = original.parent.name + ".libs"
    shutil.copytree(original.parent.with_name(libraries), hidden.with_name(libraries))
    monkeypatch.setattr(postgres_room, "installation", lambda _: hidden / original.name)
    server = EmbeddedPostgres(root / "postgres")
    address = await server.start()
    assert await fetchval(address.dsn(), "SELECT 1") == 1
    await execute(address.dsn(), "CREATE EXTENSION vector")
    run = Path(address.socket_directory).parent
    await server.stop()
    assert not run.exists()


async def test_a_cluster_whose_making_was_interrupted_is_made_anew(root: Path) -> None:
    server = EmbeddedPostgres(root / "postgres")
    (server.directory / "data.new").mkdir(parents=True)
    (server.directory / "data.new" / "PG_VERSION").write_text("18\n", encoding="ascii")
    await server.start()
    assert await fetchval(dsn_of(server), "SELECT 1") == 1
    await server.stop()


async def test_a_server_that_cannot_start_says_why(root: Path) -> None:
    server = EmbeddedPostgres(root / "postgres", settings={"shared_buffers": "nonsense"})
    with pytest.raises(ServerError, match="shared_buffers"):
        await server.start()
    await server.stop()


async def test_a_taken_port_is_avoided(root: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = EmbeddedNats(root / "nats", port=port)
        address = await server.start()
        assert address.port != port
        await server.stop()


def test_ports_are_given_once_and_none_of_the_kernels_own() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    ports = [free_port() for _ in range(400)]
    assert len(set(ports)) == len(ports)
    assert max(ports) < first


async def test_whoever_answers_for_a_child_that_ended_does_not_make_it_ready(root: Path) -> None:
    child = ServerProcess("child", root, root / "child.log")
    child.spawn([sys.executable, "-c", ""])
    await child.wait()

    async def somebody_answers() -> bool:
        return True

    with pytest.raises(ServerError, match="ended while starting"):
        await child.wait_ready(somebody_answers, 30.0)


async def test_only_the_service_itself_answers_for_itself() -> None:
    async def nothing() -> None:
        return

    async def well() -> list[Part]:
        return []

    service = Service("write", {}, well, nothing, nothing)
    async with serving(service) as url, aiohttp.ClientSession() as session:
        assert await answers(session, url, "write")
        assert not await answers(session, url, "query")


async def test_nats_keeps_its_streams_over_a_stop_and_a_kill(root: Path) -> None:
    server = EmbeddedNats(root / "nats")
    address = await server.start()
    assert mode(server.config_file) == 0o600
    assert {mode(seed) for seed in server.directory.glob("*.nk")} == {0o600}
    client = await nats_client.connect(address.url, nkeys_seed_str=address.service_seed)
    assert client.max_payload == MAX_PAYLOAD
    await client.jetstream().add_stream(name="KEPT", subjects=["kept.>"])
    await client.jetstream().publish("kept.1", b"one")
    await client.close()
    await server.stop()
    await server.stop()
    address = await server.start()
    client = await nats_client.connect(address.url, nkeys_seed_str=address.service_seed)
    await client.jetstream().publish("kept.2", b"two")
    server.process.kill()
    again = await server.start()
    assert again.port == address.port
    other = await nats_client.connect(again.url, nkeys_seed_str=again.service_seed)
    assert (await other.jetstream().stream_info("KEPT")).state.messages == 2
    await other.close()
    await client.close()
    await server.stop()


async def test_the_system_account_kicks_clients_and_sees_no_stream(root: Path) -> None:
    server = EmbeddedNats(root / "nats")
    address = await server.start()
    system = await nats_client.connect(address.url, nkeys_seed_str=address.system_seed)
    reply = await system.request("$SYS.REQ.SERVER.PING.VARZ", b"", timeout=60)
    assert b"pamspec-embedded" in reply.data
    await system.close()
    await server.stop()


async def test_valkey_starts_again_after_a_kill(root: Path) -> None:
    server = EmbeddedValkey(root / "valkey")
    first = await server.start()
    server.process.kill()
    address = await server.start()
    assert address.port == first.port
    assert mode(server.directory / "valkey.conf") == 0o600
    client: Redis = Redis.from_url(address.url)
    assert await client.set("key", "value")
    await client.aclose()
    await server.stop()
    await server.stop()


def start_parent(root: Path) -> tuple[subprocess.Popen[bytes], list[psutil.Process]]:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(root)], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    return parent, [psutil.Process(int(parent.stdout.readline())) for _ in range(3)]


async def test_servers_end_with_a_killed_parent(root: Path) -> None:
    parent, servers = start_parent(root)
    parent.kill()
    parent.wait()
    await all_ended(servers)


async def test_servers_that_outlived_their_parent_are_replaced(root: Path) -> None:
    parent, servers = start_parent(root)
    for server in servers:
        server.suspend()
    parent.kill()
    parent.wait()
    embedded = (EmbeddedPostgres(root / "postgres"), EmbeddedNats(root / "nats"), EmbeddedValkey(root / "valkey"))
    for successor in embedded:
        await successor.start()
    assert all(ended(server) for server in servers)
    for successor in embedded:
        await successor.stop()
    for place in ("postgres/data", "nats", "valkey"):
        assert not working_in(root / place)


async def test_a_server_that_ignores_the_polite_signal_is_killed(root: Path) -> None:
    server = EmbeddedNats(root / "nats")
    await server.start()
    pid = server.process.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    await server.process.stop([Step(signal.SIGTERM, 0.2)])
    assert not psutil.pid_exists(pid)
