"""PgBouncer in transaction mode in front of a test's PostgreSQL, with the configuration that we ship.

PAMSPEC_TEST_POOLER=pgbouncer puts one in front of every deployment of the integration tests. It runs in a container.
"""

from __future__ import annotations

import asyncio
import configparser
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit, urlunsplit

import asyncpg
from testcontainers.core.image import DockerImage

from pamspec_cli.servers.process import LOOPBACK, ServerProcess, Step, free_port, unprivileged_account
from pamspec_cli.stack import Addresses
from tests.servers.containers import ContainerProcess

SHIPPED = Path(__file__).parents[2] / "deploy" / "pgbouncer" / "pgbouncer.ini"
IMAGE = "pamspec-test/pgbouncer:latest"
START_SECONDS = 60.0
SERVER_CONNECTIONS = 4
"""For each role: fewer than the services have, so that transactions of several share one."""


def wanted() -> bool:
    """Whether the deployments of this run stand behind a pooler."""
    kind = os.environ.get("PAMSPEC_TEST_POOLER", "")
    if kind not in ("", "pgbouncer"):
        raise RuntimeError(f"PAMSPEC_TEST_POOLER is pgbouncer or empty, not {kind!r}")
    return kind == "pgbouncer"


@cache
def built() -> str:
    """The image, made once in a run."""
    here = Path(__file__).parent
    DockerImage(here, tag=IMAGE, clean_up=False, dockerfile_path="pgbouncer.Dockerfile", network_mode="host").build()
    return IMAGE


def between(url: str, port: int) -> str:
    """The same login to the same database, through a pooler on loopback."""
    parts = urlsplit(url)
    login = parts.netloc.rpartition("@")[0]
    return urlunsplit(parts._replace(netloc=f"{login}@{LOOPBACK}:{port}", query=""))


def configuration(url: str, directory: Path, port: int) -> str:
    """What we ship, with the places of this test."""
    parts = urlsplit(url)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    database = parts.path.lstrip("/")
    shipped = configparser.ConfigParser(interpolation=None)
    shipped.read_string(SHIPPED.read_text(encoding="utf-8"))
    shipped["databases"] = {database: f"host={LOOPBACK} port={parts.port or query['port']} dbname={database}"}
    shipped["pgbouncer"].update(
        {
            "listen_addr": LOOPBACK,
            "listen_port": str(port),
            "auth_file": str(directory / "userlist.txt"),
            "default_pool_size": str(SERVER_CONNECTIONS),
            "unix_socket_dir": "",
        }
    )
    lines = []
    for section in shipped.sections():
        lines += [f"[{section}]", *(f"{name} = {value}" for name, value in shipped[section].items()), ""]
    return "\n".join(lines)


@asynccontextmanager
async def pooled(addresses: Addresses, directory: Path) -> AsyncIterator[Addresses]:
    """The same servers, with the services' logins leading through PgBouncer; the administrator's goes past it."""
    directory.mkdir(mode=0o755, parents=True)
    port = free_port()
    users = []
    for url in addresses.role_urls.values():
        parts = urlsplit(url)
        users.append(f'"{parts.username}" "{unquote(parts.password or "")}"\n')
    (directory / "userlist.txt").write_text("".join(users), encoding="utf-8")
    file = directory / "pgbouncer.ini"
    file.write_text(configuration(next(iter(addresses.role_urls.values())), directory, port), encoding="utf-8")
    like = ServerProcess("PgBouncer", directory, directory / "pgbouncer.log")
    process = ContainerProcess(like, await asyncio.to_thread(built), [directory])
    account = unprivileged_account()
    process.spawn(["pgbouncer", str(file)], account=account)
    through = {role: between(url, port) for role, url in addresses.role_urls.items()}
    try:
        await process.wait_ready(lambda: _answers(through["pamspec_write"]), START_SECONDS)
        yield replace(addresses, role_urls=through)
    finally:
        await process.stop([Step(process.death_signal, 10.0)])


async def _answers(url: str) -> bool:
    try:
        connection = await asyncpg.connect(url, timeout=5)
    except (OSError, TimeoutError, asyncpg.PostgresError):
        return False
    await connection.close()
    return True
