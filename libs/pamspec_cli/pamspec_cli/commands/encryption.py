"""`pamspec encryption new-key|status|seal|rewrap|retire`: encryption at rest, for whoever runs the store."""

import argparse
import asyncio
import base64
import secrets

from pamspec_cli import sealed
from pamspec_cli.commands.verify import connected, database_url, every_scope
from pamspec_cli.connection import FAILED, OK, Misused, reporting
from pamspec_cli.data import DataDirectory, chosen
from pamspec_common.sealing import KEY_BYTES, KeyRing, WrongKey

SUMMARY = "encryption at rest: make keys, seal what is in clear, change to a new key"


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("new-key", help="print a new key for PAMSPEC_ENCRYPTION_KEYS; it is kept nowhere")
    for name, text in (
        ("status", "how much is sealed, and with which key"),
        ("seal", "seal what was stored in clear; can be stopped and called again"),
        ("rewrap", "wrap every data key with the first key of PAMSPEC_ENCRYPTION_KEYS; the same"),
        ("retire", "forget a key that wraps nothing any more"),
    ):
        action = actions.add_parser(name, help=text)
        action.add_argument("--data", metavar="DIR", help="the data directory (PAMSPEC_DATA, else ./.data)")
        if name == "retire":
            action.add_argument("kid", help="the name of the key")


@reporting
def run(arguments: argparse.Namespace) -> int:
    """0 when it is done."""
    if arguments.action == "new-key":
        print(base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode())
        return OK
    try:
        return asyncio.run(_run(arguments, sealed.ring_of_environment()))
    except WrongKey as error:
        raise Misused(str(error)) from error


async def _run(arguments: argparse.Namespace, ring: KeyRing) -> int:
    if arguments.action in ("seal", "rewrap") and not ring:
        raise Misused("set PAMSPEC_ENCRYPTION_KEYS as the services have it")
    async with connected(database_url(DataDirectory(chosen(arguments.data)))) as conn:
        kids = await sealed.known(conn, ring)
        scopes = [scope_key async for _, _, scope_key in every_scope(conn, None)]
        if arguments.action == "status":
            return await _status(conn, ring, kids, scopes)
        if arguments.action == "retire":
            if not await sealed.retire(conn, arguments.kid):
                raise Misused(f"{arguments.kid} wraps keys, or is not known: see  pamspec encryption status")
            print(f"{arguments.kid} is known no more: take it out of PAMSPEC_ENCRYPTION_KEYS")
            return OK
        step = sealed.seal_step if arguments.action == "seal" else sealed.rewrap_step
        done = 0
        async for some in sealed.each_scope(conn, ring, scopes, step):
            done += some
        print(f"{done} versions")
    return OK


async def _status(conn: sealed.Connection, ring: KeyRing, kids: list[str], scopes: list[int]) -> int:
    found = [await sealed.counts(conn, ring, scope_key) for scope_key in scopes]
    versions, closed, older = (sum(column) for column in zip(*found, strict=True)) if found else (0, 0, 0)
    print(f"keys: {', '.join(kids) or 'none'}; the first of the setting seals: {ring.sealing if ring else 'none'}")
    print(f"{versions} versions with content, {closed} sealed, {older} of them under an older key")
    return OK if closed == versions or not ring else FAILED
