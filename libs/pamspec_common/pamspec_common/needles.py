"""Needles: pieces of what an erasure took, by which its scans look for the value itself.

Invariants: a needle is at least 8 characters and no word that our own records are made of, so that what a scan finds is
the value and no coincidence. Needles are stored only sealed, under a key made of the erasure's own salt and of a key
that the database does not have; whoever has one of the two opens nothing, and the closing of the erasure destroys both
the salt and what it sealed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Protocol

import msgspec
import orjson
from nacl.exceptions import CryptoError
from nacl.secret import SecretBox

MOST = 16
"""Needles of one erasure."""
LENGTH = 64
"""Characters of a needle at most: of a longer text its beginning."""
SHORTEST = 8
READ_BYTES = 16 * 1024
"""So much of a value is looked at for needles."""
_OF_CONTENT = 12
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_WORD = re.compile(r"[a-z]+(?:[_-][a-z]+)*|[0-9T:.Z+-]+")
"""Names of members, states and operations; times and numbers."""
_OWN = frozenset({"provenance_id", "recorded_at", "evidence_refs", "source_confidence", "evidence_strength"})
_decoder = msgspec.json.Decoder(list[str])


class Keyed(Protocol):
    """Settings that hold the keys between services."""

    def token_key_bytes(self) -> dict[str, bytes]:
        """The keys by their names; the first is the one in use."""


def needles_of(contents: Iterable[bytes], privates: Iterable[bytes], kept: bytes = b"") -> list[str]:
    """The needles of erased values (JSON, perhaps cut short); nothing that `kept`, what the object has left, holds."""
    left = kept.decode("utf-8", "replace")
    found: dict[str, None] = {}
    for values, most in ((contents, _OF_CONTENT), (privates, MOST)):
        texts = {text for value in values for text in _texts(value)}
        for text in sorted(texts, key=lambda text: (-len(text), text)):
            if len(found) >= most:
                break
            if text not in left:
                found[text] = None
    return list(found)


def _texts(value: bytes) -> Iterable[str]:
    for token in _STRING.findall(value[:READ_BYTES]):
        try:
            text = orjson.loads(token)[:LENGTH].strip()
        except ValueError:
            continue
        if len(text) >= SHORTEST and text not in _OWN and "\0" not in text and not _WORD.fullmatch(text):
            yield text


class NeedleSeal:
    """Seals and opens needles."""

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        self._keys = dict(keys)

    @classmethod
    def of(cls, settings: Keyed) -> NeedleSeal:
        """With keys derived from those between services."""
        return cls(settings.token_key_bytes())

    def seal(self, needles: list[str], salt: bytes) -> bytes | None:
        """The sealed needles; None without a key, and then nothing is kept."""
        if not self._keys or not needles:
            return None
        kid, key = next(iter(self._keys.items()))
        return kid.encode() + b"\0" + SecretBox(_derived(key, salt)).encrypt(orjson.dumps(needles))

    def open(self, sealed: bytes | None, salt: bytes | None) -> list[str] | None:
        """The needles; None where they were not kept, or the key that sealed them is gone."""
        if sealed is None or salt is None:
            return None
        kid, _, rest = sealed.partition(b"\0")
        key = self._keys.get(kid.decode("utf-8", "replace"))
        if key is None:
            return None
        try:
            return _decoder.decode(SecretBox(_derived(key, salt)).decrypt(rest))
        except (CryptoError, msgspec.DecodeError):
            return None


def _derived(key: bytes, salt: bytes) -> bytes:
    return hashlib.blake2b(salt, key=key[:64], person=b"pamspec-needles", digest_size=SecretBox.KEY_SIZE).digest()
