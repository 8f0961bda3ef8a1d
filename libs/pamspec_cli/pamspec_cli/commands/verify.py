"""`pamspec verify`: every scope's ledger, chain and content, read from the store itself, beside its anchors."""

import argparse
import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg

from pamspec_cli import anchors, sealed, workers
from pamspec_cli.connection import FAILED, OK, Misused, reporting
from pamspec_cli.data import DataDirectory, chosen
from pamspec_cli.servers.postgres import SUPERUSER
from pamspec_cli.servers.process import LOOPBACK
from pamspec_cli.stack import DATABASE
from pamspec_common.checkpoints import Checkpoint
from pamspec_common.postgres import scoped
from pamspec_common.sealing import WrongKey, opening
from pamspec_common.verification import pages, walk
from pamspec_common.verification.anchors import Anchor
from pamspec_common.verification.rules import Chain

SUMMARY = "check every entry of the ledgers: order, chain and content"
_PAGE = 1000
_LOST = "the store has no such ledger, though its entries were signed"

TENANTS_SQL = "SELECT tenant_id FROM core.tenant ORDER BY tenant_id"
SCOPES_SQL = "SELECT scope_key, scope_id FROM core.list_scopes($1, $2, $3)"


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("--scope", action="append", help="only this scope; several times")
    parser.add_argument("--tenant", help="only this tenant")
    parser.add_argument("--data", metavar="DIR", help="the data directory (PAMSPEC_DATA, else ./.data)")
    parser.add_argument(
        "--jobs",
        type=_jobs,
        default=workers.default_jobs(),
        metavar="N",
        help="processes for long ledgers (one a core)",
    )
    parser.add_argument("--json", action="store_true", help="JSON instead of lines for people")


