"""The secrets of webhooks: made, kept, sealed, and signed with as Standard Webhooks describes.

A secret is shown where it is made and nowhere else. In the database the secrets of a subscription are one document,
sealed with a key that is derived for that subscription alone where the operator has set keys; without any, whoever
reads the database can sign.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
from nacl.exceptions import CryptoError
from nacl.secret import SecretBox

SECRET_BYTES = 32
MAX_LIVE = 5
"""Secrets that may sign at once."""
_PREFIX = "whsec_"
_PLAIN = b"\0"


class Secret(msgspec.Struct, frozen=True):
    """A key of signatures, and until when it signs (seconds since 1970); the newest has no end."""

    key: bytes
    until: float | None = None


_decoder = msgspec.json.Decoder(list[Secret])


class CannotOpen(Exception):
    """The key with which secrets were sealed is not among the keys that are set."""


@dataclass(frozen=True)
class Sealing:
    """Keys by kid; the first seals, all open."""

    keys: Mapping[str, bytes]

    def seal(self, secrets: Sequence[Secret], owner: tuple[str, str]) -> bytes:
        """The stored form of a subscription's secrets."""
        plain = msgspec.json.encode(list(secrets))
        for kid, key in self.keys.items():
            return kid.encode() + _PLAIN + SecretBox(_derived(key, owner)).encrypt(plain)
        return _PLAIN + plain

    def open(self, stored: bytes, owner: tuple[str, str]) -> list[Secret]:
        """The secrets again; CannotOpen when their key is gone or they are another subscription's."""
        kid, _, rest = stored.partition(_PLAIN)
        if not kid:
            return _decoder.decode(rest)
        try:
            return _decoder.decode(SecretBox(_derived(self.keys[kid.decode()], owner)).decrypt(rest))
        except (KeyError, CryptoError) as error:
            raise CannotOpen from error


def _derived(key: bytes, owner: tuple[str, str]) -> bytes:
    salted = hashlib.sha256(key).digest()
    return hashlib.blake2b("\0".join(owner).encode(), key=salted, digest_size=SecretBox.KEY_SIZE).digest()


def shown(key: bytes) -> str:
    """A secret as its owner gets it."""
    return _PREFIX + base64.b64encode(key).decode()


def rotated(secrets: Sequence[Secret], key: bytes, now: float, until: float) -> list[Secret]:
    """The secrets with a new one, the earlier ones ending at `until` at the latest."""
    kept = [Secret(one.key, min(until, one.until or until)) for one in alive(secrets, now)]
    return [Secret(key), *(one for one in kept if one.until is not None and one.until > now)]


def alive(secrets: Sequence[Secret], now: float) -> list[Secret]:
    """Those that sign now."""
    return [one for one in secrets if one.until is None or one.until > now]


def message_id(*parts: str | int) -> str:
    """The id of a message: the same for every attempt at the same events."""
    return "msg_" + hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:32]


def signed_headers(secrets: Sequence[Secret], name: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The three headers of Standard Webhooks, with a signature for each secret."""
    signed = b"%b.%d.%b" % (name.encode(), timestamp, body)
    signatures = (base64.b64encode(hmac.digest(one.key, signed, "sha256")).decode() for one in secrets)
    return {
        "webhook-id": name,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
    }
