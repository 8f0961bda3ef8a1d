"""`pamspec query`: find objects by words and meaning, type, states and conditions."""

import argparse
import json
import sys
from typing import Any

from pamspec_cli.connection import OK, Misused, add_arguments, reporting, service
from pamspec_cli.showing import envelope_line
from pamspec_client import Client
from pamspec_client.models import QueryPage

SUMMARY = "find objects"
_VECTOR = "index:vector:"


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
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
        choices=("lexical", "vector"),
        help="by words (lexical, default), by meaning (vector), or both: give it twice",
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
    parser.add_argument("--explain", action="store_true", help="say of each item why it stands where it does")
    parser.add_argument("--as-of", type=int, metavar="SEQUENCE", help="as it was after this ledger sequence")
    parser.add_argument("--limit", type=int, default=50, help="items of the page (default: 50, at most 1000)")
    parser.add_argument("--cursor", help="the next page of an earlier answer")
    parser.add_argument("--all", action="store_true", help="all pages")
    parser.add_argument("--snapshot", metavar="ID", help="as a sealed snapshot shows it")
    add_arguments(parser)


@reporting
def run(arguments: argparse.Namespace) -> int:
    """0 when the query was answered, also with nothing."""
    request = {
        "scope_id": arguments.scope,
        "snapshot_id": arguments.snapshot,
        "query": expression(arguments),
        "limit": arguments.limit,
        **ranking(arguments),
    }
    cursor = arguments.cursor
    with service(arguments).client() as client:
        if "vector" in request["query"].get("modes", ()) and not arguments.space:
            request["embedding_space_id"] = only_space(client, arguments.scope)
        while True:
            page = QueryPage.of(client.call("query", {**request, "cursor": cursor}).body)
            cursor = page.next_cursor
            _show(page, arguments)
            if not (arguments.all and cursor):
                break
    if cursor and not arguments.json:
        print(f"more: --cursor {cursor}", file=sys.stderr)
    return OK


def expression(arguments: argparse.Namespace) -> dict[str, Any]:
    """The query that the arguments mean."""
    found: dict[str, Any] = {"kind": "structured"}
    if arguments.text is not None:
        modes = arguments.mode or (["lexical", "vector"] if arguments.space else ["lexical"])
        found = {"kind": "hybrid", "text": arguments.text, "modes": sorted(set(modes))}
    elif arguments.mode or arguments.space or arguments.profile or arguments.explain:
        raise Misused("--mode, --space, --profile and --explain order by likeness: say with --text what to look for")
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


def ranking(arguments: argparse.Namespace) -> dict[str, Any]:
    """What stands beside a query that ranks."""
    found: dict[str, Any] = {}
    if arguments.space:
        found["embedding_space_id"] = arguments.space
    if arguments.profile:
        found["ordering"] = {"profile": arguments.profile}
    if arguments.explain:
        found["explain_ranking"] = True
    return found


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


def _show(page: QueryPage, arguments: argparse.Namespace) -> None:
    if arguments.json:
        print(page.raw.decode())
        return
    for item in page.items:
        score = "" if item.score is None else f"{item.score:.3f}  "
        print(score + envelope_line(item.envelope))
        if item.explanation is not None:
            print(f"       {json.dumps(item.explanation, sort_keys=True)}")
    if page.hint:
        print(f"hint: {page.hint} Here that is  --trust working", file=sys.stderr)
    elif not page.items and not arguments.cursor:
        wider = "" if arguments.trust == "all" else "; --trust all looks at memory in every state"
        print(f"nothing found{wider}", file=sys.stderr)
