"""API keys: how they look, and the keyed hash that alone is stored.

Invariant: a key is shown once, when it is made; at rest there is only HMAC-SHA256 of it under a pepper that lies
outside the database, so that a copy of the database opens nothing.
"""

from __future__ import annotations

import hmac
import secrets

KEY_PREFIX = "pam_"
MIN_KEY_LENGTH = 16
MAX_KEY_LENGTH = 256


def new_key() -> str:
    """A fresh key with 256 random bits."""
    return KEY_PREFIX + secrets.token_urlsafe(32)


def is_key(key: str) -> bool:
    """Whether a text can be a key at all: 16 to 256 visible ASCII characters."""
    return MIN_KEY_LENGTH <= len(key) <= MAX_KEY_LENGTH and key.isascii() and key.isprintable() and " " not in key


def key_hash(pepper: bytes, key: str) -> bytes:
    """The 32 bytes under which a key is stored and found."""
    return hmac.digest(pepper, key.encode(), "sha256")
