"""The arithmetic of the ledger: hash chain, version digests and keyed digests of what may be erased.

Invariant: `entry_hash = SHA-256(0x00, prev_hash, event bytes)`; the first prev_hash is
`SHA-256('pamspec-ledger-1', ledger_id)`; a version's digest covers its stored metadata bytes, and those hold a keyed
digest of each erasable part, so that a value whose salt is erased cannot be guessed back.
"""

from __future__ import annotations

import hashlib


def genesis(ledger_id: bytes) -> bytes:
    """The prev_hash of a scope's first entry; `ledger_id` is the scope's random 16 bytes."""
    return hashlib.sha256(b"pamspec-ledger-1" + ledger_id).digest()


def entry_hash(prev_hash: bytes, event: bytes) -> bytes:
    """The chain hash of an entry after `prev_hash`."""
    return hashlib.sha256(b"\x00" + prev_hash + event).digest()


def version_digest(metadata: bytes) -> str:
    """`sha256:<hex>` over a version's stored metadata bytes; events carry it as payload.version_digest."""
    return "sha256:" + hashlib.sha256(metadata).hexdigest()


def keyed_digest(salt: bytes, part: str, value: bytes) -> str:
    """`hmac-sha256:<hex>` of an erasable part (`content`, `private`) under the version's salt."""
    return Keyed(salt).digest(part, value)


class Keyed:
    """The keyed digests of one salt, of at most 64 bytes.

    HMAC as RFC 2104 writes it, because the two parts of a version then share the padding of its salt and a digest costs
    two calls of SHA-256; the library's call sets up a context for each and takes three times as long.
    """

    __slots__ = ("_inner", "_outer")

    def __init__(self, salt: bytes) -> None:
        if len(salt) > _BLOCK:
            raise ValueError("a salt has at most 64 bytes")
        padded = salt.ljust(_BLOCK, b"\0")
        self._inner, self._outer = padded.translate(_INNER), padded.translate(_OUTER)

    def digest(self, part: str, value: bytes) -> str:
        """As `keyed_digest`."""
        sha256 = hashlib.sha256
        inner = sha256(b"".join((self._inner, _PARTS[part], value))).digest()
        return "hmac-sha256:" + sha256(self._outer + inner).hexdigest()


_PARTS = {"content": b"content\0", "private": b"private\0"}
_BLOCK = 64
_INNER, _OUTER = (bytes(number ^ pad for number in range(256)) for pad in (0x36, 0x5C))
