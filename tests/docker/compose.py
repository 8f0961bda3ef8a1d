"""The deployment in containers, as the pages tell people to use it (`make test-compose`). Needs a Docker engine.

The tests share one deployment, in the order of this file, and print how long starts and recoveries took.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from tests.docker.project import BUILD_SECONDS, Project, project
from tests.integration.load import Load, followed, make_scopes, notes, under_load

COLLECTOR = "otel/opentelemetry-collector:0.138.0"
RECEIVER = Path(__file__).with_name("receiver.py")
OVERRIDE = """
services:
  collector:
    image: pamspec/tools
    entrypoint: [python, /receiver.py]
    command: []
    volumes: ["{receiver}:/receiver.py:ro"]
"""
"""In the place of the collector where its image can't be had: takes the same requests and prints each span."""

pytestmark = pytest.mark.timeout(1800)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Project]:
    """The deployment of this file, not started yet."""
    async with project(tmp_path_factory.mktemp("checkout")) as made:
        yield made


@asynccontextmanager
async def nothing_lost(deployed: Project, name: str, *, to_end: int = 200) -> AsyncIterator[Load]:
    """Load and followers over every channel around the block.

    Afterwards each follower has exactly what was acknowledged, once and in the order of the ledger, and every ledger
    verifies.
    """
    async with deployed.client() as client:
        scopes = await make_scopes(client, name, 2)
        load = Load([client], notes(scopes, name), writers=4, per_second=40)
        async with followed(lambda _: client, scopes) as followers:
            async with under_load(load):
                yield load
                await load.more(to_end)
            await followers.caught_up(load, 120)
            for follower in followers.all:
                wanted = sorted((entry.sequence, entry.event_id) for entry in load.acknowledged[follower.scope_id])
                received = [(sequence, event_id) for event_id, sequence in follower.received]
                assert received == wanted, f"{follower.channel} of {follower.scope_id}"
    await deployed.verified()


async def test_the_words_of_the_page(running: Project) -> None:
    """From a clean checkout: up, the key, and the demonstration, which compares all that it wrote with what came."""
    await running.compose("build", "--quiet", within_s=BUILD_SECONDS)
    began = time.monotonic()
    words = running.words("docs/running.md", "In containers")
    assert words.startswith("docker compose up -d --wait\n")
    assert words.endswith("pamspec demo\n")
    said = await running.run("bash", "-euc", f"{words}printf '\\n%s' \"$PAMSPEC_API_KEY\"\n")
    print(f"the words of the page, images built: {time.monotonic() - began:.0f} s")
    running.key = said.rsplit("\n", 1)[-1]
    assert running.key.startswith("pam_")


async def test_killed_services_lose_nothing(running: Project) -> None:
    """`docker compose kill write relay` under load, three times; each comes back by `up`."""
    async with nothing_lost(running, "killed") as load:
        for _ in range(3):
            await load.more(80)
            await running.compose("kill", "write", "relay")
            seconds = await running.up()
            print(f"write and relay killed, everything healthy again after {seconds:.1f} s")


async def test_killed_servers_lose_nothing(running: Project) -> None:
    """PostgreSQL, NATS and Valkey die under load; what was acknowledged was on their disks."""
    async with nothing_lost(running, "servers") as load:
        for server in ("postgres", "nats", "valkey"):
            await load.more(80)
            await running.compose("kill", server)
            seconds = await running.up()
            print(f"{server} killed, everything healthy again after {seconds:.1f} s")


async def test_a_process_that_dies_is_started_again(running: Project) -> None:
    """By the engine, without anybody's command."""
    async with nothing_lost(running, "died") as load:
        for service in ("write", "relay", "gateway"):
            (container,) = await running.containers(service)
            said = await running.run("docker", "inspect", "-f", "{{.State.Pid}}", container)
            began = time.monotonic()
            await running.run("kill", "-9", said.strip())
            await load.more(1)
            print(f"{service} died, the next write after {time.monotonic() - began:.1f} s")
            await running.up()
            assert await running.containers(service) == [container]


async def test_twice_as_many(running: Project) -> None:
    """The scaled services share the work; one of each may go at any time."""
    scales = ("--scale", "subscription=2", "--scale", "write=2", "--scale", "relay=2")
    async with nothing_lost(running, "scaled") as load:
        await running.up(*scales)
        for service in ("write", "relay", "subscription"):
            first, second = await running.containers(service)
            await load.more(80)
            await running.run("docker", "kill", first)
            await load.more(80)
            assert await running.containers(service) == [second]
            await running.up(*scales)
    await running.up()
    assert len(await running.containers("write")) == 1


async def test_data_and_secrets_survive_down_and_up(running: Project) -> None:
    async with running.client() as client:
        (scope,) = await make_scopes(client, "kept", 1)
        made = await client.create(
            scope_id=scope, object_type="claim", canonical_content="kept", provenance={"activity": "test"}
        )
    await running.compose("down")
    assert not await running.containers("postgres")
    print(f"up after down: {await running.up():.1f} s")
    async with running.client() as client:
        assert made.object_id is not None
        assert (await client.read(scope_id=scope, object_id=made.object_id)).content == "kept"
    await running.verified()


async def test_traces_reach_the_collector(running: Project) -> None:
    """By the words of the page, with a stand-in where the collector's image can't be had."""
    if not await asyncio.to_thread(available, COLLECTOR):
        (running.directory / "receiver.yml").write_text(OVERRIDE.format(receiver=RECEIVER), encoding="utf-8")
        running.environment["COMPOSE_FILE"] = "docker-compose.yml:receiver.yml"
        print("the collector's image can't be had: a receiver of our own took its place")
    export, up, logs = running.words("docs/running.md", "Telemetry").splitlines()
    assert up == "docker compose --profile telemetry up -d --wait"
    assert logs.startswith("docker compose logs -f collector")
    await running.run("bash", "-euc", f"{export}\n{up}")
    async with running.client() as client:
        (scope,) = await make_scopes(client, "traced", 1)
        await client.create(scope_id=scope, object_type="claim", canonical_content="x", provenance={"activity": "test"})
    wanted = {"pamspec-gateway", "pamspec-write", "pamspec-relay"}
    async with asyncio.timeout(120):
        while True:
            said = await running.compose("logs", "--no-log-prefix", "collector")
            if all(name in said for name in wanted):
                break
            await asyncio.sleep(1)


def available(image: str) -> bool:
    """Whether the engine has the image or can fetch it."""
    commands = (["docker", "image", "inspect", image], ["docker", "pull", "-q", image])
    return any(
        subprocess.run(one, capture_output=True, check=False, env=os.environ).returncode == 0 for one in commands
    )
