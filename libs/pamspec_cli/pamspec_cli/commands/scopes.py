"""`pamspec scopes`: make a scope, show those that the key can see, and show or replace a scope's policy."""

import argparse
import json

from pamspec_cli.connection import OK, Misused, add_arguments, reporting, service
from pamspec_cli.files import json_document
from pamspec_client import Client
from pamspec_client.models import PolicyPage, PolicySet, ScopeAnswer, ScopeDocument, ScopePage

SUMMARY = "show scopes; --create makes one, --scope shows or sets the policy of one"


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--create", metavar="ID", help="make this scope, for example workspace:research")
    which.add_argument("--scope", metavar="ID", help="show this scope's policy, or set it with --policy")
    parser.add_argument("--kind", metavar="KIND", help="what it is (default: its id up to the colon)")
    parser.add_argument("--policy", metavar="FILE", help="a file with the policy as JSON; - is stdin")
    parser.add_argument("--basis", metavar="TEXT", help="with --scope and --policy: why the policy changes")
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
