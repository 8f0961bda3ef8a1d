"""One server process: start, readiness, bounded stop, and the remains of a killed predecessor.

Invariant: at most one process of a kind works in a directory. The caller holds the data directory's lock, so whatever
else runs there is a remnant of a killed owner and is ended before a new one starts.
"""

import asyncio
import os
import pwd
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

LAUNCHER = Path(__file__).with_name("launch.py")
LOG_LIMIT = 10 * 1024 * 1024
POLL_SECONDS = 0.01
LOOPBACK = "127.0.0.1"
_LOWEST_PORT = 15_000
_USUAL_FIRST_EPHEMERAL_PORT = 32_768
_PORT_TRIES = 1_000
_given_ports: set[int] = set()


class ServerError(RuntimeError):
    """A server did not start or ended by itself; the message holds the last lines of its log."""


@dataclass(frozen=True)
class Account:
    """The unprivileged user of a server that refuses root."""

    name: str
    uid: int
    gid: int


def unprivileged_account() -> Account | None:
    """Whom to become for a server that refuses root: PAMSPEC_SERVER_USER or nobody; None when we aren't root."""
    if os.geteuid() != 0:
        return None
    name = os.environ.get("PAMSPEC_SERVER_USER", "nobody")
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise ServerError(
            f"no user {name!r}: name an unprivileged one in PAMSPEC_SERVER_USER, or don't start as root"
        ) from None
    return Account(name, entry.pw_uid, entry.pw_gid)


def free_port() -> int:
    """A TCP port on loopback that stays free until its server listens, as far as that can be had.

    It is never given twice by this process, and it lies below the ports that the kernel gives to outgoing connections:
    between the choice and the server's start, or while that server is down, nothing that we start takes it.
    """
    below = _first_ephemeral_port()
    for _ in range(_PORT_TRIES):
        port = random.SystemRandom().randrange(_LOWEST_PORT, below)
        if port not in _given_ports and port_is_free(port):
            _given_ports.add(port)
            return port
    raise ServerError(f"no free port on {LOOPBACK} between {_LOWEST_PORT} and {below}")


def _first_ephemeral_port() -> int:
    """Where the kernel's own choice begins (Linux), or where it usually does."""
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        first = _USUAL_FIRST_EPHEMERAL_PORT
    return first if first >= _LOWEST_PORT + _PORT_TRIES else _USUAL_FIRST_EPHEMERAL_PORT


def port_is_free(port: int) -> bool:
    """Whether a server could listen on this loopback port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def working_in(directory: Path) -> list[psutil.Process]:
    """The processes whose working directory is this one: the server's own and its children, none that has ended."""
    return [process for process in psutil.process_iter() if _works_in(process, directory)]


def _works_in(process: psutil.Process, directory: Path) -> bool:
    try:
        return process.cwd() == str(directory.resolve()) and process.pid != os.getpid()
    except (psutil.Error, OSError):
        return False


@dataclass(frozen=True)
class Step:
    """One step of a stop: this signal, then so many seconds of patience."""

    signal: signal.Signals
    seconds: float


KILL = Step(signal.SIGKILL, 10.0)


