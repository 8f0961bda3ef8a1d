"""Forward-only migrations: numbered SQL files per service, each run once, each in a transaction of its own.

Invariant: one migrator at a time per database (a transaction-scoped advisory lock, so that a transaction-pooling proxy
cannot strand it); a file that has landed is immutable, which its stored digest checks. What each asks of the
version that uses the database stands beside it (`schema`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

import asyncpg

from pamspec_common.schema import floor_of

_LOCK = 0x70616D73
_NAME = re.compile(r"^\d{4}_[a-z0-9_]+\.sql$")

LEDGER_SQL = """
CREATE TABLE IF NOT EXISTS public.pamspec_migration (
  source text NOT NULL, name text NOT NULL, digest text NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (source, name));
ALTER TABLE public.pamspec_migration ADD COLUMN IF NOT EXISTS floor integer;
GRANT SELECT ON public.pamspec_migration TO PUBLIC;
"""
"""Every service reads it before it uses the database; it names files and no content."""
SELECT_APPLIED_SQL = "SELECT name, digest FROM public.pamspec_migration WHERE source = $1"
INSERT_APPLIED_SQL = "INSERT INTO public.pamspec_migration (source, name, digest, floor) VALUES ($1, $2, $3, $4)"


class MigrationChanged(Exception):
    """A migration that was applied has another text now; add a new file instead of editing it."""


async def migrate(dsn: str, sources: Sequence[tuple[str, Path]]) -> list[str]:
    """Apply what is missing, in the order of `sources` and of the file names; answers `source/name` of each applied.

    `dsn` names a role that may create roles, schemas and extensions. Idempotent; concurrent calls wait for each other.
    """
    conn = await asyncpg.connect(dsn, server_settings={"application_name": "pamspec-migrate"})
    try:
        # In a transaction of its own: services that ask meanwhile must not wait for a long migration.
        async with conn.transaction():
            await conn.execute(f"SELECT pg_advisory_xact_lock({_LOCK})")
            await conn.execute(LEDGER_SQL)
        applied: list[str] = []
        for source, folder in sources:
            for path in files(folder):
                if await _apply(conn, source, path):
                    applied.append(f"{source}/{path.name}")
        return applied
    finally:
        await conn.close()


async def pending(conn: asyncpg.Connection[asyncpg.Record], sources: Sequence[tuple[str, Path]]) -> list[str]:
    """Which migrations a database still lacks."""
    missing: list[str] = []
    for source, folder in sources:
        known = {row["name"] for row in await conn.fetch(SELECT_APPLIED_SQL, source)}
        missing += [f"{source}/{path.name}" for path in files(folder) if path.name not in known]
    return missing


def files(folder: Path) -> list[Path]:
    """The migration files of a folder in order; ValueError for a name that is not NNNN_name.sql or a gap."""
    found = sorted(folder.glob("*.sql"))
    for number, path in enumerate(found, start=1):
        if not _NAME.match(path.name) or int(path.name[:4]) != number:
            raise ValueError(f"migration {path.name} is not named NNNN_name.sql or leaves a gap")
    return found


async def _apply(conn: asyncpg.Connection[asyncpg.Record], source: str, path: Path) -> bool:
    text = path.read_text()
    digest = hashlib.sha256(text.encode()).hexdigest()
    async with conn.transaction():
        await conn.execute(f"SELECT pg_advisory_xact_lock({_LOCK})")
        known = {row["name"]: row["digest"] for row in await conn.fetch(SELECT_APPLIED_SQL, source)}
        if path.name in known:
            if known[path.name] != digest:
                raise MigrationChanged(f"{source}/{path.name} was changed after it was applied")
            return False
        await conn.execute(text)
        await conn.execute(INSERT_APPLIED_SQL, source, path.name, digest, floor_of(text))
        return True
