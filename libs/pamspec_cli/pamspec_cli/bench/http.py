"""Figures 2 and 3: creates, batches and reads over HTTP, against a bare FastAPI endpoint that echoes the create."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pamspec_cli.bench import bodies
from pamspec_cli.bench.create_inprocess import hot_scope_creates
from pamspec_cli.bench.environment import Environment, Product
from pamspec_cli.bench.figures import ROUNDS, Figure, Measured, at_least, in_turns
from pamspec_cli.bench.generator import Generator, Load, post_request

SECONDS = 1.5
BATCH = 100
BATCH_CONNECTIONS = 8
READ_OBJECTS = 2000


@asynccontextmanager
async def echo() -> AsyncIterator[str]:
    """The floor in a process of its own; its URL."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pamspec_cli.bench.echo"), stdout=asyncio.subprocess.PIPE
    )
    try:
        if child.stdout is None:
            raise RuntimeError("the floor has no output")
        async with asyncio.timeout(30):
            port = int(await child.stdout.readline())
        yield f"http://127.0.0.1:{port}"
    finally:
        child.terminate()
        await child.wait()


class Rounds:
    """Rounds of one generator against product and floor, with the latencies that it saw."""

    def __init__(self, generator: Generator, environment: Environment, product: Product, floor_url: str) -> None:
        self.generator, self.environment, self.product, self.floor_url = generator, environment, product, floor_url
        self.seen: list[Load] = []

    async def create(self, scope_id: str) -> float:
        """Creates per second of the product."""
        return await self._post("/v1/create", bodies.create_bytes(scope_id))

    async def batch(self, scope_id: str) -> float:
        """Items per second of the product, 100 in a request."""
        body = bodies.batch_bytes(scope_id, BATCH)
        return BATCH * await self._post("/v1/batch", body, BATCH_CONNECTIONS)

    async def _post(self, path: str, body: bytes, connections: int = 64) -> float:
        load = await self.generator.post(
            self.product.url, path, body, self.environment.key, SECONDS, connections=connections
        )
        self.seen.append(load)
        return load.per_second

    async def read(self, requests: list[bytes]) -> float:
        """Reads per second of the product."""
        load = await self.generator.cycle(self.product.url, requests, SECONDS)
        self.seen.append(load)
        return load.per_second

    async def echo(self) -> float:
        """Requests per second of the floor."""
        body = bodies.create_bytes("bench:echo")
        load = await self.generator.post(self.floor_url, "/v1/create", body, None, SECONDS)
        return load.per_second

    def latencies(self) -> dict[str, float]:
        """The medians of the latencies of the product's rounds, in milliseconds."""
        return {
            "p50_ms": Measured.of([load.p50_ms for load in self.seen[-ROUNDS:]]).median,
            "p99_ms": Measured.of([load.p99_ms for load in self.seen[-ROUNDS:]]).median,
        }


@asynccontextmanager
async def rounds(environment: Environment, *arguments: str) -> AsyncIterator[Rounds]:
    """The product with these arguments, the floor and the generator, warm."""
    async with environment.product(*arguments) as product, echo() as floor_url, Generator() as generator:
        async with environment.client(product) as client:
            await client.create_scope(scope_id="bench:http", scope_kind="bench")
        made = Rounds(generator, environment, product, floor_url)
        await made.create("bench:http")
        await made.echo()
        yield made


async def one_process(environment: Environment) -> list[Figure]:
    """Creates, reads and batches over HTTP in one process."""
    async with rounds(environment) as made:
        created, floor = await in_turns(lambda: made.create("bench:http"), made.echo)
        figures = [at_least("http.create", created, "requests/s", floor, 1.0, details=made.latencies())]
        requests = await _reads(environment, made.product)
        await made.read(requests)
        read, floor = await in_turns(lambda: made.read(requests), made.echo)
        figures.append(at_least("http.read", read, "requests/s", floor, 1.5, details=made.latencies()))
    async with rounds(environment) as made, hot_scope_creates(environment) as hot_creates:
        await made.batch("bench:http")
        batched, hot = await in_turns(lambda: made.batch("bench:http"), hot_creates)
    note = f"items of batches of {BATCH}; floor: creates in process on one hot scope, as in create.hot_scope"
    figures.append(at_least("http.batch_items", batched, "items/s", hot, 0.8, note=note))
    return figures


async def create_processes(environment: Environment) -> Figure:
    """Creates over HTTP with one process per service."""
    async with rounds(environment, "--processes") as made:
        created, floor = await in_turns(lambda: made.create("bench:http"), made.echo)
        return at_least(
            "http.create_processes",
            created,
            "requests/s",
            floor,
            0.6,
            details=made.latencies(),
            note="pamspec up --processes",
        )


async def _reads(environment: Environment, product: Product) -> list[bytes]:
    """Requests that read objects by their ids."""
    async with environment.client(product) as client:
        page = client.query_pages(
            scope_id="bench:http", query={"kind": "structured", "trust": "all"}, fields=["object_id"], page_size=1000
        )
        ids: list[str] = []
        async for found in page:
            ids += [(item.projection or {})["object_id"] for item in found.items]
            if len(ids) >= READ_OBJECTS:
                break
    template = '{"scope_id":"bench:http","object_id":"%s"}'
    return [post_request(product.url, "/v1/read", (template % id_).encode(), environment.key) for id_ in ids]
