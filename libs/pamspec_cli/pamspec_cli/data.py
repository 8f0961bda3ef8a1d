"""The data directory of an embedded service: one owner at a time, its secrets, and a note of where it listens.

Invariant: whoever holds the lock is the only one that starts servers here. The kernel frees the lock when its holder
ends, however it ends, so a stale file never keeps anybody out.
"""

import fcntl
import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

from pamspec_cli.servers import secrets

DEFAULT = ".data"
_LOCK_SECONDS = 0.5


class DirectoryBusy(Exception):
    """Another process uses this data directory; the message names it and says what to do."""


def chosen(argument: str | None) -> Path:
    """The data directory: the argument, else PAMSPEC_DATA, else ./.data; absolute."""
    return Path(argument or os.environ.get("PAMSPEC_DATA") or DEFAULT).expanduser().resolve()


class DataDirectory:
    """One data directory, made with mode 0700. `with` holds its lock; DirectoryBusy when somebody else does."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None

    @property
    def lock_file(self) -> Path:
        """Locked by the owner; it holds the owner's pid."""
        return self.path / "lock"

    @property
    def state_file(self) -> Path:
        """Where the running service listens: JSON, gone when it has stopped."""
        return self.path / "state.json"

    @property
    def unfinished_restore(self) -> Path:
        """There while a backup is in place whose erasures have still to be done again: nothing may serve it."""
        return self.path / "postgres" / "restore.unfinished"

    def __enter__(self) -> "DataDirectory":
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path.chmod(0o700)
        lock = os.open(self.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if not _lock_exclusively(lock):
            os.close(lock)
            owner = self._written_pid()
            raise DirectoryBusy(
                f"{self.path} is in use by process {owner or 'unknown'}: stop it with  pamspec down --data {self.path}"
                "  or choose another directory with --data"
            )
        # A killed owner leaves its note behind.
        self.state_file.unlink(missing_ok=True)
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        self._lock = lock
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.state_file.unlink(missing_ok=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def owner(self) -> int | None:
        """The pid of the process that holds the lock now, or None when nobody does."""
        if not self.lock_file.exists():
            return None
        lock = os.open(self.lock_file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return self._written_pid()
        finally:
            os.close(lock)
        return None

    def secret(self, name: str, make: Callable[[], str] = secrets.password) -> str:
        """A secret of this directory, made at its first use."""
        return secrets.kept(self.path / "secrets" / name, make)

    def port(self, name: str) -> int | None:
        """The port that this server or service had last, so that addresses outlive a restart where they can."""
        found = self._ports().get(name)
        return found if isinstance(found, int) else None

    def keep_port(self, name: str, port: int) -> None:
        """Remembers a port for the next start."""
        ports = self._ports()
        if ports.get(name) != port:
            secrets.write_private(self.path / "ports.json", json.dumps(ports | {name: port}) + "\n")

    def note(self, state: Mapping[str, object]) -> None:
        """Writes down where the service listens."""
        secrets.write_private(self.state_file, json.dumps(state, indent=2) + "\n")

    def noted(self) -> dict[str, object]:
        """What the running service wrote down; empty before it is up and after it has ended, however it ended."""
        return {} if self.owner() is None else _json(self.state_file)

    def _ports(self) -> dict[str, object]:
        return _json(self.path / "ports.json")

    def _written_pid(self) -> int | None:
        text = self.lock_file.read_text(encoding="ascii").strip()
        return int(text) if text.isdigit() else None


def _json(path: Path) -> dict[str, object]:
    if not path.exists():
        return {}
    found = json.loads(path.read_text(encoding="utf-8"))
    return found if isinstance(found, dict) else {}


def _lock_exclusively(lock: int) -> bool:
    """Whether we got the lock; patient for a moment, since `owner` of another process holds it while it looks."""
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        else:
            return True
