"""`pamspec erasures`: the receipts of a scope's erasures, one of them, or a forget."""

import argparse
import json
from typing import Any

from pamspec_cli.connection import OK, Misused, add_arguments, reporting, service
from pamspec_client import Client
from pamspec_client.models import Erasure, ErasurePage, Forgotten

SUMMARY = "receipts of erasures: what is verified to be gone, and from where; --forget erases all of a subject"


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("erasure", nargs="?", metavar="ERASURE", help="show this one, surface by surface")
    parser.add_argument("--scope", help="list those of this scope")
    parser.add_argument("--open", action="store_true", help="only those that are not closed yet")
    parser.add_argument("--forget", action="store_true", help="show what concerns a subject of --scope")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--actor", help="with --forget: all that this actor made")
    what.add_argument("--source", help="with --forget: all that comes from this provenance source")
    what.add_argument("--where", metavar="JSON", help="with --forget: all that a query with this condition finds")
    parser.add_argument("--basis", metavar="TEXT", help="with --forget: why")
    parser.add_argument("--token", help="with --forget: begin, with the token that the preview printed")
    add_arguments(parser)


@reporting
def run(arguments: argparse.Namespace) -> int:
    """0 when it was shown or begun."""
    with service(arguments).client() as client:
        if arguments.forget:
            return _forget(client, arguments)
        if arguments.erasure:
            reply = client.call("list_erasures", {"erasure_id": arguments.erasure})
            print(reply.body.decode() if arguments.json else _whole(ErasurePage.of(reply.body).erasures[0]))
            return OK
        if not arguments.scope:
            raise Misused("name an erasure, or give --scope to list those of a scope")
        return _list(client, arguments)


def _list(client: Client, arguments: argparse.Namespace) -> int:
    cursor: str | None = None
    while True:
        request = {"scope_id": arguments.scope, "limit": 100, "cursor": cursor}
        page = ErasurePage.of(
            client.call("list_erasures", request | ({"state": "open"} if arguments.open else {})).body
        )
        if arguments.json:
            print(page.raw.decode())
        for one in () if arguments.json else page.erasures:
            print(_line(one))
        cursor = page.next_cursor
        if not cursor:
            return OK


def _forget(client: Client, arguments: argparse.Namespace) -> int:
    """The preview of a forget, or its beginning."""
    if not (arguments.scope and arguments.basis):
        raise Misused("to forget takes --scope and a reason: --basis TEXT")
    subject: dict[str, Any] = {"actor_id": arguments.actor} if arguments.actor else {"source_ref": arguments.source}
    if arguments.where:
        try:
            subject = {"filter": {"where": json.loads(arguments.where)}}
        except ValueError as error:
            raise Misused(f"--where is no JSON: {error}") from None
    elif not (arguments.actor or arguments.source):
        raise Misused("whom or what to forget: give --actor, --source or --where")
    request = {"scope_id": arguments.scope, "policy_basis": arguments.basis, "subject": subject}
    reply = client.call("forget", request | ({"preview_token": arguments.token} if arguments.token else {}))
    print(reply.body.decode() if arguments.json else _begun(Forgotten.of(reply.body)))
    return OK


def _begun(found: Forgotten) -> str:
    if found.counts is None:
        return f"{found.erasure_id}  running, {found.total} objects and relationships"
    counts = found.counts
    return (
        f"{counts.objects} objects and {counts.relationships} relationships would go, {counts.partly} in part; "
        f"{counts.held} are held\nto begin, the same with  --token {found.preview_token}"
    )


def _line(one: Erasure) -> str:
    """The receipt in a line."""
    about = (
        one.object_id or one.relationship_id or (f"{one.progress.done}/{one.progress.total}" if one.progress else "")
    )
    still = [surface.surface for surface in one.surfaces if surface.state == "open"]
    return f"{one.erasure_id}  {one.kind}  {about}  {one.state}{'  ' + ', '.join(still) if still else ''}"


def _whole(one: Erasure) -> str:
    """The receipt surface by surface."""
    lines = [_line(one)]
    if one.absent_at:
        lines.append(f"  in no answer since {one.absent_at}")
    for surface in one.surfaces:
        said = [surface.state, f"at {surface.position}" if surface.position is not None else "", surface.scan or ""]
        said += [surface.closed_at or "", surface.error or ""]
        lines.append(f"  {surface.surface:20} " + "  ".join(part for part in said if part))
    lines.append(f"  {'backups':20} {one.backups.state}  {one.backups.deadline or ''}".rstrip())
    return "\n".join(lines)
