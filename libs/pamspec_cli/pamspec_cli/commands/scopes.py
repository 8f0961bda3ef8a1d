"""`pamspec scopes`: make a scope, or show those that the key can see."""

import argparse

from pamspec_cli.connection import OK, add_arguments, reporting, service
from pamspec_client import Client
from pamspec_client.models import ScopeAnswer, ScopeDocument, ScopePage

SUMMARY = "show scopes; --create makes one"


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("--create", metavar="ID", help="make this scope, for example workspace:research")
    parser.add_argument("--kind", metavar="KIND", help="what it is (default: its id up to the colon)")
    add_arguments(parser)


@reporting
def run(arguments: argparse.Namespace) -> int:
    """0 when it was done; a scope that exists already is made again without harm."""
    with service(arguments).client() as client:
        if not arguments.create:
            return _list(client, as_json=arguments.json)
        kind = arguments.kind or arguments.create.partition(":")[0]
        reply = client.call("create_scope", {"scope_id": arguments.create, "scope_kind": kind})
    print(reply.body.decode() if arguments.json else _line(ScopeDocument.of(ScopeAnswer.of(reply.body).scope_raw)))
    return OK


def _list(client: Client, *, as_json: bool) -> int:
    cursor: str | None = None
    while True:
        page = ScopePage.of(client.call("list_scopes", {"limit": 1000, "cursor": cursor}).body)
        if as_json:
            print(page.raw.decode())
        for scope in () if as_json else page.scopes:
            print(_line(scope))
        cursor = page.next_cursor
        if not cursor:
            return OK


def _line(scope: ScopeDocument) -> str:
    return f"{scope.scope_id}  {scope.scope_kind}"
