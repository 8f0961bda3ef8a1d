"""Encryption at rest: what can be erased of a version, sealed with a key of that version alone.

The data key is random, seals the three parts of one version once, and is stored apart from them, wrapped by a
key-encryption key that the database never sees. Erasing the version destroys its data key. Every seal is bound to its
place, so rows that are moved or swapped do not open. XChaCha20-Poly1305; docs/adr/0014-encryption-at-rest.md.

Whoever reads selects from the view `core.version_value`, whose sealed values carry what opens them, and the record
class of the pool opens them where they are taken from a row.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import asyncpg
from nacl.bindings import (
    crypto_aead_xchacha20poly1305_ietf_decrypt,
    crypto_aead_xchacha20poly1305_ietf_encrypt,
)
from nacl.exceptions import CryptoError
from nacl.utils import random

from pamspec_common.errors import InternalError, ServiceUnavailable

KEY_BYTES = 32
_NONCE_BYTES, _TAG_BYTES = 24, 16
WRAPPED_BYTES = _NONCE_BYTES + KEY_BYTES + _TAG_BYTES
SEALED = b"\x01"
"""How stored content and private halves begin that are sealed; JSON never does."""
CARRIED = b"\x02PAMSEAL"
"""How a value of core.version_value begins that is sealed: then its part, scope_key, ledger_seq, and key."""
_PROOF = b"pamspec key-encryption key"
_PARTS = (b"s", b"c", b"p")
_HEAD = len(CARRIED) + 1


class Sealed(NamedTuple):
    """The parts of a version as they are stored, and the key of that version as it is stored apart from them."""

    kid: str
    wrapped: bytes
    salt: bytes
    content: bytes | None
    private: bytes | None


class WrongKey(Exception):
    """The key-encryption keys that are set do not fit those that the store was sealed with; it says what to do."""


class KeyRing:
    """Key-encryption keys by kid; the first seals, all open."""

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        self._keys = dict(keys)

    def __bool__(self) -> bool:
        return bool(self._keys)

    @property
    def sealing(self) -> str:
        """The kid of the key that seals."""
        return next(iter(self._keys))

    def seal(
        self, scope_key: int, ledger_seq: int, salt: bytes, content: bytes | None, private: bytes | None
    ) -> Sealed:
        """A version's parts under a key of its own."""
        key, place = random(KEY_BYTES), _place(scope_key, ledger_seq)
        parts = [
            None if value is None else SEALED + _encrypt(value, part + place, _nonce(part), key)
            for part, value in zip(_PARTS, (salt, content, private), strict=True)
        ]
        assert parts[0] is not None
        return Sealed(self.sealing, self._wrap(key, place, self.sealing), parts[0], parts[1], parts[2])

    def rewrap(self, scope_key: int, ledger_seq: int, kid: str, wrapped: bytes) -> tuple[str, bytes]:
        """The same data key under the key that seals now."""
        place = _place(scope_key, ledger_seq)
        return self.sealing, self._wrap(self._unwrap(wrapped, place, kid), place, self.sealing)

    def open(self, carried: bytes) -> bytes:
        """What a value of core.version_value holds.

        ServiceUnavailable without the key that it names, InternalError where it or its place was changed.
        """
        part, place = carried[_HEAD - 1 : _HEAD], carried[_HEAD : _HEAD + 16]
        size = int.from_bytes(carried[_HEAD + 16 : _HEAD + 20])
        kid = carried[_HEAD + 20 : _HEAD + 20 + size].decode()
        rest = carried[_HEAD + 20 + size :]
        value = rest[WRAPPED_BYTES + len(SEALED) :]
        try:
            return _decrypt(value, part + place, _nonce(part), self._unwrap(rest[:WRAPPED_BYTES], place, kid))
        except CryptoError:
            raise InternalError("Stored content does not open with its key: it or its row was changed.") from None

    def proof(self, kid: str) -> bytes:
        """What the store keeps of a key, to know it again."""
        nonce = random(_NONCE_BYTES)
        return nonce + _encrypt(_PROOF, kid.encode(), nonce, self._keys[kid])

    def check(self, known: Mapping[str, bytes]) -> None:
        """WrongKey unless every key that the store knows, with its proof, is here."""
        for kid, proof in known.items():
            if kid not in self._keys:
                raise WrongKey(
                    f"memory is sealed with the key {kid!r}, which PAMSPEC_ENCRYPTION_KEYS does not name: add it again"
                )
            try:
                _decrypt(proof[_NONCE_BYTES:], kid.encode(), proof[:_NONCE_BYTES], self._keys[kid])
            except CryptoError:
                raise WrongKey(
                    f"the key {kid!r} of PAMSPEC_ENCRYPTION_KEYS is not the one that memory was sealed with:"
                    " set that one, and give a new key a new name"
                ) from None

    def _wrap(self, key: bytes, place: bytes, kid: str) -> bytes:
        nonce = random(_NONCE_BYTES)
        return nonce + _encrypt(key, b"k" + place + kid.encode(), nonce, self._keys[kid])

    def _unwrap(self, wrapped: bytes, place: bytes, kid: str) -> bytes:
        if kid not in self._keys:
            raise ServiceUnavailable(f"Content is sealed with the key {kid!r}, which this service was not given.")
        return _decrypt(wrapped[_NONCE_BYTES:], b"k" + place + kid.encode(), wrapped[:_NONCE_BYTES], self._keys[kid])


def decoded(kid: str, text: bytes) -> bytes:
    """A key-encryption key from its base64; ValueError without its value."""
    try:
        key = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise ValueError(
            f"the key {kid!r} of PAMSPEC_ENCRYPTION_KEYS is not 32 bytes in base64: pamspec encryption new-key"
        )
    return key


class Opening(asyncpg.Record):
    """A row whose sealed values are opened when they are taken from it; see `opening`."""

    ring: KeyRing

    def __getitem__(self, key: Any) -> Any:
        value = super().__getitem__(key)
        return self.ring.open(value) if type(value) is bytes and value.startswith(CARRIED) else value

    def __iter__(self) -> Iterator[Any]:
        return iter([self[place] for place in range(len(self))])


def opening(ring: KeyRing) -> type[asyncpg.Record]:
    """The class of rows of a pool: the driver's own where there is no key."""
    return type("Opening", (Opening,), {"ring": ring}) if ring else asyncpg.Record


def _place(scope_key: int, ledger_seq: int) -> bytes:
    return scope_key.to_bytes(8, signed=True) + ledger_seq.to_bytes(8, signed=True)


def _nonce(part: bytes) -> bytes:
    """A data key seals each part of one version once, so the part makes the nonce."""
    return part.rjust(_NONCE_BYTES, b"\0")


def _encrypt(value: bytes, bound_to: bytes, nonce: bytes, key: bytes) -> bytes:
    return bytes(crypto_aead_xchacha20poly1305_ietf_encrypt(value, bound_to, nonce, key))


def _decrypt(value: bytes, bound_to: bytes, nonce: bytes, key: bytes) -> bytes:
    return bytes(crypto_aead_xchacha20poly1305_ietf_decrypt(value, bound_to, nonce, key))
