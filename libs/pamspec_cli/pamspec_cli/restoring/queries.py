"""The statements of a restore, as an administrator of the store."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import asyncpg

from pamspec_cli.restoring.model import Subject, Version
from pamspec_common.postgres import scoped

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]
else:
    Connection = asyncpg.Connection

RUNNING_SQL = """
SELECT DISTINCT application_name FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE 'pamspec-%' ORDER BY 1
"""
SCOPES_SQL = """
SELECT s.scope_key, s.tenant_id, s.scope_id, s.ledger_id, h.ledger_epoch, h.last_seq, d.scope_key IS NOT NULL AS deleted
FROM core.scope s JOIN core.scope_head h USING (scope_key) LEFT JOIN core.scope_deletion d USING (scope_key)
WHERE s.scope_key > $1 ORDER BY s.scope_key LIMIT $2
"""
RAISE_EMPTY_SQL = "UPDATE core.scope_head SET ledger_epoch = $1, revision = revision + 1 WHERE last_seq = 0"
KNOWN_SQL = """
SELECT erasure_id FROM core.erasure WHERE erasure_id = ANY($1::text[])
UNION SELECT erasure_id FROM core.replayed_erasure WHERE erasure_id = ANY($1::text[])
"""
REPLAYED_SQL = """
INSERT INTO core.replayed_erasure (erasure_id) SELECT unnest($1::text[]) ON CONFLICT DO NOTHING
"""
SUBJECTS_SQL = """
SELECT s.object_id, s.version_id, s.availability_state FROM core.version_span s
WHERE s.scope_key = $1 AND s.object_id = ANY($2::text[]) AND s.to_seq = 9223372036854775807
"""
HELD_SQL = """
SELECT v.object_id, v.version_id, v.version_seq
FROM core.version v JOIN core.version_private p USING (scope_key, ledger_seq)
WHERE v.scope_key = $1 AND v.object_id = ANY($2::text[]) AND p.salt IS NOT NULL ORDER BY v.version_seq
"""
_PAGE = 1000


class Scope(NamedTuple):
    """A scope of the store."""

    scope_key: int
    tenant_id: str
    scope_id: str
    ledger_id: bytes
    ledger_epoch: int
    last_seq: int
    deleted: bool


async def running(conn: Connection) -> list[str]:
    """The services that are connected to the store."""
    return [row[0].removeprefix("pamspec-") for row in await conn.fetch(RUNNING_SQL)]


async def every_scope(conn: Connection) -> list[Scope]:
    """All of them, deleted ones too."""
    found: list[Scope] = []
    while rows := await conn.fetch(SCOPES_SQL, found[-1].scope_key if found else 0, _PAGE):
        found += [Scope(*row) for row in rows]
    return found


async def raise_empty(conn: Connection, epoch: int) -> None:
    """Scopes without an entry enter the epoch too."""
    await conn.execute(RAISE_EMPTY_SQL, epoch)


async def known(conn: Connection, erasure_ids: Collection[str]) -> set[str]:
    """Those that the store has, or that an earlier restore has looked at."""
    return {row[0] for row in await conn.fetch(KNOWN_SQL, list(erasure_ids))}


async def replayed(conn: Connection, erasure_ids: Sequence[str]) -> None:
    """They are done, or there is nothing left of them to do."""
    await conn.execute(REPLAYED_SQL, list(erasure_ids))


async def subjects(conn: Connection, scope_key: int, ids: Collection[str]) -> Mapping[str, Subject]:
    """Of a scope's objects and relationships by these ids, what the store still has."""
    wanted = list(ids)
    async with scoped(conn, [scope_key], read_only=True):
        heads = {row["object_id"]: row for row in await conn.fetch(SUBJECTS_SQL, scope_key, wanted)}
        rows = await conn.fetch(HELD_SQL, scope_key, wanted)
    held: dict[str, list[Version]] = {name: [] for name in heads}
    for row in rows:
        current = heads[row["object_id"]]["version_id"] == row["version_id"]
        held[row["object_id"]].append(Version(row["version_id"], row["version_seq"], current))
    return {
        name: Subject(row["version_id"], row["availability_state"] == "deleted", held[name])
        for name, row in heads.items()
    }
