"""`pamspec verify`: every scope's ledger, its chain and its content, read from the store itself."""

import argparse
import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg

from pamspec_cli.connection import FAILED, OK, Misused, reporting
from pamspec_cli.data import DataDirectory, chosen
from pamspec_cli.servers.postgres import SUPERUSER
from pamspec_cli.servers.process import LOOPBACK
from pamspec_cli.stack import DATABASE
from pamspec_common.errors import ScopeNotFound
from pamspec_common.postgres import scoped
from pamspec_common.verification import walk
from pamspec_common.verification.rules import Chain

SUMMARY = "check every entry of the ledgers: order, chain and content"
_PAGE = 1000

TENANTS_SQL = "SELECT tenant_id FROM core.tenant ORDER BY tenant_id"
SCOPES_SQL = "SELECT scope_key, scope_id FROM core.list_scopes($1, $2, $3)"


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("--scope", action="append", help="only this scope; several times")
    parser.add_argument("--tenant", help="only this tenant")
    parser.add_argument("--data", metavar="DIR", help="the data directory (PAMSPEC_DATA, else ./.data)")
    parser.add_argument("--json", action="store_true", help="JSON instead of lines for people")


@reporting
def run(arguments: argparse.Namespace) -> int:
    """0 when everything is as it was committed."""
    return asyncio.run(_verify(arguments))


def database_url(data: DataDirectory) -> str:
    """PAMSPEC_DATABASE_URL, else the embedded server of a running `pamspec up`; Misused when there is none."""
    given = os.environ.get("PAMSPEC_DATABASE_URL")
    if given:
        return given
    password, port = data.path / "postgres" / "superuser.password", data.port("postgres")
    if data.owner() is None:
        raise Misused(f"nothing runs on {data.path}: start it with  pamspec up  or set PAMSPEC_DATABASE_URL")
    if port is None or not password.is_file():
        raise Misused(f"the service on {data.path} uses a database of its own: set PAMSPEC_DATABASE_URL as there")
    return f"postgresql://{SUPERUSER}:{_line(password)}@{LOOPBACK}:{port}/{DATABASE}"


def _line(file: Path) -> str:
    return file.read_text(encoding="ascii").strip()


async def _verify(arguments: argparse.Namespace) -> int:
    wanted = set(arguments.scope or ())
    checked: list[Chain] = []
    async with _connected(database_url(DataDirectory(chosen(arguments.data)))) as connection:
        async for tenant_id, scope_id, scope_key in _scopes(connection, arguments.tenant):
            if wanted and scope_id not in wanted:
                continue
            checked.append(await check_scope(connection, scope_id, scope_key))
            if not arguments.json:
                _show(tenant_id, checked[-1])
    missing = wanted - {check.trust.scope_id for check in checked}
    if missing:
        raise Misused(f"no such scope: {', '.join(sorted(missing))}")
    whole = all(not check.problems for check in checked)
    if arguments.json:
        print(json.dumps({"ok": whole, "scopes": [check.document() for check in checked]}, indent=2))
    else:
        entries = sum(check.trust.last_seq for check in checked)
        verdict = "all as it was committed" if whole else "NOT as it was committed"
        print(f"{len(checked)} scopes, {entries} entries: {verdict}")
    return OK if whole else FAILED


@asynccontextmanager
async def _connected(dsn: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    try:
        connection = await asyncpg.connect(dsn)
    except (OSError, asyncpg.PostgresError) as error:
        raise Misused(f"the store does not answer ({type(error).__name__}): check that it runs") from error
    try:
        yield connection
    finally:
        await connection.close()


async def _scopes(
    connection: "asyncpg.Connection[asyncpg.Record]", tenant: str | None
) -> AsyncIterator[tuple[str, str, int]]:
    tenants = [tenant] if tenant else [row["tenant_id"] for row in await connection.fetch(TENANTS_SQL)]
    for tenant_id in tenants:
        after = ""
        while rows := await connection.fetch(SCOPES_SQL, tenant_id, after, _PAGE):
            for row in rows:
                yield tenant_id, row["scope_id"], row["scope_key"]
            after = rows[-1]["scope_id"]


async def check_scope(connection: "asyncpg.Connection[asyncpg.Record]", scope_id: str, scope_key: int) -> Chain:
    """The whole check of one scope, up to its head of now; no snapshot is held, so that it hinders no upkeep."""
    async with scoped(connection, [scope_key]):
        try:
            return await walk.verify(connection, scope_key)
        except ScopeNotFound:
            raise Misused(f"{scope_id} is not visible to this login: use the one of an administrator") from None


def _show(tenant_id: str, check: Chain) -> None:
    mark = "ok    " if not check.problems else "BROKEN"
    scope_id = check.trust.scope_id
    print(f"{mark} {tenant_id}  {scope_id}  {check.trust.last_seq} entries, {check.versions} versions")
    for problem in check.problems:
        print(f"       {scope_id}, entry {problem.sequence}: {problem.kind}: {problem.detail}")
