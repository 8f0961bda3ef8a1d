"""A compose project of a clean checkout: what git has of this tree, in a directory and under a name of its own."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pamspec_cli.servers.process import free_port
from pamspec_client import AsyncClient, NatsLogin, RetryPolicy

ROOT = Path(__file__).parents[2]
BUILD_SECONDS = 1500.0
SECONDS = 300.0
"""For whatever a command does with images that are there, on a slow machine."""
PATIENCE = RetryPolicy(attempts=400, cap_s=0.5)
"""Of writers that must have every write acknowledged, however long a container is away."""


@dataclass
class Project:
    """One deployment in containers."""

    directory: Path
    environment: dict[str, str]
    door: int
    bus: int
    key: str = field(default="", repr=False)

    async def run(self, *command: str, within_s: float = SECONDS) -> str:
        """What a command in the checkout says; AssertionError with its last lines when it fails."""
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=self.directory,
            env=self.environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(within_s):
                out, error = await process.communicate()
        except BaseException:
            if process.returncode is None:
                process.kill()
                await process.wait()
            raise
        said = (out + error).decode(errors="replace")
        assert process.returncode == 0, f"{' '.join(command)[:200]}\nended with {process.returncode}:\n{said[-4000:]}"
        return out.decode()

    async def compose(self, *arguments: str, within_s: float = SECONDS) -> str:
        """`docker compose ...`"""
        return await self.run("docker", "compose", *arguments, within_s=within_s)

    async def up(self, *arguments: str) -> float:
        """`docker compose up -d --wait ...`; how many seconds that took."""
        began = time.monotonic()
        await self.compose("up", "-d", "--wait", *arguments)
        return time.monotonic() - began

    async def containers(self, service: str) -> list[str]:
        """The ids of the running containers of a service."""
        return (await self.compose("ps", "-q", service)).split()

    async def verified(self) -> str:
        """What `pamspec verify` says where every ledger is whole, as the page has it."""
        verify = "PAMSPEC_DATABASE_URL=$(cat /secrets/admin/pamspec_database_url) pamspec verify"
        return await self.compose("run", "--rm", "-T", "tools", "sh", "-c", verify)

    def client(self) -> AsyncClient:
        """A client at the two doors."""
        return AsyncClient(
            f"http://127.0.0.1:{self.door}",
            self.key,
            retry=PATIENCE,
            nats=NatsLogin(f"nats://127.0.0.1:{self.bus}"),
        )

    def words(self, page: str, heading: str) -> str:
        """The first commands below a heading of a page, with this project's doors in the place of the usual ones."""
        text = (self.directory / page).read_text(encoding="utf-8")
        found = re.search(rf"^## {re.escape(heading)}\n\n```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        assert found, f"{page} has no commands right below {heading!r}"
        return found[1].replace(":8080", f":{self.door}").replace(":4222", f":{self.bus}")


def check_out(directory: Path) -> None:
    """Copies every file of this tree that git knows."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, directory / name)


@asynccontextmanager
async def project(directory: Path) -> AsyncIterator[Project]:
    """A checkout with nothing that git does not have; its containers, networks and volumes are gone at the end."""
    check_out(directory)
    door, bus = free_port(), free_port()
    environment = {
        **{name: text for name, text in os.environ.items() if not name.startswith(("PAMSPEC_", "OTEL_", "COMPOSE_"))},
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "COMPOSE_PROJECT_NAME": f"pamspec-test-{secrets.token_hex(4)}",
        "PAMSPEC_PUBLISH": f"127.0.0.1:{door}",
        "PAMSPEC_PUBLISH_NATS": f"127.0.0.1:{bus}",
    }
    made = Project(directory, environment, door, bus)
    try:
        yield made
    except BaseException as error:
        error.add_note(await made.compose("logs", "--tail", "20"))
        raise
    finally:
        await made.compose("--profile", "*", "down", "--volumes", "--remove-orphans", "--timeout", "5")
