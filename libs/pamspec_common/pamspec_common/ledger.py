"""The arithmetic of the ledger: hash chain, version digests and keyed digests of what may be erased.

Invariant: `entry_hash = SHA-256(0x00, prev_hash, event bytes)`; the first prev_hash is
`SHA-256('pamspec-ledger-1', ledger_id)`; a version's digest covers its stored metadata bytes, and those hold a keyed
digest of each erasable part, so that a value whose salt is erased cannot be guessed back.
"""

from __future__ import annotations

import hashlib
import hmac


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
    return "hmac-sha256:" + hmac.digest(salt, part.encode() + b"\x00" + value, "sha256").hex()