class ServerProcess:
    """A server binary as our child, with its log file and its pid file.

    `directory` is its working directory and thereby its identity. `start` and `stop` belong to the thread that lives
    as long as the server should: Linux ends the child with the thread that started it.
    """

    def __init__(self, name: str, directory: Path, log: Path, death_signal: signal.Signals = signal.SIGTERM) -> None:
        self.name = name
        self.directory = directory
        self.log = log
        self.death_signal = death_signal
        self.pid_file = log.with_suffix(".pid")
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The pid of the running child."""
        return self._child.pid if self.running and self._child is not None else None

    @property
    def running(self) -> bool:
        """Whether the child runs."""
        return self._child is not None and self._child.poll() is None

    async def end_remnants(self) -> None:
        """Ends what a killed owner left running in this directory; does nothing after a clean stop."""
        if not self.pid_file.exists():
            return
        remnants = await asyncio.to_thread(working_in, self.directory)
        for step in (Step(self.death_signal, 5.0), KILL):
            for process in remnants:
                _signal(process.pid, step.signal)
                _signal(process.pid, signal.SIGCONT)
            deadline = time.monotonic() + step.seconds
            while remnants and time.monotonic() < deadline:
                await asyncio.sleep(POLL_SECONDS)
                remnants = [process for process in remnants if _works_in(process, self.directory)]
        if remnants:
            raise ServerError(f"{self.name}: process {remnants[0].pid} of an earlier start does not end: stop it")
        self.pid_file.unlink(missing_ok=True)

    def spawn(
        self,
        command: Sequence[str],
        *,
        account: Account | None = None,
        pass_fds: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Starts the command in `directory`: no terminal, no signal of ours, no descriptors but the named ones.

        Without an environment it gets a small one of its own.
        """
        if self.running:
            raise ServerError(f"{self.name} runs already")
        self.log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.log.exists() and self.log.stat().st_size > LOG_LIMIT:
            self.log.replace(self.log.with_suffix(".log.1"))
        identity = [str(account.uid), str(account.gid)] if account else ["-", "-"]
        launcher = [sys.executable, "-I", "-S", str(LAUNCHER), str(os.getpid()), str(int(self.death_signal)), *identity]
        small = {"PATH": os.defpath, "LANG": "C.UTF-8", "TZ": "UTC", "HOME": str(self.directory)}
        with os.fdopen(os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as log:
            self._child = subprocess.Popen(
                [*launcher, *command],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=small if environment is None else environment,
                pass_fds=tuple(pass_fds),
                start_new_session=True,
            )
        self.pid_file.write_text(f"{self._child.pid}\n", encoding="ascii")

    async def wait_ready(self, probe: Callable[[], Awaitable[bool]], seconds: float) -> None:
        """Returns when `probe` says yes and the child lives; ServerError when it ends first or the time is over."""
        deadline = time.monotonic() + seconds
        while True:
            answered = await probe()
            self._require_running()
            if answered:
                return
            if time.monotonic() > deadline:
                raise ServerError(
                    f"{self.name} was not ready after {seconds:.0f} s; its log {self.log} ends with:\n{self.log_tail()}"
                )
            await asyncio.sleep(POLL_SECONDS)

    def _require_running(self) -> None:
        if not self.running:
            raise ServerError(f"{self.name} ended while starting; its log {self.log} ends with:\n{self.log_tail()}")

    async def stop(self, steps: Sequence[Step]) -> None:
        """Ends the child by the first step that works, SIGKILL last; stopping twice or before a start is fine."""
        child = self._child
        if child is None:
            return
        for step in (*steps, KILL):
            if child.poll() is not None:
                break
            _signal(child.pid, step.signal)
            try:
                async with asyncio.timeout(step.seconds):
                    await self.wait()
            except TimeoutError:
                continue
        if child.poll() is None:
            raise ServerError(f"{self.name} (pid {child.pid}) did not end after SIGKILL")
        self._child = None
        self.pid_file.unlink(missing_ok=True)

    async def wait(self) -> int:
        """Waits for the child's end, however long; its exit code, negative for a signal."""
        child = self._child
        if child is None:
            return 0
        while child.poll() is None:
            await _end_of(child.pid)
        return child.returncode

    def kill(self) -> None:
        """SIGKILL, as a crash would: nothing is cleaned up. The next start finds the remains."""
        if self._child is not None:
            _signal(self._child.pid, signal.SIGKILL)
            self._child.wait(KILL.seconds)

    def send(self, number: signal.Signals) -> None:
        """Any other signal to the running server."""
        pid = self.pid
        if pid is None:
            raise ServerError(f"{self.name} does not run")
        _signal(pid, number)

    def log_tail(self, lines: int = 15) -> str:
        """The last lines of the server's log."""
        if not self.log.exists():
            return "(empty)"
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


async def _end_of(pid: int) -> None:
    """Returns when this child has ended, or after a moment where the system can't tell."""
    try:
        handle = os.pidfd_open(pid)
    except (AttributeError, OSError):
        await asyncio.sleep(POLL_SECONDS)
        return
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(handle, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)
