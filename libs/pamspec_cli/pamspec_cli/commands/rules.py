"""`pamspec rules`: show, check and set the access rules of a scope or of the whole tenant."""

import argparse
import json
from pathlib import Path
from typing import Any

from pamspec_cli.connection import OK, Misused, add_arguments, reporting, service
from pamspec_client import Client

SUMMARY = "show access rules; --set puts others in force"


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("--scope", help="the scope (default: the whole tenant)")
    parser.add_argument("--set", metavar="FILE", type=Path, help="put the rules of this file in force")
    parser.add_argument("--check", action="store_true", help="with --set: only say whether they could apply")
    parser.add_argument("--after", type=int, metavar="N", help="with --set: the version in force (default: any)")
    parser.add_argument("--basis", metavar="TEXT", help="with --set: why")
    add_arguments(parser)


@reporting
def run(arguments: argparse.Namespace) -> int:
    """0 when it was done."""
    place: dict[str, Any] = {} if arguments.scope is None else {"scope_id": arguments.scope}
    with service(arguments).client() as client:
        if arguments.set is None:
            return _show(client, place, arguments)
        if not arguments.basis:
            raise Misused("rules are set for a reason: give --basis TEXT")
        try:
            text = arguments.set.read_text(encoding="utf-8")
        except OSError as error:
            raise Misused(f"the rules cannot be read: {error}") from None
        after = arguments.after
        if after is None:
            after = json.loads(client.call("get_access_rules", place).body)["rules_version"]
        request = {"rules": text, "expected_rules_version": after, "policy_basis": arguments.basis}
        reply = client.call("set_access_rules", place | request | {"dry_run": arguments.check})
    answer = json.loads(reply.body)
    if arguments.json:
        print(reply.body.decode())
    else:
        print("the rules can apply" if answer["dry_run"] else f"version {answer['rules_version']} is in force")
    return OK


def _show(client: Client, place: dict[str, Any], arguments: argparse.Namespace) -> int:
    reply = client.call("get_access_rules", place)
    answer = json.loads(reply.body)
    if arguments.json:
        print(reply.body.decode())
    elif answer["rules_version"] == 0:
        print("no rules beside those of the roles")
    else:
        print(
            f"// version {answer['rules_version']}, {answer['changed_by']}: {answer['policy_basis']}\n{answer['rules']}"
        )
    return OK
