"""Cursors: where the next page starts, in a form that only this service can make.

Invariant: a cursor is a pure function of what it holds (no nonce, no time), so that equal answers have equal bytes
(S17); its HMAC covers the request it belongs to, the scope and the principal, so that it opens no other page. It holds
the ledger epoch and the position that the first page read, to which every later page goes back.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pamspec_common.errors import InvalidRequest
from pamspec_common.strict_json import canonical

_MAC_LENGTH = 16
_UNBOUND = frozenset({"pagination", "operation_id", "idempotency_key", "min_sequence", "wait_ms", "ledger_epoch"})


class Cursor(msgspec.Struct, array_like=True, frozen=True):
    """A page's start."""

    epoch: int
    position: int
    after: list[Any]
    count: tuple[int, bool] | None = None
    """What the first page counted, where it was asked to."""
    elsewhere: tuple[tuple[str, int], ...] = ()
    """The positions of the other scopes that the first page entered."""


_decoder = msgspec.msgpack.Decoder(Cursor)
_encoder = msgspec.msgpack.Encoder()


def binding(operation: str, principal: Sequence[str], document: Mapping[str, Any]) -> bytes:
    """What a cursor belongs to: the operation, who asks and the request but for its page and its name."""
    shape = {name: value for name, value in document.items() if name not in _UNBOUND}
    return hashlib.sha256(canonical([operation, list(principal), shape])).digest()


class Cursors:
    """Makes and reads cursors under keys that all processes of the service share; the first key signs."""

    def __init__(self, token_keys: Sequence[bytes]) -> None:
        self._keys = [hmac.digest(key, b"pamspec-cursor-1", "sha256") for key in token_keys]

    def write(self, cursor: Cursor, bound_to: bytes) -> str:
        """The text of a cursor."""
        payload = _encoder.encode(cursor)
        return base64.urlsafe_b64encode(_mac(self._keys[0], bound_to, payload) + payload).rstrip(b"=").decode()

    def read(self, text: str, bound_to: bytes) -> Cursor:
        """The cursor of a text; InvalidRequest when it was made for another request or altered."""
        foreign = InvalidRequest(
            "The cursor belongs to another request, scope or principal, or was altered; start again without a cursor.",
            details={"field": "pagination.cursor"},
        )
        try:
            raw = base64.b64decode(text.encode() + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, UnicodeEncodeError):
            raise foreign from None
        mac, payload = raw[:_MAC_LENGTH], raw[_MAC_LENGTH:]
        if not any(hmac.compare_digest(mac, _mac(key, bound_to, payload)) for key in self._keys):
            raise foreign
        try:
            return _decoder.decode(payload)
        except msgspec.DecodeError:
            raise foreign from None


def _mac(key: bytes, bound_to: bytes, payload: bytes) -> bytes:
    return hmac.digest(key, bound_to + payload, "sha256")[:_MAC_LENGTH]
