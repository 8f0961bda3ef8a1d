"""What a query and a context are asked for on the command line: the same arguments, and what they mean."""

import argparse
import json
from typing import Any

from pamspec_cli.connection import Misused
from pamspec_client import Client

_VECTOR = "index:vector:"
MODES = ("lexical", "vector", "graph")


def add_expression(parser: argparse.ArgumentParser) -> None:
    """Declares what is looked for, and in which order it comes."""
    parser.add_argument("--scope", required=True, help="the scope")
    parser.add_argument("--type", action="append", help="object type; may be given several times")
    parser.add_argument(
        "--trust",
        choices=("trusted", "working", "all"),
        help="trusted (default): active, available, retained, corroborated; working: an agent's own notes; all",
    )
    parser.add_argument("--where", metavar="JSON", help='a condition tree: {"field": ..., "op": ..., "value": ...}')
    parser.add_argument("--text", help="what to look for, best first")
    parser.add_argument(
        "--mode",
        action="append",
        choices=MODES,
        help="by words (lexical, default), by meaning (vector), by nearness along relationships (graph, needs --from), "
        "or several of them: give it several times",
    )
    parser.add_argument(
        "--space",
        metavar="ID",
        help="the embedding space that vectors are compared in (default: the only one of the scope)",
    )
    parser.add_argument(
        "--profile",
        choices=("relevance", "recent", "quality", "balanced"),
        help="what counts beside likeness (default: relevance, nothing)",
    )
    parser.add_argument("--as-of", type=int, metavar="SEQUENCE", help="as it was after this ledger sequence")
    parser.add_argument("--snapshot", metavar="ID", help="as a sealed snapshot shows it")
    parser.add_argument(
        "--from", dest="start", action="append", metavar="OBJECT", help="only what relationships lead to from here"
    )
    parser.add_argument("--follow", action="append", metavar="TYPE", help="with --from: along these relationships only")
    parser.add_argument("--depth", type=int, metavar="HOPS", help="with --from: so far (default: 1, at most 8)")
    parser.add_argument("--direction", choices=("outgoing", "incoming", "both"), help="with --from (default: outgoing)")


def request_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """The request that the arguments mean, but for a space that has to be looked up; Misused where they mean none."""
    found: dict[str, Any] = {
        "scope_id": arguments.scope,
        "snapshot_id": arguments.snapshot,
        "query": _expression(arguments),
        "traverse": _traverse(arguments),
    }
    if arguments.space:
        found["embedding_space_id"] = arguments.space
    if arguments.profile:
        found["ordering"] = {"profile": arguments.profile}
    return found


def with_space(client: Client, request: dict[str, Any]) -> dict[str, Any]:
    """The same request with the only space of its scope, where it compares vectors and names none."""
    if "vector" not in request["query"].get("modes", ()) or "embedding_space_id" in request:
        return request
    return {**request, "embedding_space_id": only_space(client, request["scope_id"])}


def only_space(client: Client, scope_id: str) -> str:
    """The embedding space of a scope's vectors; Misused where there is none, or a choice."""
    indexes = client.list_indexes(scope_id=scope_id).indexes
    spaces = [
        one.index_id.removeprefix(_VECTOR)
        for one in indexes
        if one.index_id.startswith(_VECTOR) and one.state != "dropped"
    ]
    if not spaces:
        raise Misused(
            "nothing of this scope has a vector yet: try again in a moment, or look for words with  --mode lexical"
        )
    if len(spaces) > 1:
        raise Misused(f"this scope has vectors of several spaces, name one with --space: {', '.join(spaces)}")
    return spaces[0]


def _expression(arguments: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": "structured"}
    modes = sorted(set(arguments.mode or ()))
    if arguments.text is not None:
        modes = modes or (["lexical", "vector"] if arguments.space else ["lexical"])
        found = {"kind": "hybrid", "text": arguments.text, "modes": modes}
    elif modes == ["graph"]:
        found = {"kind": "hybrid", "modes": modes}
    elif modes or arguments.space or arguments.profile or getattr(arguments, "explain", False):
        raise Misused("--mode, --space, --profile and --explain order by likeness: say with --text what to look for")
    if "graph" in modes and not arguments.start:
        raise Misused("--mode graph starts somewhere: name an object with --from")
    if arguments.type:
        found["filters"] = {"object_type": arguments.type}
    if arguments.trust:
        found["trust"] = arguments.trust
    if arguments.where:
        try:
            found["where"] = json.loads(arguments.where)
        except ValueError as error:
            raise Misused(f"--where is no JSON: {error}") from None
    if arguments.as_of is not None:
        found["as_of"] = {"ledger_sequence": arguments.as_of}
    return found


def _traverse(arguments: argparse.Namespace) -> dict[str, Any] | None:
    ways = {"relationship_types": arguments.follow, "depth": arguments.depth, "direction": arguments.direction}
    given = {name: value for name, value in ways.items() if value is not None}
    if arguments.start:
        return {"from": arguments.start, **given}
    if given:
        raise Misused("--follow, --depth and --direction lead away from somewhere: name an object with --from")
    return None
