"""What the commands about encryption at rest do to the store: each step is a transaction, so that all can be repeated.

A step works under the lock of its scope, like a write, and takes no row that an erasure has emptied.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TYPE_CHECKING

import asyncpg
from pydantic import ValidationError
from pydantic_settings import SettingsError

from pamspec_common.postgres import scoped
from pamspec_common.sealing import KeyRing, WrongKey
from pamspec_common.settings import CommonSettings

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]
else:
    Connection = asyncpg.Connection

STEP = 500
_NUL = b"\\u0000"

KNOWN_SQL = "SELECT kid, proof FROM core.key_encryption_key ORDER BY created_at, kid"
KNOW_SQL = "INSERT INTO core.key_encryption_key (kid, proof) VALUES ($1, $2) ON CONFLICT DO NOTHING"
LOCK_SQL = "SELECT FROM core.scope_head WHERE scope_key = $1 FOR NO KEY UPDATE"
CLEAR_SQL = """
SELECT p.ledger_seq, p.salt, p.content, p.private FROM core.version_private p
WHERE p.scope_key = $1 AND p.ledger_seq > $2 AND p.salt IS NOT NULL AND NOT EXISTS (
  SELECT FROM core.data_key k WHERE k.scope_key = p.scope_key AND k.ledger_seq = p.ledger_seq)
ORDER BY p.ledger_seq LIMIT $3
"""
SEAL_SQL = """
WITH sealed AS MATERIALIZED (
  SELECT * FROM unnest($2::bigint[], $3::text[], $4::bytea[], $5::bytea[], $6::bytea[], $7::bytea[], $8::text[])
    AS k (ledger_seq, kid, wrapped, salt, content, private, compared)),
keys AS (
  INSERT INTO core.data_key (scope_key, ledger_seq, kid, wrapped) SELECT $1, ledger_seq, kid, wrapped FROM sealed),
spans AS (
  UPDATE core.version_span s SET private = k.compared::jsonb FROM sealed k
  WHERE s.scope_key = $1 AND s.from_seq = k.ledger_seq)
UPDATE core.version_private p SET salt = k.salt, content = k.content, private = k.private FROM sealed k
WHERE p.scope_key = $1 AND p.ledger_seq = k.ledger_seq
"""
OLD_KEYS_SQL = """
SELECT ledger_seq, kid, wrapped FROM core.data_key
WHERE scope_key = $1 AND ledger_seq > $2 AND kid <> $3 ORDER BY ledger_seq LIMIT $4
"""
REWRAP_SQL = """
UPDATE core.data_key d SET kid = k.kid, wrapped = k.wrapped
FROM unnest($2::bigint[], $3::text[], $4::bytea[]) AS k (ledger_seq, kid, wrapped)
WHERE d.scope_key = $1 AND d.ledger_seq = k.ledger_seq
"""
COUNTS_SQL = """
SELECT count(*) FILTER (WHERE p.salt IS NOT NULL) AS versions, count(k.kid) AS sealed,
  count(k.kid) FILTER (WHERE k.kid <> $2) AS older
FROM core.version_private p LEFT JOIN core.data_key k USING (scope_key, ledger_seq) WHERE p.scope_key = $1
"""
RETIRE_SQL = "DELETE FROM core.key_encryption_key WHERE kid = $1"

Step = Callable[[Connection, KeyRing, int, int], Awaitable[tuple[int, int]]]
"""Works on a scope after a position, and answers how much it did and the next position."""


def ring_of_environment() -> KeyRing:
    """The keys of PAMSPEC_ENCRYPTION_KEYS; WrongKey where they can't be used."""
    try:
        return CommonSettings().key_ring()
    except SettingsError as error:
        raise WrongKey(f"a variable is not the JSON that it has to be: {error}") from None
    except ValidationError:
        raise
    except ValueError as error:
        raise WrongKey(str(error)) from None


async def fitting(dsn: str) -> None:
    """WrongKey where the keys of the environment do not fit those that the store was sealed with."""
    conn = await asyncpg.connect(dsn)
    try:
        await check(conn, ring_of_environment())
    finally:
        await conn.close()


async def check(conn: Connection, ring: KeyRing) -> list[str]:
    """The kids that sealed something, the oldest first; WrongKey where the ring does not fit them."""
    rows = await conn.fetch(KNOWN_SQL)
    ring.check({row["kid"]: row["proof"] for row in rows})
    return [row["kid"] for row in rows]


async def known(conn: Connection, ring: KeyRing) -> list[str]:
    """The same, and from now on the key that seals is one of those that the store knows."""
    kids = await check(conn, ring)
    if ring:
        await conn.execute(KNOW_SQL, ring.sealing, ring.proof(ring.sealing))
    return kids


async def seal_step(conn: Connection, ring: KeyRing, scope_key: int, after: int) -> tuple[int, int]:
    """Seal the next versions of a scope that are in clear."""
    rows = await conn.fetch(CLEAR_SQL, scope_key, after, STEP)
    if not rows:
        return 0, after
    found = [ring.seal(scope_key, row["ledger_seq"], row["salt"], row["content"], row["private"]) for row in rows]
    compared = [_compared(row["private"]) for row in rows]
    columns = [list(column) for column in zip(*found, strict=True)]
    await conn.execute(SEAL_SQL, scope_key, [row["ledger_seq"] for row in rows], *columns, compared)
    return len(rows), rows[-1]["ledger_seq"]


async def rewrap_step(conn: Connection, ring: KeyRing, scope_key: int, after: int) -> tuple[int, int]:
    """Wrap the next data keys of a scope that an older key wraps with the one that seals."""
    rows = await conn.fetch(OLD_KEYS_SQL, scope_key, after, ring.sealing, STEP)
    if not rows:
        return 0, after
    found = [ring.rewrap(scope_key, row["ledger_seq"], row["kid"], row["wrapped"]) for row in rows]
    columns = [list(column) for column in zip(*found, strict=True)]
    await conn.execute(REWRAP_SQL, scope_key, [row["ledger_seq"] for row in rows], *columns)
    return len(rows), rows[-1]["ledger_seq"]


async def each_scope(conn: Connection, ring: KeyRing, scope_keys: list[int], step: Step) -> AsyncGenerator[int, None]:
    """Take a step until nothing is left, scope by scope; how many rows each did."""
    for scope_key in scope_keys:
        done, after = 1, 0
        while done:
            async with scoped(conn, [scope_key]):
                await conn.execute(LOCK_SQL, scope_key)
                done, after = await step(conn, ring, scope_key, after)
            yield done


async def counts(conn: Connection, ring: KeyRing, scope_key: int) -> tuple[int, int, int]:
    """Versions of a scope with content, those that are sealed, and those whose key an older one wraps."""
    async with scoped(conn, [scope_key]):
        row = await conn.fetchrow(COUNTS_SQL, scope_key, ring.sealing if ring else "")
    assert row is not None
    return row["versions"], row["sealed"], row["older"]


async def retire(conn: Connection, kid: str) -> bool:
    """Forget a key-encryption key; False where it still wraps something, or was never known."""
    try:
        return await conn.execute(RETIRE_SQL, kid) == "DELETE 1"
    except asyncpg.ForeignKeyViolationError:
        return False


def _compared(private: bytes | None) -> str | None:
    return None if private is None or _NUL in private else private.decode()
