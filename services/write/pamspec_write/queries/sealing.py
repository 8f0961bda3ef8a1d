"""New versions as they are stored where a key-encryption key is set: sealed, each with a key of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from pamspec_common.postgres import Connection, ring_of
from pamspec_common.sealing import KeyRing
from pamspec_write.model.rows import (
    NULL,
    VERSION_CONTENT,
    VERSION_PRIVATE,
    VERSION_PROJECTION,
    VERSION_SALT,
    Rows,
)

KNOW_KEY_SQL = "INSERT INTO core.key_encryption_key (kid, proof) VALUES ($1, $2) ON CONFLICT DO NOTHING"

BINARY = "x"
"""How a value begins that travels as hexadecimal; JSON never does."""
_NUL = "\\u0000"


class DataKeys(NamedTuple):
    """The columns of the keys of versions, and of what queries compare of their private halves."""

    scope_keys: list[int]
    sequences: list[int]
    kids: list[str]
    wrapped: list[bytes]
    private: list[str | None]


async def know_keys(conn: Connection) -> None:
    """Let the store know the key that seals from now on, so that nobody takes another for it."""
    ring = ring_of(conn)
    if ring:
        await conn.execute(KNOW_KEY_SQL, ring.sealing, ring.proof(ring.sealing))


def sealed(ring: KeyRing, rows: Rows) -> tuple[Rows, DataKeys]:
    """The rows with their versions sealed, and the keys to store; the same rows, and none, where no key is set."""
    keys = DataKeys([], [], [], [], [])
    if not ring:
        return rows, keys
    versions = {}
    for (scope_key, sequence), row in rows.versions.items():
        version = versions[scope_key, sequence] = list(row)
        if version[VERSION_SALT] == NULL:
            continue
        salt, content, private = bytes.fromhex(row[VERSION_SALT]), row[VERSION_CONTENT], row[VERSION_PRIVATE]
        found = ring.seal(scope_key, sequence, salt, _bytes(content), _bytes(private))
        version[VERSION_SALT] = found.salt.hex()
        version[VERSION_CONTENT] = _binary(found.content)
        version[VERSION_PRIVATE] = _binary(found.private)
        if version[VERSION_PROJECTION] == NULL:
            version[VERSION_PROJECTION] = content
        keys.scope_keys.append(scope_key)
        keys.sequences.append(sequence)
        keys.kids.append(found.kid)
        keys.wrapped.append(found.wrapped)
        keys.private.append(None if private == NULL or _NUL in private else private)
    return replace(rows, versions=versions), keys


def _bytes(value: str) -> bytes | None:
    return None if value == NULL else value.encode()


def _binary(value: bytes | None) -> str:
    return NULL if value is None else BINARY + value.hex()
