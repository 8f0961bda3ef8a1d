"""The servers of the tests as containers of the public images, behind the same interface as the embedded ones.

What differs is who runs the program: the directory, the configuration, the command and the addresses are the same. The
containers share the host's network and hold no data: it lies in the server's directory, mounted at its own path. So a
test kills, stops, wipes and restarts them as it does the processes. Needs an engine for Linux on this machine.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from docker.errors import APIError, NotFound
from testcontainers.core.container import DockerContainer

from pamspec_cli.servers.nats import EmbeddedNats
from pamspec_cli.servers.postgres import EmbeddedPostgres, Handle
from pamspec_cli.servers.process import KILL, Account, ServerError, ServerProcess, Step
from pamspec_cli.servers.valkey import EmbeddedValkey
from pamspec_common.tls import TlsFiles

POSTGRES = 17
POSTGRES_IMAGE = os.environ.get("PAMSPEC_TEST_POSTGRES_IMAGE", "pgvector/pgvector:pg{version}")
NATS_IMAGE = os.environ.get("PAMSPEC_TEST_NATS_IMAGE", "nats:2.15-alpine")
VALKEY_IMAGE = os.environ.get("PAMSPEC_TEST_VALKEY_IMAGE", "valkey/valkey:8.1-alpine")
INTO_LOG = 'umask 077; exec "$@" >>"$0" 2>&1'
"""The program becomes the container's first process; what it says goes to the log file of the server."""


class ContainerProcess(ServerProcess):
    """A server program in a container, with the promises of ServerProcess. `mounts` are there at their own paths."""

    def __init__(self, like: ServerProcess, image: str, mounts: Sequence[Path]) -> None:
        super().__init__(like.name, like.directory, like.log, like.death_signal)
        self.image = image
        self.mounts = list(mounts)
        self._container: Any = None
        self._ended = threading.Event()
        self._exit_code = 0

    @property
    def pid(self) -> int | None:
        """The pid of the container's first process, as this machine sees it."""
        if not self.running:
            return None
        self._container.reload()
        return int(self._container.attrs["State"]["Pid"]) or None

    @property
    def running(self) -> bool:
        """Whether the container's program runs."""
        return self._container is not None and not self._ended.is_set()

    async def end_remnants(self) -> None:
        """A container that has ended is removed."""
        if self._container is not None and not self.running:
            await asyncio.to_thread(self._remove)

    def spawn(
        self,
        command: Sequence[str],
        *,
        account: Account | None = None,
        pass_fds: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Starts the program in a new container, as this account or as ourselves."""
        if self.running:
            raise ServerError(f"{self.name} runs already")
        self.log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
        if account is not None:
            os.chown(self.log, account.uid, account.gid)
        into_log = ["sh", "-c", INTO_LOG, str(self.log), *command]
        self._container = run(self.image, into_log, account, [*self.mounts, self.log])
        self._ended = threading.Event()
        threading.Thread(target=self._follow, args=(self._container, self._ended), daemon=True).start()

    def _follow(self, container: Any, ended: threading.Event) -> None:
        try:
            self._exit_code = int(container.wait()["StatusCode"])
        except (APIError, OSError):
            self._exit_code = 1
        ended.set()

    async def stop(self, steps: Sequence[Step]) -> None:
        """Ends the program by the first step that works, SIGKILL last, and removes its container."""
        if self._container is None:
            return
        for step in (*steps, KILL):
            if not self.running:
                break
            self.send(step.signal)
            await asyncio.to_thread(self._ended.wait, step.seconds)
        if self.running:
            raise ServerError(f"{self.name} (container {self._container.short_id}) did not end after SIGKILL")
        await asyncio.to_thread(self._remove)

    async def wait(self) -> int:
        """Waits for the program's end, however long; its exit code."""
        while self.running:
            await asyncio.to_thread(self._ended.wait, 1.0)
        return self._exit_code

    def kill(self) -> None:
        """SIGKILL, as a crash would. The next start finds the remains."""
        if self._container is not None:
            self.send(signal.SIGKILL)
            self._ended.wait(KILL.seconds)

    def send(self, number: signal.Signals) -> None:
        """Any signal to the program; one that has ended takes none."""
        try:
            self._container.kill(signal=number.name)
        except (NotFound, APIError):
            if self.running and not self._ended.wait(KILL.seconds):
                raise

    def _remove(self) -> None:
        self._container.remove(force=True, v=True)
        self._container = None


def run(image: str, command: Sequence[str], account: Account | None, mounts: Sequence[Path]) -> Any:
    """A started container of this image, with the host's network and these places at their own paths."""
    uid, gid = (account.uid, account.gid) if account else (os.geteuid(), os.getegid())
    container = DockerContainer(
        image,
        entrypoint=list(command[:1]),
        network_mode="host",
        user=f"{uid}:{gid}",
        shm_size="256m",
        env={"LANG": "C.UTF-8", "TZ": "UTC"},
    )
    container.with_command(list(command[1:]))
    for place in mounts:
        container.with_volume_mapping(str(place), str(place), "rw")
    return container.start().get_wrapped_container()


class ContainerPostgres(EmbeddedPostgres):
    """PostgreSQL of the image; an account that the image does not know is named in a file of users."""

    def __init__(
        self,
        directory: Path,
        *,
        port: int | None = None,
        version: int = POSTGRES,
        settings: dict[str, str] | None = None,
    ) -> None:
        super().__init__(directory, port=port, version=version, settings=settings)
        image = POSTGRES_IMAGE.format(version=self._version())
        self.process: ServerProcess = ContainerProcess(self.process, image, [])

    def _spawn(self, *arguments: Any) -> None:
        assert isinstance(self.process, ContainerProcess)
        self.process.mounts = [self.data, self._noted_run_directory()]
        super()._spawn(*arguments)

    def _binaries(self, version: int, run: Path) -> Path:
        return Path(f"/usr/lib/postgresql/{version}")

    def _handle(self, directory: Path) -> Handle:
        return Handle(directory, None)

    def _run(self, command: Sequence[str], place: Path, data: Handle) -> None:
        assert isinstance(self.process, ContainerProcess)
        container = run(self.process.image, command, self._account, [place, data.directory])
        try:
            if container.wait()["StatusCode"] != 0:
                raise ServerError(f"{command[0]} failed:\n{container.logs().decode()[-2000:]}")
        finally:
            container.remove(force=True, v=True)


class ContainerNats(EmbeddedNats):
    """nats-server of the image."""

    def __init__(self, directory: Path, *, tls: TlsFiles | None = None, **settings: Any) -> None:
        super().__init__(directory, tls=tls, **settings)
        files = [tls.certificate, tls.key, tls.authorities] if tls else []
        self.process: ServerProcess = ContainerProcess(
            self.process, NATS_IMAGE, [directory, *(file for file in files if file)]
        )

    def _program(self) -> str:
        return "nats-server"


class ContainerValkey(EmbeddedValkey):
    """Valkey of the image."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        super().__init__(directory, **settings)
        self.process: ServerProcess = ContainerProcess(self.process, VALKEY_IMAGE, [directory])

    def _program(self) -> str:
        return "valkey-server"


def engine_answers() -> bool:
    """Whether a Docker engine for Linux answers here."""
    if sys.platform != "linux":
        return False
    asked = "import docker; docker.from_env(timeout=20).ping()"
    return subprocess.run([sys.executable, "-c", asked], capture_output=True, check=False).returncode == 0
