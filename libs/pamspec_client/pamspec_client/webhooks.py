"""Receiving a webhook: is it from the service, is it fresh, and what does it bring.

The signature is that of Standard Webhooks: HMAC-SHA256 over `id.timestamp.body` under the secret that subscribing
showed. Verify the bytes of the body as they came; a body that was decoded and encoded again has other bytes.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from pamspec_client.errors import ClientError, ProtocolError
from pamspec_client.frames import Frame
from pamspec_client.models import Closed, Event

TOLERANCE_S = 300.0
_PREFIX = "whsec_"


class InvalidSignature(ClientError):
    """The request is not from the service, or too old: answer 401 and look at nothing of it."""


class _Body(msgspec.Struct):
    subscription_id: str
    frames: list[Frame]


_decoder = msgspec.json.Decoder(_Body)


@dataclass(frozen=True)
class Delivery:
    """What a verified request brings. Answer 2xx once it is safe: only then delivery goes on.

    Delivered at least once, in ledger order: a copy has an event_id, or a sequence, that was seen before.
    """

    message_id: str
    subscription_id: str
    events: list[Event]
    """In ledger order, each with its envelope where the subscription includes content."""
    closed: Closed | None
    """The end of the subscription: nothing follows."""


def verify(
    secret: str | Sequence[str],
    headers: Mapping[str, str],
    body: bytes,
    *,
    tolerance_s: float = TOLERANCE_S,
    now: float | None = None,
) -> Delivery:
    """The delivery in a request whose signature holds under one of the secrets.

    `headers` are those of the request, in any case; `now` is the time in seconds since 1970, by default this machine's.
    Raises InvalidSignature for what is not signed, or was signed longer ago or later than the tolerance; ProtocolError
    where the signature holds and the body is no delivery; ValueError for a secret that is none.
    """
    given = {name.lower(): value for name, value in headers.items()}
    name, stamp, signatures = (given.get(f"webhook-{part}", "") for part in ("id", "timestamp", "signature"))
    keys = [_key(one) for one in ([secret] if isinstance(secret, str) else secret)]
    if not (stamp.isascii() and stamp.isdigit() and len(stamp) < 16):
        raise InvalidSignature("webhook-timestamp is missing or no number of seconds")
    if abs((time.time() if now is None else now) - int(stamp)) > tolerance_s:
        raise InvalidSignature("webhook-timestamp is too far from now; a replay, or a clock that is wrong")
    if not _holds(keys, b"%b.%b.%b" % (name.encode(), stamp.encode(), body), signatures):
        raise InvalidSignature("no signature holds under this secret")
    try:
        found = _decoder.decode(body)
    except msgspec.DecodeError as error:
        raise ProtocolError(f"no delivery came: {error}") from None
    events = [event for frame in found.frames if (event := frame.decoded) is not None]
    closed = next((frame.closed for frame in found.frames if frame.closed is not None), None)
    return Delivery(name, found.subscription_id, events, closed)


def _holds(keys: Sequence[bytes], signed: bytes, signatures: str) -> bool:
    """Whether one of the signatures is right; each comparison takes constant time."""
    given = [one.removeprefix("v1,").encode() for one in signatures.split(" ") if one.startswith("v1,")]
    wanted = [base64.b64encode(hmac.digest(key, signed, "sha256")) for key in keys]
    return any(hmac.compare_digest(one, other) for one in given for other in wanted)


def _key(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not key:
        raise ValueError("a secret is whsec_ and base64, as subscribing showed it")
    return key
