"""`pamspec delegations`: grant, revoke, check, explain and list what one actor lets another do."""

import argparse
import json
from datetime import UTC, datetime, timedelta
from typing import Any

from pamspec_cli.connection import OK, Misused, add_arguments, reporting, service
from pamspec_client import Client
from pamspec_client.models import Checked, DelegationEntry, DelegationPage, Explanation, Granted, Revoked

SUMMARY = "grant, revoke, check, explain or list what one actor lets another do"
_ACTIONS = ("grant", "revoke", "check", "explain", "list")


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("action", choices=_ACTIONS, help="what to do")
    parser.add_argument("delegation", nargs="?", metavar="ID", help="the grant; with grant: the one that is passed on")
    parser.add_argument("--scope", help="the scope of the grant; with list: grants made in it or for it")
    parser.add_argument(
        "--to", metavar="ACTOR", help="grant: the delegate; check, explain: whose use; list: who has it"
    )
    parser.add_argument("--kind", default="agent", help="the kind of the actor of --to (agent)")
    parser.add_argument("--from", dest="grantor", metavar="ACTOR", help="list: who gave it")
    parser.add_argument("--operation", action="append", metavar="NAME", help="read, query, update ...; several times")
    parser.add_argument("--type", action="append", metavar="OBJECT_TYPE", help="only objects of this type")
    parser.add_argument("--object", action="append", metavar="ID", help="only this object")
    parser.add_argument("--for", dest="minutes", type=float, default=60.0, metavar="MINUTES", help="how long (60)")
    parser.add_argument("--uses", type=int, help="how often it may be used")
    parser.add_argument("--depth", type=int, default=0, help="how often it may be passed on (0)")
    parser.add_argument("--use", action="store_true", help="check: use the grant, which counts against its limit")
    parser.add_argument("--in-force", action="store_true", help="list: only those in force now")
    parser.add_argument("--basis", metavar="TEXT", help="grant, revoke: why")
    add_arguments(parser)


@reporting
def run(arguments: argparse.Namespace) -> int:
    """0 when it was done, or is permitted; 1 for a check or an explanation that denies."""
    if arguments.action in ("grant", "revoke") and not arguments.basis:
        raise Misused("authority is given and taken for a reason: give --basis TEXT")
    if arguments.action not in ("grant", "list") and not arguments.delegation:
        raise Misused("name the grant, as grant and list print it")
    act = {"grant": _grant, "revoke": _revoke, "check": _check, "explain": _explain, "list": _list}[arguments.action]
    with service(arguments).client() as client:
        return act(client, arguments)


def _grant(client: Client, arguments: argparse.Namespace) -> int:
    if not (arguments.scope and arguments.to and arguments.operation):
        raise Misused("a grant names --scope, --to and at least one --operation")
    now = datetime.now(UTC)
    document: dict[str, Any] = {
        "scope_id": arguments.scope,
        "delegated_actor": {"actor_id": arguments.to, "actor_kind": arguments.kind},
        "granted_operations": arguments.operation,
        "policy_basis": arguments.basis,
        "not_before": now.isoformat(),
        "not_after": (now + timedelta(minutes=arguments.minutes)).isoformat(),
        "granted_object_types": arguments.type,
        "granted_object_ids": arguments.object,
        "usage_limit": arguments.uses,
        "redelegation_depth": arguments.depth,
        "delegation_id": arguments.delegation,
    }
    made = Granted.of(client.call("grant_delegation", document).body)
    return _print(arguments, made.raw, f"{made.delegation_id}  granted to {arguments.to}")


def _revoke(client: Client, arguments: argparse.Namespace) -> int:
    document = {"delegation_id": arguments.delegation, "policy_basis": arguments.basis}
    done = Revoked.of(client.call("revoke_delegation", document).body)
    return _print(arguments, done.raw, f"{done.delegation_id}  revoked")


def _asked(arguments: argparse.Namespace) -> dict[str, Any]:
    if not arguments.operation or len(arguments.operation) > 1:
        raise Misused("name one --operation that would be carried out")
    return {
        "delegation_id": arguments.delegation,
        "operation": arguments.operation[0],
        "scope_id": arguments.scope,
        "actor": {"actor_id": arguments.to, "actor_kind": arguments.kind} if arguments.to else None,
        "object_id": arguments.object[0] if arguments.object else None,
        "object_type": arguments.type[0] if arguments.type else None,
    }


def _check(client: Client, arguments: argparse.Namespace) -> int:
    found = Checked.of(client.call("check_delegation", _asked(arguments) | {"consume": arguments.use}).body)
    return _print(arguments, found.raw, f"{found.delegation_id}  permitted, {_left(found.remaining_uses)}")


def _explain(client: Client, arguments: argparse.Namespace) -> int:
    told = Explanation.of(client.call("explain_delegation", _asked(arguments)).body)
    if arguments.json:
        print(told.raw.decode())
        return OK if told.permitted else 1
    for link in told.chain:
        who = f"  {link.granting_actor_id} to {link.delegated_actor_id}" if link.granting_actor_id else ""
        print(f"{link.delegation_id}{who}")
        for rule in link.rules:
            print(f"  {'kept  ' if rule.kept else 'BROKEN'}  {rule.rule}")
    verdict = "permitted" if told.permitted else f"refused: {told.reason}"
    print(f"{verdict}, {_left(told.remaining_uses)}; so far {json.dumps(told.exercised)}")
    return OK if told.permitted else 1


def _list(client: Client, arguments: argparse.Namespace) -> int:
    cursor: str | None = None
    while True:
        request = {
            "scope_id": arguments.scope,
            "granting_actor_id": arguments.grantor,
            "delegated_actor_id": arguments.to,
            "in_force": True if arguments.in_force else None,
            "limit": 100,
            "cursor": cursor,
        }
        page = DelegationPage.of(client.call("list_delegations", request).body)
        if arguments.json:
            print(page.raw.decode())
        for one in () if arguments.json else page.delegations:
            print(_line(one))
        cursor = page.next_cursor
        if not cursor:
            return OK


def _line(one: DelegationEntry) -> str:
    terms = one.terms
    state = "in force until" if one.in_force else "not in force, ended or ends"
    return (
        f"{terms['delegation_id']}  {terms['scope_id']}  {terms['granting_actor']['actor_id']} to "
        f"{terms['delegated_actor']['actor_id']}  {' '.join(terms['granted_operations'])}  {state} {terms['not_after']}"
        f"  {_left(one.remaining_uses)}"
    )


def _left(remaining: int | None) -> str:
    return "any number of uses" if remaining is None else f"{remaining} uses left"


def _print(arguments: argparse.Namespace, raw: bytes, line: str) -> int:
    print(raw.decode() if arguments.json else line)
    return OK
