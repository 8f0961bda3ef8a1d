"""What is derived from the contracts, as the bytes of each file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import yaml

from pamspec_common.contracts import asyncapi, openapi, sources

_NOTE = "# Generated from the files beside it by `make contracts`; change those and generate again.\n"


def derived(root: Path) -> dict[Path, bytes]:
    """The derived files of the checkout at `root`, by path."""
    contracts = root / "contracts"
    documents = sources.read(contracts)
    package = root / "libs" / "pamspec_common" / "pamspec_common" / "contracts"
    return {
        contracts / "openapi.json": _json(openapi.document(documents)),
        contracts / "asyncapi.yaml": _yaml(asyncapi.document(documents)),
        package / sources.BUNDLE: _json(msgspec.to_builtins(documents), sort_keys=True),
    }


def stale(root: Path) -> list[Path]:
    """The derived files that are missing or differ from what the contracts say now."""
    return [path for path, data in derived(root).items() if not path.is_file() or path.read_bytes() != data]


def generate(root: Path) -> list[Path]:
    """Write the derived files that are stale; answers which."""
    written = stale(root)
    for path, data in derived(root).items():
        if path in written:
            path.write_bytes(data)
    return written


def _json(document: Any, *, sort_keys: bool = False) -> bytes:
    return (json.dumps(document, indent=1, ensure_ascii=False, sort_keys=sort_keys) + "\n").encode()


class _PlainDumper(yaml.SafeDumper):
    """Repeats what stands twice instead of naming it with an anchor."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _yaml(document: Any) -> bytes:
    text = yaml.dump(document, Dumper=_PlainDumper, sort_keys=False, width=120, allow_unicode=True)
    return (_NOTE + text).encode()
