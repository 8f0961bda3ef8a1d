"""`pamspec quotas`: show what a tenant may take and what it uses; operators set it."""

import argparse
import json
from pathlib import Path
from typing import Any

from pamspec_cli.connection import OK, Misused, add_arguments, reporting, service
from pamspec_client import Client

SUMMARY = "show a tenant's quotas and what it uses; --set puts others in force"


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("--tenant", help="whose (default: the key's own tenant; another takes the right operator)")
    parser.add_argument("--scope", help="show what this scope uses too")
    parser.add_argument("--set", metavar="FILE", type=Path, help="put the quotas of this JSON file in force")
    parser.add_argument("--after", type=int, metavar="N", help="with --set: the version in force (default: any)")
    parser.add_argument("--basis", metavar="TEXT", help="with --set: why")
    add_arguments(parser)


@reporting
def run(arguments: argparse.Namespace) -> int:
    """0 when it was done."""
    whose: dict[str, Any] = {} if arguments.tenant is None else {"tenant_id": arguments.tenant}
    with service(arguments).client() as client:
        if arguments.set is None:
            return _show(client, whose, arguments)
        if not arguments.basis:
            raise Misused("quotas are set for a reason: give --basis TEXT")
        try:
            quotas = json.loads(arguments.set.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise Misused(f"the quotas cannot be read: {error}") from None
        after = arguments.after
        if after is None:
            after = json.loads(client.call("get_quotas", whose).body)["quotas_version"]
        request = {"quotas": quotas, "expected_quotas_version": after, "policy_basis": arguments.basis}
        reply = client.call("set_quotas", whose | request)
    if arguments.json:
        print(reply.body.decode())
    else:
        print(f"version {json.loads(reply.body)['quotas_version']} is in force; gateways follow within seconds")
    return OK


def _show(client: Client, whose: dict[str, Any], arguments: argparse.Namespace) -> int:
    place = {} if arguments.scope is None else {"scope_id": arguments.scope}
    reply = client.call("get_quotas", whose | place)
    answer = json.loads(reply.body)
    if arguments.json:
        print(reply.body.decode())
        return OK
    said = f", {answer['changed_by']}: {answer['policy_basis']}" if answer["quotas_version"] else ""
    print(f"{answer['tenant_id']}, version {answer['quotas_version']}{said}")
    for part in ("tenant", "principal", "scope"):
        used, bounds = answer["used"].get(part, {}), answer["in_force"].get(part, {})
        for name in dict.fromkeys([*bounds, *used]):
            bound = f"{bounds[name]:,}" if name in bounds else "no bound"
            print(f"  {part}.{name}: {bound}" + (f", {used[name]:,} used" if name in used else ""))
    return OK
