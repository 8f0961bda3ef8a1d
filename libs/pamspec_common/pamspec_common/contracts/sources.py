"""Where the contract documents come from: the checkout's `contracts/`, or the bundle in the installed package."""

from __future__ import annotations

import json
from collections.abc import Hashable
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import yaml

BUNDLE = "bundle.json"


class Documents(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The contract documents as they are written, schemas by $id."""

    schemas: dict[str, dict[str, Any]]
    streams: dict[str, Any]
    events: dict[str, Any]
    operations: dict[str, Any]
    errors: dict[str, Any]


class DuplicateKey(ValueError):
    """A contract file names the same key twice."""


def load() -> Documents:
    """The documents of the checkout that this module lies in, else those of the package."""
    folder = checkout()
    return load_bundle() if folder is None else read(folder)


def checkout() -> Path | None:
    """`contracts/` of the checkout, or None in an installed package."""
    here = Path(__file__).resolve().parents
    folder = here[4] / "contracts" if len(here) > 4 else None
    return folder if folder is not None and (folder / "streams.yaml").is_file() else None


def load_bundle() -> Documents:
    """The documents in the package."""
    return msgspec.json.decode(resources.files(__package__).joinpath(BUNDLE).read_bytes(), type=Documents)


def read(folder: Path) -> Documents:
    """The documents in a folder. DuplicateKey when a file or two schemas say something twice."""
    schemas: dict[str, dict[str, Any]] = {}
    for path in sorted([*folder.glob("schemas/*.json"), *folder.glob("operations/*.json")]):
        document = json.loads(path.read_text("utf-8"), object_pairs_hook=_unique)
        if schemas.setdefault(document["$id"], document) is not document:
            raise DuplicateKey(f"{path.name}: another file has the $id {document['$id']}")
    return Documents(
        schemas=schemas,
        streams=read_yaml(folder / "streams.yaml"),
        events=read_yaml(folder / "events.yaml"),
        operations=read_yaml(folder / "operations.yaml"),
        errors=read_yaml(folder / "errors.yaml"),
    )


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML mapping whose keys are unique."""
    document: dict[str, Any] = yaml.load(path.read_text("utf-8"), Loader=_UniqueKeys)
    return document


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise DuplicateKey(f"one of {sorted(document)} stands twice in the same object")
    return document


class _UniqueKeys(yaml.SafeLoader):
    """SafeLoader that refuses what it would otherwise let the last key win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        document = super().construct_mapping(node, deep=deep)
        if len(document) != len(node.value):
            raise DuplicateKey(f"{node.start_mark}: a key stands twice")
        return document
