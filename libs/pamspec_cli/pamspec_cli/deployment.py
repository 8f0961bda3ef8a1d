"""What each service is told: its login, the bus, the keys between services and where its peers are.

The same variables reach a service in this process and one in a process of its own.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pamspec_cli.data import DataDirectory
from pamspec_cli.servers.process import LOOPBACK, free_port, port_is_free
from pamspec_cli.stack import Addresses
from pamspec_common.checkpoints import KeyDirectory

SERVICES = ("relay", "write", "query", "subscription", "delegation", "indexing", "retention_sweeper", "gateway")
"""In the order of their start; they stop the other way round, so that the relay still moves what write left."""


@dataclass(frozen=True)
class Deployment:
    """One deployment's addresses and secrets."""

    addresses: Addresses
    token_keys: Mapping[str, str] = field(repr=False)
    key_pepper: str = field(repr=False)
    ports: Mapping[str, int]
    checkpoint_keys: KeyDirectory | None = None
    checkpoint_dir: Path | None = None
    hosts: Mapping[str, str] = field(default_factory=dict)
    """Of each service as its peers call it; loopback where nothing is said."""
    listen: str = LOOPBACK

    @classmethod
    def of(cls, data: DataDirectory, addresses: Addresses, gateway_port: int | None) -> "Deployment":
        """The secrets of the data directory, and a port for each service: the last one where it is free."""
        ports = {service: _port(data, service) for service in SERVICES}
        if gateway_port:
            ports["gateway"] = gateway_port
        for service, port in ports.items():
            data.keep_port(service, port)
        token_keys = {"k1": data.secret("token-key")}
        keys = checkpoint_keys(data)
        keys.seed()
        return cls(addresses, token_keys, data.secret("key-pepper"), ports, keys, data.path / "checkpoints")

    def url(self, service: str) -> str:
        """Where the service listens when it is a process of its own."""
        return f"http://{self.hosts.get(service, LOOPBACK)}:{self.ports[service]}"

    def variables(self, service: str) -> dict[str, str]:
        """The PAMSPEC_ variables of one service."""
        found = {
            "PAMSPEC_DATABASE_URL": self.addresses.of_role(service),
            "PAMSPEC_NATS_URL": self.addresses.nats_url,
            "PAMSPEC_VALKEY_URL": self.addresses.valkey_url,
            "PAMSPEC_TOKEN_KEYS": json.dumps(dict(self.token_keys)),
            "PAMSPEC_KEY_PEPPER": self.key_pepper,
            "PAMSPEC_HOST": self.listen,
            "PAMSPEC_PORT": str(self.ports[service]),
        }
        if self.addresses.nats_seed:
            found["PAMSPEC_NATS_NKEY_SEED"] = self.addresses.nats_seed
        if service == "gateway":
            found |= self.addresses.callout
        keys = self.checkpoint_keys
        if keys is not None and service in ("relay", "query"):
            found["PAMSPEC_CHECKPOINT_PUBLIC_KEYS"] = json.dumps(keys.public())
            if service == "relay":
                found["PAMSPEC_CHECKPOINT_KEY"] = keys.seed()
                if self.checkpoint_dir is not None:
                    found["PAMSPEC_CHECKPOINT_DIR"] = str(self.checkpoint_dir)
        for peer in SERVICES:
            if peer not in (service, "gateway"):
                found[f"PAMSPEC_{peer.upper()}_URL"] = self.url(peer)
        return found


def checkpoint_keys(data: DataDirectory) -> KeyDirectory:
    """The keys that sign checkpoints."""
    return KeyDirectory(data.path / "secrets" / "checkpoints")


@contextmanager
def in_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """These variables in the environment of this process while settings are read."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _port(data: DataDirectory, service: str) -> int:
    last = data.port(service)
    return last if last and port_is_free(last) else free_port()
