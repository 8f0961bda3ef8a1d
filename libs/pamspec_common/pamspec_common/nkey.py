"""Keys of NATS as texts (nkeys): a prefix that tells the kind, 32 bytes, and a checksum, in base32.

Invariant: a text of another kind, or with a wrong letter, is refused with ValueError; messages never show a seed.
"""

from __future__ import annotations

import base64
import binascii
import os
from enum import IntEnum

_SEED = 18 << 3
_LENGTH = 32


class Kind(IntEnum):
    """What a key is for; the value is its prefix byte."""

    ACCOUNT = 0
    SERVER = 13 << 3
    USER = 20 << 3
    CURVE = 23 << 3
    """X25519, for encryption (xkey)."""


def new_seed(kind: Kind) -> str:
    """A fresh seed."""
    return seed_text(kind, os.urandom(_LENGTH))


def seed_text(kind: Kind, raw: bytes) -> str:
    """The text of a seed: of an account SA..., a user SU..., a curve key SX..."""
    return _text(bytes((_SEED | kind >> 5, (kind & 31) << 3)) + raw)


def seed_bytes(seed: str, kind: Kind) -> bytes:
    """The 32 bytes of a seed of this kind."""
    data = _bytes(seed)
    if len(data) != _LENGTH + 2 or data[0] & 0xF8 != _SEED or (data[0] & 7) << 5 | data[1] >> 3 != kind:
        raise ValueError(f"no seed of a key for {kind.name.lower()}")
    return data[2:]


def public_text(kind: Kind, raw: bytes) -> str:
    """The text of a public key: of an account A..., a server N..., a user U..., a curve key X..."""
    return _text(bytes((kind,)) + raw)


def public_bytes(key: str, kind: Kind) -> bytes:
    """The 32 bytes of a public key of this kind."""
    data = _bytes(key)
    if len(data) != _LENGTH + 1 or data[0] != kind:
        raise ValueError(f"no public key of the kind {kind.name.lower()}")
    return data[1:]


def _text(data: bytes) -> str:
    return base64.b32encode(data + binascii.crc_hqx(data, 0).to_bytes(2, "little")).rstrip(b"=").decode("ascii")


def _bytes(text: str) -> bytes:
    try:
        data = base64.b32decode(text + "=" * (-len(text) % 8))
    except ValueError:
        raise ValueError("no key of NATS: it is not base32") from None
    if len(data) < 3 or binascii.crc_hqx(data[:-2], 0).to_bytes(2, "little") != data[-2:]:
        raise ValueError("no key of NATS: its checksum is wrong")
    return data[:-2]
