"""`pamspec query`: find objects by words and meaning, relationships, type, states and conditions."""

import argparse
import json
import sys

from pamspec_cli.connection import OK, add_arguments, reporting, service
from pamspec_cli.looking import add_expression, request_of, with_space
from pamspec_cli.showing import envelope_line
from pamspec_client.models import QueryPage

SUMMARY = "find objects"


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    add_expression(parser)
    parser.add_argument("--explain", action="store_true", help="say of each item why it stands where it does")
    parser.add_argument("--limit", type=int, default=50, help="items of the page (default: 50, at most 1000)")
    parser.add_argument("--cursor", help="the next page of an earlier answer")
    parser.add_argument("--all", action="store_true", help="all pages")
    add_arguments(parser)


@reporting
def run(arguments: argparse.Namespace) -> int:
    """0 when the query was answered, also with nothing."""
    request = {**request_of(arguments), "limit": arguments.limit}
    if arguments.explain:
        request["explain_ranking"] = True
    cursor = arguments.cursor
    with service(arguments).client() as client:
        request = with_space(client, request)
        while True:
            page = QueryPage.of(client.call("query", {**request, "cursor": cursor}).body)
            cursor = page.next_cursor
            _show(page, arguments)
            if not (arguments.all and cursor):
                break
    if cursor and not arguments.json:
        print(f"more: --cursor {cursor}", file=sys.stderr)
    return OK


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
