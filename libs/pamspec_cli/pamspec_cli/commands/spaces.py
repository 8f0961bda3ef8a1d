"""`pamspec spaces`: show and describe the embedding spaces of a tenant, and those of a scope."""

import argparse
import json

from pamspec_cli.connection import OK, Misused, add_arguments, reporting, service
from pamspec_cli.files import json_document
from pamspec_client import Client
from pamspec_client.models import SpaceMoved, SpacePage, SpaceRegistered

SUMMARY = "show embedding spaces; --register describes one, --reembed and --drop change those of a scope"


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--show", metavar="ID", help="the whole descriptor of this space")
    what.add_argument("--register", metavar="FILE", help="describe the space of this file, for good; - is stdin")
    what.add_argument("--reembed", metavar="ID", help="embed --scope into this space, online")
    what.add_argument("--drop", metavar="ID", help="take all vectors of this space away from --scope")
    parser.add_argument("--scope", help="with --reembed and --drop; with --register where you are an administrator")
    add_arguments(parser)


@reporting
def run(arguments: argparse.Namespace) -> int:
    """0 when it was done; the same descriptor is registered again without harm."""
    moved = arguments.reembed or arguments.drop
    if moved and not arguments.scope:
        raise Misused("vectors belong to a scope: name it with --scope")
    with service(arguments).client() as client:
        if arguments.register:
            return _register(client, arguments)
        if moved:
            operation = "reembed" if arguments.reembed else "drop_vectors"
            reply = client.call(operation, {"scope_id": arguments.scope, "embedding_space_id": moved})
            print(reply.body.decode() if arguments.json else f"{moved}  {SpaceMoved.of(reply.body).state}")
            return OK
        if arguments.show:
            return _show(client, arguments)
        return _list(client, arguments)


def _register(client: Client, arguments: argparse.Namespace) -> int:
    descriptor = json_document(arguments.register)
    if not isinstance(descriptor, dict):
        raise Misused(f"{arguments.register} holds no descriptor of a space")
    scope = {"scope_id": arguments.scope} if arguments.scope else {}
    reply = client.call("register_embedding_space", {**descriptor, **scope})
    made = SpaceRegistered.of(reply.body).embedding_space
    print(reply.body.decode() if arguments.json else f"{made.embedding_space_id}  registered")
    return OK


def _show(client: Client, arguments: argparse.Namespace) -> int:
    reply = client.call("list_embedding_spaces", {"embedding_space_id": arguments.show})
    found = json.loads(reply.body)["embedding_spaces"]
    if not found:
        raise Misused(f"this tenant has no space {arguments.show}:  pamspec spaces  lists those that it has")
    print(reply.body.decode() if arguments.json else json.dumps(found[0], indent=2, ensure_ascii=False))
    return OK


def _list(client: Client, arguments: argparse.Namespace) -> int:
    cursor: str | None = None
    while True:
        page = SpacePage.of(client.call("list_embedding_spaces", {"limit": 100, "cursor": cursor}).body)
        if arguments.json:
            print(page.raw.decode())
        for one in () if arguments.json else page.embedding_spaces:
            print(f"{one.embedding_space_id}  {one.dimensions} dimensions, {one.distance_metric}  {one.model}")
        cursor = page.next_cursor
        if not cursor:
            return OK
