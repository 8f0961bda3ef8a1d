"""Runs the suite: starts the whole product on a directory of its own, and puts the key on what the suite sends.

The suite knows no credentials, so it speaks to a small proxy that adds one and changes nothing else. The exit code is
the suite's: 0 when nothing failed but what tools/mcp/expected-failures.yaml names.
"""

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import ClientSession, ClientTimeout, web

from pamspec_cli.servers.process import free_port

_HERE = Path(__file__).parent
_SUITE = "suite/node_modules/@modelcontextprotocol/conformance/dist/index.js"
_HOP_BY_HOP = frozenset(("connection", "content-length", "transfer-encoding"))
_START_S = 120


@asynccontextmanager
async def product(directory: Path) -> AsyncIterator[tuple[str, str]]:
    """The address of a gateway and a key."""
    key = "pam_" + "0" * 43
    port = free_port()
    environment = {**os.environ, "PAMSPEC_DEV_KEY": key, "PAMSPEC_EMBEDDER": "none"}
    command = [sys.executable, "-m", "pamspec_cli", "up", "--data", str(directory), "--port", str(port)]
    process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=asyncio.subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        async with ClientSession() as session, asyncio.timeout(_START_S):
            while not await _ready(session, url):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.2)
        yield url, key
    finally:
        process.terminate()
        await process.wait()


async def _ready(session: ClientSession, url: str) -> bool:
    try:
        async with session.get(f"{url}/readyz") as response:
            return response.status == 200
    except OSError:
        return False


@asynccontextmanager
async def with_key(url: str, key: str) -> AsyncIterator[str]:
    """The address of a proxy that adds the key."""
    session = ClientSession(timeout=ClientTimeout(total=None), auto_decompress=False)

    async def forward(request: web.Request) -> web.StreamResponse:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP_BY_HOP}
        headers["Authorization"] = f"Bearer {key}"
        body = await request.read() or None
        async with session.request(request.method, url + request.path_qs, data=body, headers=headers) as answer:
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP_BY_HOP}
            passing = web.StreamResponse(status=answer.status, headers=kept)
            await passing.prepare(request)
            async for piece in answer.content.iter_any():
                await passing.write(piece)
            await passing.write_eof()
            return passing

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", forward)
    runner = web.AppRunner(application, shutdown_timeout=1.0)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "localhost", port).start()
    try:
        yield f"http://localhost:{port}/mcp"
    finally:
        await runner.cleanup()
        await session.close()


async def run(node: Path, suite: Path, more: Sequence[str]) -> int:
    """The exit code of the suite."""
    with tempfile.TemporaryDirectory(prefix="pamspec-mcp-") as directory:
        async with product(Path(directory) / "data") as (url, key), with_key(url, key) as address:
            expected = str(_HERE / "expected-failures.yaml")
            arguments = ["server", "--url", address, "--suite", "all", "--expected-failures", expected, *more]
            process = await asyncio.create_subprocess_exec(str(node), str(suite), *arguments, cwd=directory)
            return await process.wait()


def main() -> int:
    """Finds Node and the suite in the environment that was made for them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("environment", type=Path)
    given, more = parser.parse_known_args()
    node = Path((given.environment / "node").read_text(encoding="utf-8").strip())
    return asyncio.run(run(node, (given.environment / _SUITE).resolve(), more))


if __name__ == "__main__":
    sys.exit(main())
