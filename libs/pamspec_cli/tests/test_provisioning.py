"""Deployments of containers: secrets made once, each part given its own, the database brought to this version."""

import asyncio
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
import yaml

from pamspec_cli import development
from pamspec_cli.__main__ import main
from pamspec_cli.composition import SETTINGS
from pamspec_cli.deployment import SERVICES
from pamspec_cli.provisioning import Places, provision
from pamspec_cli.servers import databases
from pamspec_cli.servers.databases import Database
from pamspec_common.keys import key_hash

ROOT = Path(__file__).resolve().parents[3]


def texts(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): path.read_text(encoding="utf-8")
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def test_secrets_are_made_once_and_changed_hosts_reach_all(tmp_path: Path) -> None:
    provision(tmp_path, Places())
    before = texts(tmp_path)
    provision(tmp_path, Places())
    assert texts(tmp_path) == before
    provision(tmp_path, Places(postgres="db.example:6432"))
    after = texts(tmp_path)
    assert {name: text for name, text in after.items() if name.startswith("master/")} == {
        name: text for name, text in before.items() if name.startswith("master/")
    }
    for service in SERVICES:
        url = after[f"{service}/pamspec_database_url"]
        assert urlsplit(url).netloc.rpartition("@")[2] == "db.example:6432"
        assert urlsplit(url).password == urlsplit(before[f"{service}/pamspec_database_url"]).password


def test_each_part_holds_its_own_logins_alone(tmp_path: Path) -> None:
    provision(tmp_path, Places())
    passwords = {service: (tmp_path / "master" / f"pamspec_{service}").read_text().strip() for service in SERVICES}
    owner = (tmp_path / "master" / "postgres").read_text().strip()
    assert len({owner, *passwords.values()}) == len(SERVICES) + 1
    for name, text in texts(tmp_path).items():
        part = name.partition("/")[0]
        holds = {service for service, password in passwords.items() if password in text}
        assert holds <= {part} or part == "master", name
        assert owner not in text or part in ("master", "admin", "postgres"), name
    seeds = [file.read_text().strip() for file in (tmp_path / "master" / "nats").glob("*.nk")]
    configuration = (tmp_path / "nats" / "nats.conf").read_text()
    assert not [seed for seed in seeds if seed in configuration], "a server knows public keys"
    assert set(json.loads(configuration)["accounts"]) == {"SVC", "AGENTS", "AUTH", "SYS"}


async def test_a_database_is_migrated_and_opened_with_what_was_made(
    tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a copy of the logins: the roles belong to the whole server, on which other tests stand."""
    provision(tmp_path, Places())
    for service in databases.SERVICES:
        (tmp_path / service / "pamspec_database_url").chmod(0o600)
        (tmp_path / service / "pamspec_database_url").write_text(database.role(service))
    monkeypatch.setenv("PAMSPEC_DATABASE_URL", database.dsn)
    for _ in range(2):
        assert await asyncio.to_thread(main, ["migrate", "--secrets", str(tmp_path)]) == 0
    connection = await asyncpg.connect(database.role("gateway"))
    await connection.close()
    connection = await asyncpg.connect(database.dsn)
    pepper, key = ((tmp_path / "admin" / name).read_text().strip() for name in ("pamspec_key_pepper", "api_key"))
    found = await connection.fetchval(
        "SELECT tenant_id FROM core.api_key WHERE key_hash = $1", key_hash(pepper.encode(), key)
    )
    await connection.close()
    assert found == development.TENANT_ID


def test_a_migration_without_a_database_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PAMSPEC_DATABASE_URL", raising=False)
    assert main(["migrate"]) == 1
    assert "PAMSPEC_DATABASE_URL" in capsys.readouterr().err
    assert main(["migrate", "--secrets", str(tmp_path)]) == 1


def composed() -> Mapping[str, Any]:
    found: Mapping[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    return found


def test_every_service_has_an_image_and_a_place_in_the_composition() -> None:
    targets = set(re.findall(r"^FROM \S+ AS (\S+)$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE))
    services = composed()["services"]
    mounted = {volume.partition(":")[2].removeprefix("/secrets/") for volume in services["provision"]["volumes"]}
    for name in SERVICES:
        host = Places().hosts[name]
        assert {host, f"build-{host}"} <= targets
        assert services[host]["build"]["target"] == host
        assert f"secrets-{host}:/run/pamspec:ro" in services[host]["volumes"]
        assert name in mounted
        assert services[host]["read_only"] is True
        assert services[host]["cap_drop"] == ["ALL"]


def test_the_composition_holds_no_password() -> None:
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    assert not re.findall(r"(?i)password\s*[:=]\s*['\"]?\w", text.replace('POSTGRES_PASSWORD="$$(cat', ""))
    for service in composed()["services"].values():
        assert not [name for name in service.get("environment") or {} if re.search("PASSWORD|KEY|SEED", name)]


def test_servers_with_a_configuration_of_their_own_include_the_accounts(tmp_path: Path) -> None:
    provision(tmp_path, Places(checkpoints=""))
    accounts = json.loads((tmp_path / "nats/accounts.conf").read_text(encoding="utf-8"))
    whole = json.loads((tmp_path / "nats/nats.conf").read_text(encoding="utf-8"))
    assert accounts == {name: whole[name] for name in ("system_account", "accounts", "authorization")}
    assert "pamspec_checkpoint_key" in {file.name for file in (tmp_path / "relay").iterdir()}
    assert "pamspec_checkpoint_dir" not in {file.name for file in (tmp_path / "relay").iterdir()}


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_is_given_what_it_reads_and_no_more(service: str, tmp_path: Path) -> None:
    (tmp_path / service).mkdir()
    (tmp_path / service / "pamspec_of_an_older_version").write_text("a secret")
    provision(tmp_path, Places())
    given = {file.name for file in (tmp_path / service).iterdir()}
    assert given <= {f"pamspec_{name}" for name in SETTINGS[service].model_fields}
    assert {"pamspec_database_url", "pamspec_token_keys", "pamspec_port"} <= given
    assert ("pamspec_key_pepper" in given) == (service in ("gateway", "write"))
    assert ("pamspec_valkey_url" in given) == (service in ("gateway", "delegation"))
