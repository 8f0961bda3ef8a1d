"""The digest of a sealed snapshot: what it covers and in which form (canonicalization profile `pamspec-snapshot-1`).

Invariant: the digest is `sha256:<hex>` of the SHA-256 of one JSON document in RFC 8785 form: the descriptor without
`digest`, and `entry_hash`, the chain hash of the entry at the watermark in hexadecimal (of the chain's root where the
watermark is 0). That hash follows from every entry before it, and each entry carries the digest of the version that it
made, so the document fixes membership, versions and order; whoever has the ledger can compute it again. Its cost does
not depend on the size of the scope.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from pamspec_common.strict_json import canonical

ALGORITHM = "sha-256"
PROFILE = "pamspec-snapshot-1"


def sealed(descriptor: Mapping[str, Any], entry_hash: bytes) -> dict[str, Any]:
    """A descriptor with its digest; `entry_hash` is that of the entry at its watermark."""
    document = {**descriptor, "digest_algorithm": ALGORITHM, "canonicalization_profile": PROFILE}
    return {**document, "digest": _digest(document, entry_hash)}


def holds(descriptor: Mapping[str, Any], entry_hash: bytes) -> bool:
    """Whether a descriptor is the one that was sealed, on the ledger that has this hash at its watermark."""
    document = {name: value for name, value in descriptor.items() if name != "digest"}
    return descriptor.get("digest") == _digest(document, entry_hash)


def _digest(document: Mapping[str, Any], entry_hash: bytes) -> str:
    covered = canonical({**document, "entry_hash": entry_hash.hex()})
    return "sha256:" + hashlib.sha256(covered).hexdigest()
