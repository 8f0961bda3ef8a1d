"""The examples under contracts/examples, and the draft's own schemas and documents where PAMSPEC_SPEC names them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from jsonschema.protocols import Validator
from referencing import Registry
from referencing.jsonschema import SchemaRegistry

from pamspec_common import contracts
from pamspec_common.contracts.formats import referenced

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "contracts" / "examples"


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def valid_examples() -> dict[tuple[str, str], Any]:
    """Everything under contracts/examples/valid, by schema and name."""
    return {(path.parent.name, path.stem): _load(path) for path in sorted(EXAMPLES.glob("valid/*/*.json"))}


@pytest.fixture(scope="session")
def invalid_examples() -> dict[tuple[str, str], Any]:
    """Everything under contracts/examples/invalid: {why, rule, instance} by schema and name."""
    return {(path.parent.name, path.stem): _load(path) for path in sorted(EXAMPLES.glob("invalid/*/*.json"))}


@pytest.fixture(scope="session")
def reference_folder() -> Path | None:
    """What PAMSPEC_SPEC names; None where it is unset, and then our own examples alone speak."""
    folder = os.environ.get("PAMSPEC_SPEC")
    return None if folder is None else Path(folder)


@pytest.fixture(scope="session")
def reference_validators(reference_folder: Path | None) -> dict[str, Validator]:
    """The draft's schemas by the name of ours, with our reading of patterns and formats."""
    if reference_folder is None:
        return {}
    documents = {path.name: _load(path) for path in sorted(reference_folder.glob("schemas/*.schema.json"))}
    assert documents, f"PAMSPEC_SPEC names {reference_folder}, where there are no schemas"
    empty: SchemaRegistry = Registry()
    registry = empty.with_resources((document["$id"], referenced(document)) for document in documents.values())
    return {
        name.removesuffix(".schema.json"): contracts.validator_of({"$ref": document["$id"]}, registry)
        for name, document in documents.items()
        if name != "common.schema.json"
    }


@pytest.fixture(scope="session")
def reference_valid(reference_folder: Path | None) -> dict[str, Any]:
    """The draft's example documents by name."""
    return _documents(reference_folder, "vectors-valid")


@pytest.fixture(scope="session")
def reference_invalid(reference_folder: Path | None) -> dict[str, Any]:
    """The draft's counterexamples by name: {instance, expected_failure[, schema]}."""
    return _documents(reference_folder, "vectors-invalid")


def _documents(folder: Path | None, name: str) -> dict[str, Any]:
    return {} if folder is None else {path.stem: _load(path) for path in sorted(folder.glob(f"{name}/*.json"))}


def _load(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))
