"""`pamspec keys create|list|rotate|revoke`: who may enter by the public door."""

import argparse
import asyncio
import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from pamspec_cli import development, keys
from pamspec_cli.connection import OK, add_arguments, reporting, service
from pamspec_cli.data import DataDirectory, chosen
from pamspec_common.authorization.vocabulary import ROLES

SUMMARY = "make, list, replace and revoke API keys"

Call = Callable[[str, dict[str, Any]], dict[str, Any]]

_COLUMNS = ("state", "key", "tenant", "actor", "roles", "rights", "created", "expires", "last used")


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    create = actions.add_parser("create", help="make a key and show it, this once")
    create.add_argument("--actor", required=True, metavar="ID", help="for whom it stands, like agent:planner")
    create.add_argument("--kind", default="agent", help="what that is: agent, human, service (default: agent)")
    create.add_argument("--right", action="append", default=[], choices=keys.RIGHTS, help="may be given several times")
    create.add_argument(
        "--role",
        action="append",
        default=[],
        choices=ROLES,
        help="what it may do in every scope of its tenant; may be given several times (default: contributor)",
    )
    listing = actions.add_parser("list", help="show keys, never their texts")
    listing.add_argument("--all", action="store_true", help="show ended keys too")
    rotate = actions.add_parser("rotate", help="make a key like another one, which ends after a while")
    rotate.add_argument("--hours", type=_hours, default=24.0, metavar="N", help="how long both open (default: 24)")
    revoke = actions.add_parser("revoke", help="end a key")
    for action in (rotate, revoke):
        action.add_argument("key_id", metavar="KEY_ID", help="as `pamspec keys list` shows it")
    for action in (create, rotate):
        action.add_argument("--days", type=_days, metavar="N", help="valid for so many days")
    for action in (create, rotate, revoke):
        action.add_argument("--basis", default=keys.BASIS, metavar="TEXT", help="why, for the record")
    for action in (create, listing, rotate, revoke):
        action.add_argument(
            "--tenant", metavar="ID", help="the tenant (only operators may name another than their own)"
        )
        add_arguments(action)


def _days(text: str) -> float:
    days = float(text)
    if not 0 < days <= 36_500:
        raise argparse.ArgumentTypeError("more than 0 and at most 36500 days")
    return days


def _hours(text: str) -> float:
    hours = float(text)
    if not 0 <= hours <= 24 * 366:
        raise argparse.ArgumentTypeError("0 (at once) to 8784 hours")
    return hours


@reporting
def run(arguments: argparse.Namespace) -> int:
    """0 when it was done; 1 when it was refused.

    Over the gateway that --url or PAMSPEC_URL names, as the key given there; without one, or where PAMSPEC_DATABASE_URL
    is set, at the database itself, where the first key comes from.
    """
    by = _operator(arguments)
    if by is None:
        with service(arguments).client() as client:
            return _act(lambda operation, request: json.loads(client.call(operation, request).body), arguments)
    if arguments.action == "create":
        return _create_at(by, arguments)
    tenants = [arguments.tenant] if arguments.tenant or arguments.action != "list" else asyncio.run(keys.tenants(by))

    def call(operation: str, request: dict[str, Any]) -> dict[str, Any]:
        return asyncio.run(keys.administer(by, operation, request))

    for tenant in tenants:
        arguments.tenant = tenant
        _act(call, arguments)
    return OK


def _operator(arguments: argparse.Namespace) -> keys.Administrator | None:
    """Who acts at the database; None where a gateway was named."""
    if "PAMSPEC_DATABASE_URL" not in os.environ and (arguments.url or os.environ.get("PAMSPEC_URL")):
        return None
    return keys.administrator(DataDirectory(chosen(arguments.data)))


def _create_at(by: keys.Administrator, arguments: argparse.Namespace) -> int:
    tenant = arguments.tenant or development.TENANT_ID
    roles = arguments.role or ["contributor"]
    owner = keys.Owner(tenant, arguments.actor, arguments.kind, arguments.right, _ends(arguments), roles)
    return _show_new(*asyncio.run(keys.create_key(by, owner, arguments.basis)), arguments)


def _ends(arguments: argparse.Namespace) -> datetime | None:
    return datetime.now(UTC) + timedelta(days=arguments.days) if arguments.days else None


def _act(call: Call, arguments: argparse.Namespace) -> int:
    request: dict[str, Any] = {} if arguments.tenant is None else {"tenant_id": arguments.tenant}
    if arguments.action == "list":
        return _list(call, request, arguments)
    request["policy_basis"] = arguments.basis
    if arguments.action != "revoke" and (ends := _ends(arguments)) is not None:
        request["expires_at"] = ends.isoformat()
    if arguments.action == "create":
        request |= {"actor_id": arguments.actor, "actor_kind": arguments.kind, "rights": arguments.right}
        made = call("create_key", request | {"roles": arguments.role or ["contributor"]})
        return _show_new(made["key"]["key_id"], made["secret"], arguments)
    request["key_id"] = arguments.key_id
    if arguments.action == "rotate":
        until = datetime.now(UTC) + timedelta(hours=arguments.hours)
        made = call("rotate_key", request | {"old_expires_at": until.isoformat()})
        if not arguments.json:
            print(f"replaces  {arguments.key_id}, which opens until {made['replaced']['expires_at']}")
        return _show_new(made["key"]["key_id"], made["secret"], arguments)
    done = call("revoke_key", request)
    note = "" if done["changed"] else "  (it had ended before)"
    print(json.dumps({"revoked": arguments.key_id}) if arguments.json else f"revoked   {arguments.key_id}{note}")
    return OK


def _show_new(key_id: str, key: str, arguments: argparse.Namespace) -> int:
    if arguments.json:
        print(json.dumps({"key_id": key_id, "key": key}))
    else:
        print(f"id        {key_id}\nkey       {key}\nKeep the key now: it cannot be shown again.")
    return OK


def _list(call: Call, request: dict[str, Any], arguments: argparse.Namespace) -> int:
    rows = [] if arguments.json else [list(_COLUMNS)]
    page: dict[str, Any] = {"limit": 100}
    while True:
        answer = call("list_keys", request | {"include_ended": arguments.all, "pagination": page})
        for key in answer["keys"]:
            if arguments.json:
                print(json.dumps(key))
            else:
                rows.append(_row(key))
        if answer["next_cursor"] is None:
            break
        page = {"limit": 100, "cursor": answer["next_cursor"]}
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows if len(rows) > 1 else ():
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return OK


def _row(key: dict[str, Any]) -> list[str]:
    return [
        key["state"],
        key["key_id"],
        key["tenant_id"],
        key["actor_id"],
        ",".join(key["roles"]) or "-",
        ",".join(key["rights"]) or "-",
        key["created_at"][:16],
        key.get("expires_at", "-")[:16],
        key.get("last_used_at", "-")[:16],
    ]
