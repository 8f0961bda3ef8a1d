"""Identifiers: how they look, how they are minted, and the tokens that stand for them in bus subjects.

Invariant: ids are compared byte for byte and match the whole of the pattern in S19; minted ids are `<scheme>:<uuid7>`,
so ids minted later sort later within a millisecond's resolution.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import time
from typing import Annotated

import msgspec

MAX_ID_LENGTH = 255
ID_PATTERN = r"^[A-Za-z][A-Za-z0-9+.\-]*:[A-Za-z0-9+._:\-/]+\Z"
_ID = re.compile(ID_PATTERN)

Id = Annotated[str, msgspec.Meta(pattern=ID_PATTERN, max_length=MAX_ID_LENGTH)]
"""A msgspec type for an identifier field (S19)."""

_TOKEN_LENGTH = 26
_DIGITS = 18
_SALT_BYTES = 32
_READ = 512


class _Entropy:
    """Random bytes and digits, drawn from the system in large reads: one read per id costs more than the id."""

    def __init__(self) -> None:
        self._drop()
        os.register_at_fork(after_in_child=self._drop)

    def _drop(self) -> None:
        self._digits, self._digits_at = "", 0
        self._bytes, self._bytes_at = b"", 0

    def digits(self) -> str:
        """18 hexadecimal digits."""
        start = self._digits_at
        if start >= len(self._digits):
            self._digits, start = os.urandom(_DIGITS * _READ // 2).hex(), 0
        self._digits_at = start + _DIGITS
        return self._digits[start : start + _DIGITS]

    def salt(self) -> bytes:
        """32 bytes."""
        start = self._bytes_at
        if start >= len(self._bytes):
            self._bytes, start = os.urandom(_SALT_BYTES * _READ), 0
        self._bytes_at = start + _SALT_BYTES
        return self._bytes[start : start + _SALT_BYTES]


_entropy = _Entropy()
_VARIANT = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}


def uuid7() -> str:
    """A version 7 UUID in its text form (RFC 9562): 48 bits of Unix milliseconds, then random bits."""
    ms = f"{time.time_ns() // 1_000_000:012x}"
    digits = _entropy.digits()
    return f"{ms[:8]}-{ms[8:]}-7{digits[:3]}-{_VARIANT[digits[3]]}{digits[3:6]}-{digits[6:]}"


def uuid7_of(ms: int, digits: str) -> str:
    """The version 7 UUID of given Unix milliseconds and at least 18 given hexadecimal digits."""
    time_part = f"{ms:012x}"
    return f"{time_part[:8]}-{time_part[8:]}-7{digits[:3]}-{_VARIANT[digits[3]]}{digits[3:6]}-{digits[6:18]}"


def mint(scheme: str) -> str:
    """A new identifier `<scheme>:<uuid7>`; schemes: obj ver evt rel dlg sub snap prov op (S19)."""
    return f"{scheme}:{uuid7()}"


def salt() -> bytes:
    """32 random bytes: the key of a version's erasable digests."""
    return _entropy.salt()


def is_id(value: object) -> bool:
    """Whether a value is an identifier by S19."""
    return isinstance(value, str) and len(value) <= MAX_ID_LENGTH and _ID.match(value) is not None


def subject_token(tenant_id: str, id_: str = "") -> str:
    """The bus-subject token of (tenant, id): lower-case base32 of SHA-256(tenant NUL id), first 26 characters.

    The tenant's own token has an empty id.
    """
    digest = hashlib.sha256(f"{tenant_id}\0{id_}".encode()).digest()
    return base64.b32encode(digest).decode().lower()[:_TOKEN_LENGTH]


def short_hash(*parts: str) -> bytes:
    """16 bytes that stand for a tuple of strings in a unique index (length-prefixed SHA-256, cut)."""
    text = "".join([f"{len(part)}:{part}" for part in parts])
    return hashlib.sha256(text.encode()).digest()[:16]
