"""What pods are told: known settings, and secrets by reference that the product's commands really make."""

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from pamspec_cli.deployment import SERVICES as NAMES
from pamspec_cli.provisioning import Places, provision
from pamspec_cli.servers.nats import binary
from tests.kubernetes.overlays import SERVICES, Overlay, containers, pod, references
from tests.kubernetes.test_network import settings_of
from tests.test_settings_page import SECTIONS

ROOT = Path(__file__).resolve().parents[2]
NOT_OF_THE_SETTINGS = {"PAMSPEC_SECRETS_DIR"}
SUPPLIED = {"pamspec-ingress-tls"}
"""Secrets that somebody else makes, as docs/operations/install.md says."""


@pytest.fixture(scope="module")
def provisioned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `pamspec provision` writes for a cluster."""
    directory = tmp_path_factory.mktemp("secrets")
    provision(directory, Places(postgres="postgres-rw:5432", checkpoints=""))
    return directory


@pytest.fixture(scope="module")
def secrets(provisioned: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, set[str]]:
    """The Secrets that deploy/k8s/secrets asks kubectl for, each with its keys."""
    told = tmp_path_factory.mktemp("bin") / "kubectl"
    told.write_text('#!/bin/sh\necho "asked: $*"\n', encoding="utf-8")
    told.chmod(0o755)
    output = subprocess.run(
        [str(ROOT / "deploy/k8s/secrets"), str(provisioned)],
        env=os.environ | {"KUBECTL": str(told)},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    found: dict[str, set[str]] = {}
    for name, arguments in re.findall(r"^asked: create secret generic (\S+) (.*)$", output, re.MULTILINE):
        assert "--dry-run=client" in arguments, "a script that prints changes nothing"
        found[name] = set(re.findall(r"--from-literal=(\w+)=", arguments))
        for source in map(Path, re.findall(r"--from-file=(\S+)", arguments)):
            found[name] |= {file.name for file in source.iterdir()} if source.is_dir() else {source.name}
    return found


def test_every_variable_is_a_setting_that_a_service_reads(overlay: Overlay) -> None:
    known = {f"PAMSPEC_{name.upper()}" for settings in SECTIONS.values() for name in settings.model_fields}
    assert set(overlay.settings()) - NOT_OF_THE_SETTINGS <= known
    for service in SERVICES:
        own = {f"PAMSPEC_{name.upper()}" for name in settings_of(service).model_fields}
        for container in containers(overlay.service(service)):
            assert {variable["name"] for variable in container.get("env", ())} <= own


def test_every_reference_is_made_by_the_overlay_or_by_the_script(
    overlay: Overlay, secrets: Mapping[str, set[str]]
) -> None:
    maps = {one["metadata"]["name"] for one in overlay.of_kind("ConfigMap")}
    used = set()
    for name, workload in overlay.workloads().items():
        for kind, referred, keys in references(pod(workload)):
            if kind == "ConfigMap":
                assert referred in maps, name
                continue
            assert referred in secrets, name
            assert set(keys) <= secrets[referred], (name, referred)
            used.add(referred)
    for cluster in overlay.of_kind("Cluster"):
        used.add(cluster["spec"]["superuserSecret"]["name"])
        assert {"username", "password"} <= secrets[cluster["spec"]["superuserSecret"]["name"]]
    assert used == set(secrets), "a Secret that nobody reads"
    page = (ROOT / "docs/operations/install.md").read_text(encoding="utf-8")
    for ingress in overlay.of_kind("Ingress"):
        assert {tls["secretName"] for tls in ingress["spec"]["tls"]} <= SUPPLIED
    assert all(name in page for name in SUPPLIED)


def test_no_secret_stands_in_a_manifest(overlay: Overlay) -> None:
    assert overlay.of_kind("Secret") == []


def test_each_service_mounts_its_own_secret_alone(overlay: Overlay) -> None:
    for service in SERVICES:
        mounted = {name for kind, name, _ in references(pod(overlay.service(service))) if kind == "Secret"}
        assert mounted == {f"pamspec-{service}"}


@pytest.mark.parametrize("name", NAMES)
def test_a_service_reads_what_it_is_told(
    name: str, overlay: Overlay, provisioned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in [variable for variable in os.environ if variable.startswith("PAMSPEC_")]:
        monkeypatch.delenv(variable)
    for variable, value in overlay.settings().items():
        monkeypatch.setenv(variable, value)
    settings = settings_of(name.replace("_", "-"))
    told = settings(_secrets_dir=str(provisioned / name)).model_dump()
    assert (told["host"], told["port"]) == ("0.0.0.0", 8080)
    assert f"pamspec_{name}:" in told["database_url"].get_secret_value()
    assert told["token_keys"]
    assert told.get("checkpoint_dir") is None, "no file system that outlives the pod is there"
    for peer in (field for field in told if field in {f"{service}_url" for service in NAMES}):
        assert told[peer] == f"http://{peer.removesuffix('_url').replace('_', '-')}:8080"
        overlay.one("Service", peer.removesuffix("_url").replace("_", "-"))
    if name == "relay":
        assert told["stream_replicas"] == overlay.one("StatefulSet", "nats")["spec"]["replicas"]
        assert told["checkpoint_key"]


def test_the_bus_takes_its_configuration(overlay: Overlay, provisioned: Path, tmp_path: Path) -> None:
    text = overlay.file("nats.conf")
    assert "sync_interval: always" in text
    (tmp_path / "nats.conf").write_text(text, encoding="utf-8")
    (tmp_path / "accounts.conf").symlink_to(provisioned / "nats/accounts.conf")
    checked = subprocess.run(
        [str(binary()), "--config", str(tmp_path / "nats.conf"), "-t"],
        env=os.environ | {"POD_NAME": "nats-0"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stderr
    replicas = overlay.one("StatefulSet", "nats")["spec"]["replicas"]
    nodes = [f"nats://nats-{number}.nats-nodes:6222" for number in range(replicas)]
    assert re.findall(r"nats://nats-[^\"]*", text) == (nodes if replicas > 1 else [])


def test_what_the_bus_may_store_fits_on_its_volume(overlay: Overlay) -> None:
    (claim,) = overlay.one("StatefulSet", "nats")["spec"]["volumeClaimTemplates"]
    room = int(claim["spec"]["resources"]["requests"]["storage"].removesuffix("Gi")) * 2**30
    (bound,) = re.findall(r"max_file_store: (\d+)GB", overlay.file("nats.conf"))
    assert int(bound) * 2**30 <= room * 0.95
