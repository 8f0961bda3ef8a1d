"""Proofs of a ledger, checked where nothing of the service is trusted: SHA-256, and one signature.

Keep a checkpoint that you have checked. Whatever the service proves against a later one is then part of the same
ledger, provided that the later one extends yours (`Proof.extends`). Trees and proofs are those of RFC 9162.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pamspec_client.models import Document


class Checkpoint(Document, kw_only=True):
    """What a ledger was at a size, signed."""

    scope_id: str
    ledger_id: str
    ledger_epoch: int
    size: int
    head_hash: str
    root: str
    made_at: str
    key_id: str
    signature: str

    def signed_bytes(self) -> bytes:
        """What the signature covers."""
        members: dict[str, Any] = json.loads(self.raw)
        del members["signature"]
        text = json.dumps(members, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return b"pamspec-checkpoint-1\n" + text.encode()

    def is_signed_by(self, public_keys: Mapping[str, str]) -> bool:
        """Whether one of these keys (key id -> base64), which you trust, has signed it.

        Needs the extra `pamspec-client[proofs]`.
        """
        from nacl.exceptions import BadSignatureError
        from nacl.signing import VerifyKey

        key = public_keys.get(self.key_id)
        if key is None:
            return False
        try:
            VerifyKey(base64.b64decode(key)).verify(self.signed_bytes(), base64.b64decode(self.signature))
        except (BadSignatureError, ValueError):
            return False
        return True


class CheckpointAnswer(Document, kw_only=True):
    """The newest checkpoint of a scope, and the keys that the service names for it."""

    checkpoint_raw: msgspec.Raw = msgspec.field(name="checkpoint")
    public_keys: dict[str, str]

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The checkpoint; None before the first."""
        return None if bytes(self.checkpoint_raw) == b"null" else Checkpoint.of(self.checkpoint_raw)


class Inclusion(msgspec.Struct, kw_only=True):
    """Where an entry stands in the signed ledger."""

    sequence: int
    previous_hash: str
    entry_hash: str
    path: list[str]


class Consistency(msgspec.Struct, kw_only=True):
    """How an earlier ledger is the beginning of the signed one."""

    from_: int = msgspec.field(name="from")
    path: list[str]


class Proof(Document, kw_only=True):
    """Proofs against a checkpoint; check its signature too."""

    checkpoint_raw: msgspec.Raw = msgspec.field(name="checkpoint")
    inclusion: Inclusion | None = None
    consistency: Consistency | None = None

    @property
    def checkpoint(self) -> Checkpoint:
        """What the proofs are against."""
        return Checkpoint.of(self.checkpoint_raw)

    def includes(self, event: bytes) -> bool:
        """Whether this event, byte for byte as it was delivered, is the entry that the proof is about."""
        found = self.inclusion
        if found is None:
            return False
        entry = hashlib.sha256(b"\x00" + _hash(found.previous_hash) + event).digest()
        if entry != _hash(found.entry_hash):
            return False
        leaf = hashlib.sha256(b"\x00" + entry).digest()
        checkpoint = self.checkpoint
        path = [_hash(item) for item in found.path]
        return _root_of_leaf(leaf, found.sequence - 1, checkpoint.size, path) == _hash(checkpoint.root)

    def extends(self, earlier: Checkpoint) -> bool:
        """Whether the ledger of an earlier checkpoint of the same ledger is the beginning of this one."""
        found, later = self.consistency, self.checkpoint
        if found is None or (earlier.ledger_id, earlier.size) != (later.ledger_id, found.from_):
            return False
        path = [_hash(item) for item in found.path]
        return _extends(earlier.size, later.size, path, _hash(earlier.root), _hash(later.root))


class VerifiedLedger(Document, kw_only=True):
    """What the service's own verification says of a scope."""

    scope_id: str
    ok: bool
    entries: int
    versions: int
    erased_versions: int
    head_hash: str
    first_problem: dict[str, Any] | None = None
    problems: list[dict[str, Any]] = msgspec.field(default_factory=list)
    anchors: list[dict[str, Any]] = msgspec.field(default_factory=list)


def _hash(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("sha256:"))


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


def _root_of_leaf(leaf: bytes, index: int, size: int, path: Sequence[bytes]) -> bytes | None:
    """Section 2.1.3.2."""
    if not 0 <= index < size:
        return None
    number, last, found = index, size - 1, leaf
    for item in path:
        if last == 0:
            return None
        if number & 1 or number == last:
            found = _node(item, found)
            while not number & 1 and number:
                number, last = number >> 1, last >> 1
        else:
            found = _node(found, item)
        number, last = number >> 1, last >> 1
    return found if last == 0 else None


def _extends(first: int, second: int, path: Sequence[bytes], first_root: bytes, second_root: bytes) -> bool:
    """Section 2.1.4.2."""
    if not 0 < first <= second:
        return False
    if first == second:
        return not path and first_root == second_root
    hashes = list(path) if first & (first - 1) else [first_root, *path]
    number, last = first - 1, second - 1
    while number & 1:
        number, last = number >> 1, last >> 1
    if not hashes:
        return False
    old = new = hashes[0]
    for item in hashes[1:]:
        if last == 0:
            return False
        if number & 1 or number == last:
            old, new = _node(item, old), _node(item, new)
            while not number & 1 and number:
                number, last = number >> 1, last >> 1
        else:
            new = _node(new, item)
        number, last = number >> 1, last >> 1
    return last == 0 and old == first_root and new == second_root
