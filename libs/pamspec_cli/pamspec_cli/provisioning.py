"""What a deployment of containers is given: every secret made once, and for each part only what it needs.

Under one directory: `master/` holds the secrets themselves; `<service>/` a file for each of its variables, named after
it in lower case, as PAMSPEC_SECRETS_DIR is read; `nats/`, `postgres/` and `valkey/` what the servers are started with;
`admin/` the database administrator's URL and the first API key.

Invariant: a secret that is there stays; what is made of it is written anew each time, so that changed hosts reach all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from pamspec_cli.composition import SETTINGS
from pamspec_cli.deployment import SERVICES, Deployment
from pamspec_cli.servers import databases, secrets
from pamspec_cli.servers.nats import NatsAddress, configuration, kept_seeds
from pamspec_cli.stack import DATABASE, Addresses
from pamspec_common.checkpoints import KeyDirectory
from pamspec_common.keys import new_key

PORT = 8080
"""Where each service listens in its container."""
_ADMINISTRATOR = "postgres"
_VARIABLE_MODE, _DIRECTORY_MODE = 0o444, 0o755
"""Each directory is a volume of its own that only its container mounts, as a user that isn't known here."""


@dataclass(frozen=True)
class Places:
    """Where the servers are, as the services call them, and where services keep what is theirs."""

    postgres: str = "postgres:5432"
    nats: str = "nats:4222"
    valkey: str = "valkey:6379"
    jetstream: str = "/data"
    checkpoints: str = "/var/lib/pamspec/checkpoints"
    """Empty: no files, the bucket on the bus alone."""
    hosts: Mapping[str, str] = field(default_factory=lambda: {name: name.replace("_", "-") for name in SERVICES})


def provision(directory: Path, places: Places) -> None:
    """Everything under `directory`; further calls keep every secret."""
    master = directory / "master"
    owner = secrets.kept(master / "postgres", secrets.password)
    cache = secrets.kept(master / "valkey", secrets.password)
    key = secrets.kept(master / "api-key", new_key)
    host, _, port = places.nats.partition(":")
    seeds = NatsAddress(host, int(port or 4222), 8222, **kept_seeds(master / "nats"))
    administrator = _database(places, _ADMINISTRATOR, owner)
    passwords = {role: secrets.kept(master / role, secrets.password) for role in databases.ROLES}
    checkpoint_keys = KeyDirectory(master / "checkpoints")
    checkpoint_keys.seed()
    deployment = Deployment(
        addresses=Addresses(
            database_url=administrator,
            role_urls={role: _database(places, role, password) for role, password in passwords.items()},
            nats_url=seeds.url,
            nats_seed=seeds.service_seed,
            callout=seeds.callout_variables(),
            valkey_url=f"redis://:{quote(cache, safe='')}@{places.valkey}/0",
        ),
        token_keys={"k1": secrets.kept(master / "token-key", secrets.password)},
        key_pepper=secrets.kept(master / "key-pepper", secrets.password),
        ports=dict.fromkeys(SERVICES, PORT),
        checkpoint_keys=checkpoint_keys,
        checkpoint_dir=Path(places.checkpoints) if places.checkpoints else None,
        hosts=places.hosts,
        listen="0.0.0.0",
    )
    for service in SERVICES:
        _write(directory / service, _read_by(service, deployment))
    _write(directory / "postgres", {"password": owner})
    _write(directory / "valkey", {"valkey.conf": f'bind * -::*\nrequirepass {cache}\nsave ""\nappendonly no\n'})
    _write(directory / "nats", {"nats.conf": _nats(seeds, places), "accounts.conf": _accounts(seeds)})
    admin = {"pamspec_database_url": administrator, "pamspec_key_pepper": deployment.key_pepper, "api_key": key}
    _write(directory / "admin", admin)


def _read_by(service: str, deployment: Deployment) -> dict[str, str]:
    """The variables that a service reads, and no other: a secret that it has no use for can't be taken from it."""
    own = {f"PAMSPEC_{name.upper()}" for name in SETTINGS[service].model_fields}
    return {name.lower(): text for name, text in deployment.variables(service).items() if name in own}


def _database(places: Places, role: str, password: str) -> str:
    return f"postgresql://{role}:{quote(password, safe='')}@{places.postgres}/{DATABASE}"


def _nats(seeds: NatsAddress, places: Places) -> str:
    own = {"server_name": "pamspec", "listen": "0.0.0.0:4222", "http": "0.0.0.0:8222"}
    jetstream = {"store_dir": places.jetstream, "sync_interval": "always"}
    return json.dumps(configuration(seeds, own, jetstream), indent=2) + "\n"


def _accounts(seeds: NatsAddress) -> str:
    """What servers with a configuration of their own include: who may log in, and what the accounts share."""
    whole = configuration(seeds, {}, {})
    return json.dumps({name: whole[name] for name in ("system_account", "accounts", "authorization")}, indent=2) + "\n"


def _write(directory: Path, texts: Mapping[str, str]) -> None:
    directory.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
    for path in directory.iterdir():
        if path.is_file() and path.name not in texts:
            path.unlink()
    for name, text in texts.items():
        path = directory / name
        secrets.write_private(path, text)
        path.chmod(_VARIABLE_MODE)
