"""`pamspec vectors`: bring vectors of a scope's objects, from lines of JSON."""

import argparse
import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from pamspec_cli.connection import OK, Misused, add_arguments, reporting, service
from pamspec_client.models import VectorsPut

SUMMARY = "bring vectors of objects, from lines of JSON"
AT_ONCE = 100
"""Objects of one request, each of which is stored whole or not at all."""


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("--scope", required=True, help="the scope")
    parser.add_argument("--space", required=True, metavar="ID", help="the embedding space that they are of")
    parser.add_argument(
        "--file",
        required=True,
        metavar="FILE",
        help='one object a line: {"object_id": ..., "version_id": ..., "vector": [...]}, or "vectors" for its chunks, '
        "none to take them away; - is stdin",
    )
    add_arguments(parser)


@reporting
def run(arguments: argparse.Namespace) -> int:
    """0 when all are stored; after a refusal those of earlier requests are."""
    objects = vectors = 0
    with service(arguments).client() as client:
        lines = _lines(arguments.file)
        while some := list(islice(lines, AT_ONCE)):
            request = {"scope_id": arguments.scope, "embedding_space_id": arguments.space, "vectors": some}
            made = VectorsPut.of(client.call("put_vectors", request).body)
            objects, vectors = objects + made.objects, vectors + made.vectors
    told = {"objects": objects, "vectors": vectors}
    print(json.dumps(told) if arguments.json else f"{vectors:,} vectors of {objects:,} objects")
    return OK


def _lines(path: str) -> Iterator[Any]:
    """The values of a file's lines, read as they are needed; Misused for a line that is no JSON."""
    try:
        with sys.stdin if path == "-" else Path(path).open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield _value(line, f"{path}, line {number}")
    except OSError as error:
        raise Misused(f"{path} cannot be read: {error.strerror}") from None


def _value(line: str, where: str) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise Misused(f"{where}: no JSON: {error}") from None
