"""`pamspec scopes`: make and delete a scope, show those that the key can see, and show or replace a scope's policy."""

import argparse
import json

from pamspec_cli.connection import OK, Misused, add_arguments, reporting, service
from pamspec_cli.files import json_document
from pamspec_client import Client
from pamspec_client.models import PolicyPage, PolicySet, ScopeAnswer, ScopeDocument, ScopePage

SUMMARY = "show scopes; --create makes one, --delete ends one, --scope shows or sets the policy of one"


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--create", metavar="ID", help="make this scope, for example workspace:research")
    which.add_argument("--delete", metavar="ID", help="delete this scope for good, with --basis; asked again: how far")
    which.add_argument("--scope", metavar="ID", help="show this scope's policy, or set it with --policy")
    parser.add_argument("--kind", metavar="KIND", help="what it is (default: its id up to the colon)")
    parser.add_argument("--policy", metavar="FILE", help="a file with the policy as JSON; - is stdin")
    parser.add_argument("--basis", metavar="TEXT", help="with --policy and --delete: why")
    parser.add_argument("--dry-run", action="store_true", help="with --delete: only count what would go")
    parser.add_argument(
        "--expected", metavar="N", type=int, help="the policy_version that the new one follows (else looked up)"
    )
    parser.add_argument("--history", action="store_true", help="with --scope: the policies that it has had")
    add_arguments(parser)


@reporting
def run(arguments: argparse.Namespace) -> int:
    """0 when it was done; a scope that exists already is made again without harm."""
    if arguments.policy and not (arguments.create or arguments.scope):
        raise Misused("--policy goes with --create ID, or with --scope ID and --basis TEXT")
    with service(arguments).client() as client:
        if arguments.create:
            return _create(client, arguments)
        if arguments.delete:
            return _delete(client, arguments)
        if not arguments.scope:
            return _list(client, as_json=arguments.json)
        if arguments.policy:
            return _set_policy(client, arguments)
        return (_history if arguments.history else _show)(client, arguments)


def _create(client: Client, arguments: argparse.Namespace) -> int:
    kind = arguments.kind or arguments.create.partition(":")[0]
    policy = json_document(arguments.policy) if arguments.policy else None
    reply = client.call("create_scope", {"scope_id": arguments.create, "scope_kind": kind, "policy": policy})
    print(reply.body.decode() if arguments.json else _line(ScopeDocument.of(ScopeAnswer.of(reply.body).scope_raw)))
    return OK


def _delete(client: Client, arguments: argparse.Namespace) -> int:
    if not arguments.basis and not arguments.dry_run:
        raise Misused("a scope is deleted for a reason: give --basis TEXT, or --dry-run to count what would go")
    request = {"scope_id": arguments.delete, "policy_basis": arguments.basis or "counting"}
    reply = client.call("delete_scope", request | ({"dry_run": True} if arguments.dry_run else {}))
    answer = json.loads(reply.body)
    told = {**answer.get("counts", {}), "erased versions": answer.get("erased_versions")}
    counts = ", ".join(f"{name.replace('_', ' ')} {number}" for name, number in told.items() if number is not None)
    print(reply.body.decode() if arguments.json else f"{arguments.delete}  {answer['state']}  ({counts})")
    return OK


def _set_policy(client: Client, arguments: argparse.Namespace) -> int:
    if not arguments.basis:
        raise Misused("a policy changes for a reason: give --basis TEXT")
    expected = arguments.expected
    if expected is None:
        expected = client.get_scope(scope_id=arguments.scope).policy_version
    request = {
        "scope_id": arguments.scope,
        "policy": json_document(arguments.policy),
        "expected_policy_version": expected,
        "policy_basis": arguments.basis,
    }
    reply = client.call("update_scope", request)
    known = PolicySet.of(reply.body)
    print(reply.body.decode() if arguments.json else f"{known.scope_id}  policy version {known.policy_version}")
    return OK


def _show(client: Client, arguments: argparse.Namespace) -> int:
    reply = client.call("get_scope", {"scope_id": arguments.scope})
    if arguments.json:
        print(reply.body.decode())
        return OK
    answer = ScopeAnswer.of(reply.body)
    found = ScopeDocument.of(answer.scope_raw)
    print(f"{_line(found)}  policy version {answer.policy_version}")
    print(json.dumps(found.policy or {}, indent=2, ensure_ascii=False))
    return OK


def _history(client: Client, arguments: argparse.Namespace) -> int:
    cursor: str | None = None
    while True:
        request = {"scope_id": arguments.scope, "limit": 100, "cursor": cursor}
        page = PolicyPage.of(client.call("list_policy_versions", request).body)
        if arguments.json:
            print(page.raw.decode())
        for one in () if arguments.json else page.versions:
            print(
                f"{one.policy_version}  {one.changed_at}  {one.actor_id}  {one.policy_basis or 'made with the scope'}"
            )
        cursor = page.next_cursor
        if not cursor:
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
