"""`pamspec schemas`: show and register the schemas that a scope's content has to keep."""

import argparse
import json

from pamspec_cli.connection import OK, Misused, add_arguments, reporting, service
from pamspec_cli.files import json_document
from pamspec_client import Client
from pamspec_client.models import RegisteredSchema, SchemaPage

SUMMARY = "show content schemas; --register adds one"


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("--scope", required=True, help="the scope")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--register", metavar="URI", help="register --file under this schema_id, for good")
    what.add_argument("--show", metavar="URI", help="the schema of this schema_id")
    parser.add_argument("--file", metavar="FILE", help="a file with the JSON Schema; - is stdin")
    add_arguments(parser)


@reporting
def run(arguments: argparse.Namespace) -> int:
    """0 when it was done; the same schema is registered again without harm."""
    if bool(arguments.register) != bool(arguments.file):
        raise Misused("--register URI and --file FILE go together")
    with service(arguments).client() as client:
        if arguments.register:
            request = {"scope_id": arguments.scope, "schema_id": arguments.register}
            reply = client.call("register_schema", request | {"schema": json_document(arguments.file)})
            print(reply.body.decode() if arguments.json else f"{arguments.register}  registered")
            return OK
        if arguments.show:
            reply = client.call("get_schema", {"scope_id": arguments.scope, "schema_id": arguments.show})
            shown = json.dumps(RegisteredSchema.of(reply.body).schema, indent=2, ensure_ascii=False)
            print(reply.body.decode() if arguments.json else shown)
            return OK
        return _list(client, arguments)


def _list(client: Client, arguments: argparse.Namespace) -> int:
    cursor: str | None = None
    while True:
        request = {"scope_id": arguments.scope, "limit": 100, "cursor": cursor}
        page = SchemaPage.of(client.call("list_schemas", request).body)
        if arguments.json:
            print(page.raw.decode())
        for one in () if arguments.json else page.schemas:
            print(f"{one.schema_id}  {one.registered_at}  {one.actor_id}")
        cursor = page.next_cursor
        if not cursor:
            return OK