def _jobs(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 64:
        raise argparse.ArgumentTypeError("from 1 to 64 processes")
    return number


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
    data = DataDirectory(chosen(arguments.data))
    verdict = _Verdict()
    dsn = database_url(data)
    with workers.runner(dsn, arguments.jobs) as runner:
        await _check_all(arguments, data, dsn, runner, verdict)
    missing = wanted - verdict.scope_ids
    if missing:
        raise Misused(f"no such scope: {', '.join(sorted(missing))}")
    print(json.dumps(verdict.document(), indent=2) if arguments.json else "\n".join(verdict.lines()))
    return OK if verdict.whole else FAILED


async def _check_all(
    arguments: argparse.Namespace, data: DataDirectory, dsn: str, runner: walk.Runner | None, verdict: "_Verdict"
) -> None:
    wanted = set(arguments.scope or ())
    async with connected(dsn) as connection, anchors.places(data) as places:
        async for tenant_id, scope_id, scope_key in every_scope(connection, arguments.tenant):
            if wanted and scope_id not in wanted:
                continue
            check = await check_scope(connection, scope_id, scope_key, places, tenant_id, runner)
            verdict.add(check, keep=arguments.json)
            if not arguments.json:
                _show(tenant_id, check)
        if not wanted and not arguments.tenant:
            verdict.lost = places.unknown(verdict.ledger_ids)


@dataclass
class _Verdict:
    """What all scopes together say."""

    scopes: int = 0
    entries: int = 0
    broken: int = 0
    unanchored: int = 0
    scope_ids: set[str] = field(default_factory=set)
    ledger_ids: set[str] = field(default_factory=set)
    documents: list[dict[str, object]] = field(default_factory=list)
    lost: list[Checkpoint] = field(default_factory=list)
    """What was signed of ledgers that the store does not have."""

    @property
    def whole(self) -> bool:
        """Whether nothing is wrong."""
        return not self.broken and not self.lost

    def add(self, check: Chain, *, keep: bool) -> None:
        """Count a scope; its document is kept for the JSON form only."""
        self.scopes += 1
        self.entries += check.trust.last_seq
        self.broken += bool(check.problems)
        self.unanchored += check.trust.last_seq > 0 and all(anchor.status != "ok" for anchor in check.anchors)
        self.scope_ids.add(check.trust.scope_id)
        self.ledger_ids.add(check.trust.ledger_id.hex())
        if keep:
            self.documents.append(check.document())

    def document(self) -> dict[str, object]:
        """The verdict as JSON."""
        lost = [
            {
                "scope_id": checkpoint.scope_id,
                "ledger_id": checkpoint.ledger_id,
                "size": checkpoint.size,
                "made_at": checkpoint.made_at,
                "kind": "ledger_missing",
                "detail": _LOST,
            }
            for checkpoint in self.lost
        ]
        return {"ok": self.whole, "scopes": self.documents, "missing_ledgers": lost}

    def lines(self) -> list[str]:
        """The verdict for people."""
        found = [
            f"BROKEN {item.scope_id}, entry {item.size}: ledger_missing: {_LOST} ({item.ledger_id}, signed at"
            f" {item.made_at})"
            for item in self.lost
        ]
        if self.unanchored:
            found.append(f"{self.unanchored} scopes have no anchor that could be compared: their end is not proved")
        verdict = "all as it was committed" if self.whole else "NOT as it was committed"
        return [*found, f"{self.scopes} scopes, {self.entries} entries: {verdict}"]


@asynccontextmanager
async def connected(dsn: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    """A connection to the store; Misused when it does not answer, or is sealed with keys that are not set here."""
    try:
        ring = sealed.ring_of_environment()
        connection = await asyncpg.connect(dsn, record_class=opening(ring))
    except WrongKey as error:
        raise Misused(str(error)) from None
    except (OSError, asyncpg.PostgresError) as error:
        raise Misused(f"the store does not answer ({type(error).__name__}): check that it runs") from error
    try:
        await sealed.check(connection, ring)
        yield connection
    except WrongKey as error:
        raise Misused(str(error)) from None
    finally:
        await connection.close()


async def every_scope(
    connection: "asyncpg.Connection[asyncpg.Record]", tenant: str | None
) -> AsyncIterator[tuple[str, str, int]]:
    tenants = [tenant] if tenant else [row["tenant_id"] for row in await connection.fetch(TENANTS_SQL)]
    for tenant_id in tenants:
        after = ""
        while rows := await connection.fetch(SCOPES_SQL, tenant_id, after, _PAGE):
            for row in rows:
                yield tenant_id, row["scope_id"], row["scope_key"]
            after = rows[-1]["scope_id"]


async def check_scope(
    connection: "asyncpg.Connection[asyncpg.Record]",
    scope_id: str,
    scope_key: int,
    places: "anchors.Places | None" = None,
    tenant_id: str = "",
    runner: walk.Runner | None = None,
) -> Chain:
    """The whole check of one scope, up to its head of now; no snapshot is held, so that it hinders no upkeep."""
    async with scoped(connection, [scope_key]):
        trust = await pages.trust(connection, scope_key)
        if trust is None:
            raise Misused(f"{scope_id} is not visible to this login: use the one of an administrator")
        held = [] if places is None else await places.read(tenant_id, scope_id, trust.ledger_id)
        return await walk.verify(connection, scope_key, held, runner)


def _show(tenant_id: str, check: Chain) -> None:
    mark = "ok    " if not check.problems else "BROKEN"
    scope_id = check.trust.scope_id
    places = ", ".join(f"{anchor.place} {_anchor(anchor)}" for anchor in check.anchors)
    shown = f"; anchors: {places}" if places else ""
    print(f"{mark} {tenant_id}  {scope_id}  {check.trust.last_seq} entries, {check.versions} versions{shown}")
    for problem in check.problems:
        print(f"       {scope_id}, entry {problem.sequence}: {problem.kind}: {problem.detail}")


def _anchor(anchor: Anchor) -> str:
    return f"{anchor.size} ok" if anchor.status == "ok" else anchor.status.replace("_", " ")
