"""openapi.json, asyncapi.yaml and the packaged bundle say what the contracts say."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pamspec_cli.contracts.__main__ import main
from pamspec_cli.contracts.generate import derived, generate, stale
from pamspec_common import contracts
from pamspec_common.contracts import sources

_PACKAGE = Path("libs", "pamspec_common", "pamspec_common", "contracts")


@pytest.fixture
def copy(root: Path, tmp_path: Path) -> Path:
    shutil.copytree(root / "contracts", tmp_path / "contracts")
    shutil.copytree(root / _PACKAGE, tmp_path / _PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_the_committed_files_are_up_to_date(root: Path) -> None:
    assert stale(root) == [], "run `make contracts`"
    assert main(["verify"]) == 0


def test_a_change_of_a_contract_makes_them_stale_until_they_are_generated(copy: Path) -> None:
    assert stale(copy) == []
    catalogue = copy / "contracts" / "operations.yaml"
    catalogue.write_text(catalogue.read_text().replace("summary: Get a version.", "summary: Fetch a version."))
    assert {path.name for path in stale(copy)} == {"openapi.json", "asyncapi.yaml", "bundle.json"}
    assert len(generate(copy)) == 3
    assert stale(copy) == []


def test_generating_twice_gives_the_same_bytes(root: Path) -> None:
    assert derived(root) == derived(root)


def test_the_packaged_bundle_is_the_checkout(root: Path) -> None:
    assert sources.checkout() == root / "contracts"
    assert sources.load_bundle() == sources.read(root / "contracts")


def test_openapi_has_every_public_door_and_only_references_that_hold(root: Path) -> None:
    document = json.loads((root / "contracts" / "openapi.json").read_text("utf-8"))
    assert document["openapi"].startswith("3.1")
    for name, operation in contracts.operations().items():
        assert (f"/v1/{name}" in document["paths"]) == operation.public
        for convenience in operation.conveniences:
            described = document["paths"][convenience.path][convenience.method.lower()]
            assert str(operation.status) in described["responses"]
    _references_hold(document)


def test_asyncapi_has_every_subject_and_only_references_that_hold(root: Path) -> None:
    document = sources.read_yaml(root / "contracts" / "asyncapi.yaml")
    addresses = {channel["address"] for channel in document["channels"].values()}
    assert {subject.pattern for subject in contracts.streams().subjects.values()} <= addresses
    _references_hold(document)


def _references_hold(document: dict[str, Any]) -> None:
    for reference in _references(document):
        part: Any = document
        for token in reference.removeprefix("#/").split("/"):
            part = part[token]


def _references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"]
        for value in part.values():
            yield from _references(value)
    elif isinstance(part, list):
        for item in part:
            yield from _references(item)
