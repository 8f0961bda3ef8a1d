"""The bench: its arithmetic, its load generator, and that weakened servers are refused."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web

from pamspec_cli.bench import bodies, table
from pamspec_cli.bench.durability import Weakened, check
from pamspec_cli.bench.figures import Figure, Measured, at_least, in_turns, percentile
from pamspec_cli.bench.generator import Generator, LoadFailed, post_request
from pamspec_cli.bench.http import echo
from pamspec_cli.bench.oracle import auc
from pamspec_cli.servers.nats import EmbeddedNats
from pamspec_cli.servers.postgres import EmbeddedPostgres


def test_a_figure_is_a_median_with_its_spread_beside_its_floor() -> None:
    value, floor = Measured.of([90, 100, 110, 100, 1000]), Measured.of([50, 50, 50, 40, 60])
    figure = at_least("x", value, "things/s", floor, 2.0)
    assert (figure.value, figure.floor, figure.ratio, figure.ok) == (100, 50, 2.0, True)
    assert figure.spread == pytest.approx(9.1)
    assert not at_least("x", value, "things/s", floor, 2.1).ok
    assert at_least("x", value, "things/s", floor, 2.1, or_value=100).ok
    assert set(figure.document()) >= {"name", "value", "unit", "floor", "ratio", "target", "ok"}


@pytest.mark.parametrize(("share", "value"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.001, 1)])
def test_percentiles_are_values_that_were_seen(share: float, value: int) -> None:
    assert percentile(range(100, 0, -1), share) == value


def test_how_well_a_threshold_tells_two_apart() -> None:
    assert auc([1, 2, 3], [1, 2, 3]) == 0.5
    assert auc([1, 2, 3], [4, 5, 6]) == auc([4, 5, 6], [1, 2, 3]) == 1.0
    assert auc([1, 1, 1, 2], [1, 1, 2, 2]) == pytest.approx(0.625)


async def test_product_and_floor_take_turns() -> None:
    order: list[str] = []

    async def run(name: str) -> float:
        order.append(name)
        return float(len(order))

    product, floor = await in_turns(lambda: run("a"), lambda: run("b"), 3)
    assert order == ["a", "b"] * 3
    assert (product.rounds, floor.rounds) == ((1, 3, 5), (2, 4, 6))


def test_figures_are_chosen_by_the_start_of_their_names() -> None:
    assert len(set(table.NAMES)) == len(table.NAMES)
    assert [group.names for group in table.chosen(["relay"])] == [("relay.drain",)]
    assert [group.names for group in table.chosen(["catchup.long"])] == [("catchup.long_ledger",)]
    assert not any(group.scale for group in table.chosen([]))
    assert table.chosen(["nothing"]) == []


def test_the_table_has_a_line_for_each_figure() -> None:
    figures = [
        Figure("a.b", 12345.6, "x/s", 10.0, 1234.56, ">= 1 x floor", True, 0.25),
        Figure("c", 1.5, "s", None, None, "<= 1 s", False),
    ]
    lines = table.lines(table.Results({"fsync": "on", "sync_interval": "always"}, figures))
    assert len(lines) == 4
    assert lines[0] == "fsync = on, sync_interval = always"
    assert lines[2].split() == ["ok", "a.b", "12,346", "x/s", "10", "1234.56", ">=", "1", "x", "floor", "25%"]
    assert lines[3].startswith("SHORT")


class Counted:
    """An HTTP server that notes what it was sent."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.headers: list[tuple[str | None, str | None]] = []
        self.status = 201
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        document = json.loads(await request.read())
        self.keys.append(document["idempotency_key"])
        self.headers.append((request.headers.get("Authorization"), request.headers.get("Content-Type")))
        return web.json_response(document, status=self.status)


@pytest_asyncio.fixture
async def counted() -> AsyncIterator[Counted]:
    server = Counted()
    app = web.Application()
    app.router.add_post("/v1/create", server.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    server.url = f"http://{host}:{port}"
    yield server
    await runner.cleanup()


async def test_the_generator_never_sends_a_key_twice(counted: Counted) -> None:
    async with Generator() as generator:
        first = await generator.post(counted.url, "/v1/create", bodies.create_bytes("bench:x"), "a key", 0.2, 8)
        second = await generator.post(counted.url, "/v1/create", bodies.create_bytes("bench:x"), "a key", 0.2, 8)
    assert len(counted.keys) == first.count + second.count > 20
    assert len(set(counted.keys)) == len(counted.keys)
    assert set(counted.headers) == {("Bearer a key", "application/json")}
    assert 0 < first.p50_ms <= first.p99_ms


async def test_the_generator_cycles_through_prepared_requests(counted: Counted) -> None:
    requests = [
        post_request(counted.url, "/v1/create", bodies.create_bytes("bench:x", name), None) for name in ("one", "two")
    ]
    async with Generator() as generator:
        load = await generator.cycle(counted.url, requests, 0.1, 2)
    assert load.count == len(counted.keys)
    assert set(counted.keys) == {"bench-one", "bench-two"}


async def test_an_answer_that_is_no_success_fails_the_round(counted: Counted) -> None:
    counted.status = 503
    async with Generator() as generator:
        with pytest.raises(LoadFailed, match="503"):
            await generator.post(counted.url, "/v1/create", bodies.create_bytes("bench:x"), None, 0.1, 2)


async def test_the_floor_over_http_validates_what_the_product_takes() -> None:
    async with echo() as url, Generator() as generator:
        assert (await generator.post(url, "/v1/create", bodies.create_bytes("bench:x"), None, 2.0, 4)).count > 0
        with pytest.raises(LoadFailed, match="422"):
            await generator.post(url, "/v1/create", bodies.create_bytes("no id"), None, 0.1, 1)


async def test_servers_that_do_not_write_through_are_not_measured(
    postgres_server: str, tmp_path: Path, nats_process: EmbeddedNats
) -> None:
    assert nats_process.address is not None
    strong = await check(postgres_server, nats_process.address.monitor_url)
    assert strong.settings == {
        "fsync": "on",
        "synchronous_commit": "on",
        "full_page_writes": "on",
        "sync_interval": "always",
    }
    lazy = EmbeddedNats(tmp_path / "lazy", sync_interval="10s")
    weak = EmbeddedPostgres(tmp_path / "weak", settings={"synchronous_commit": "off", "fsync": "off"})
    address, database = await asyncio.gather(lazy.start(), weak.start())
    try:
        with pytest.raises(Weakened, match="sync_interval = 10 s"):
            await check(postgres_server, address.monitor_url)
        with pytest.raises(Weakened, match="fsync = off, synchronous_commit = off"):
            await check(database.dsn(), nats_process.address.monitor_url)
    finally:
        await asyncio.gather(lazy.stop(), weak.stop())
