"""A service for one run of a command: fresh servers in a directory of its own, which is removed at the end.

Invariant: nothing of the caller's environment reaches it, so it never touches another deployment's store.
"""

import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pamspec_cli import keys
from pamspec_cli.bench.environment import up
from pamspec_cli.data import DataDirectory
from pamspec_cli.servers.postgres import SUPERUSER, PostgresAddress
from pamspec_cli.servers.process import LOOPBACK
from pamspec_cli.stack import DATABASE

STRANGER = keys.Owner("tenant:stranger", "human:stranger", "human", roles=["admin"])
_UNSET = dict.fromkeys(
    ("PAMSPEC_DATABASE_URL", "PAMSPEC_NATS_URL", "PAMSPEC_NATS_NKEY_SEED", "PAMSPEC_VALKEY_URL", "PAMSPEC_DEV_KEY"), ""
)


@dataclass
class OwnService:
    """A running service: its address and keys of two principals, of which the second is of another tenant."""

    data: DataDirectory
    url: str
    key: str = field(repr=False)
    stranger_key: str = field(repr=False)
    _process: AsyncExitStack

    async def restart(self) -> None:
        """Every process ends, the servers' too, and starts again on the same store, at the same address."""
        await self._process.aclose()
        product = await self._process.enter_async_context(up(self.data.path, environment=_UNSET))
        self.url = product.url


@asynccontextmanager
async def own_service() -> AsyncIterator[OwnService]:
    """`pamspec up` as a child of this process, on fresh servers; nothing of it is left at the end."""
    directory = Path(tempfile.mkdtemp(prefix="pamspec-own-"))
    try:
        async with AsyncExitStack() as process:
            product = await process.enter_async_context(up(directory, environment=_UNSET))
            data = DataDirectory(directory)
            key = (directory / "secrets" / "development-key").read_text(encoding="utf-8").strip()
            _, stranger = await keys.create_key(administrator(data), STRANGER)
            yield OwnService(data, product.url, key, stranger, process)
    finally:
        shutil.rmtree(directory)


def administrator(data: DataDirectory) -> keys.Administrator:
    """The administrator of the embedded servers of a data directory."""
    port = data.port("postgres")
    assert port is not None
    password = (data.path / "postgres" / "superuser.password").read_text(encoding="ascii").strip()
    pepper = (data.path / "secrets" / "key-pepper").read_text(encoding="ascii").strip()
    address = PostgresAddress("", LOOPBACK, port, 0, SUPERUSER, password)
    return keys.Administrator(address.tcp_dsn(DATABASE), pepper.encode())
