"""The verifier of webhooks, against signatures that are made here by hand."""

import base64
import hashlib
import hmac
import json
import re
import time
from pathlib import Path

import pytest

from pamspec_client import ProtocolError
from pamspec_client.webhooks import InvalidSignature, verify

KEY = bytes(range(32))
SECRET = "whsec_" + base64.b64encode(KEY).decode()
OTHER = "whsec_" + base64.b64encode(b"o" * 32).decode()
NOW = 1_780_000_000
CLOSED = {"closed": {"reason": "unsubscribed", "last_delivered_sequence": 7}, "ledger_epoch": 1}
EVENT = {
    "event_id": "evt:1",
    "operation_id": "op:1",
    "event_type": "object_created",
    "scope_id": "workspace:a",
    "sequence": 7,
    "recorded_at": "2026-03-01T09:30:00.000000Z",
    "actor": {"actor_id": "agent:a", "actor_kind": "agent"},
    "object_id": "obj:1",
    "version_id": "ver:1",
    "payload": {},
}


def signed(body: bytes, *, name: str = "msg_1", at: int = NOW, key: bytes = KEY) -> dict[str, str]:
    digest = hmac.new(key, f"{name}.{at}.".encode() + body, hashlib.sha256).digest()
    signature = "v1," + base64.b64encode(digest).decode()
    return {"Webhook-Id": name, "webhook-timestamp": str(at), "WEBHOOK-SIGNATURE": signature}


def body_of(*frames: object) -> bytes:
    return json.dumps({"subscription_id": "sub:1", "frames": list(frames)}).encode()


def test_a_delivery_is_read_under_its_signature() -> None:
    body = body_of({"event": EVENT, "prev_sequence": 6, "ledger_epoch": 1})
    found = verify(SECRET, signed(body), body, now=NOW + 200)
    assert (found.message_id, found.subscription_id, found.closed) == ("msg_1", "sub:1", None)
    assert [(event.sequence, event.event_id) for event in found.events] == [(7, "evt:1")]
    ended = body_of(CLOSED)
    last = verify([OTHER, SECRET], signed(ended), ended, now=NOW)
    assert last.events == []
    assert last.closed is not None
    assert (last.closed.reason, last.closed.last_delivered_sequence) == ("unsubscribed", 7)


def test_the_example_of_the_specification_holds() -> None:
    headers = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,AAAA v2,x v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    with pytest.raises(ProtocolError):
        verify("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", headers, b'{"test": 2432232314}', now=1614265330)


def test_everything_else_is_refused() -> None:
    body = body_of(CLOSED)
    good = signed(body)
    for headers, secret, sent, now in [
        (good, OTHER, body, NOW),
        (good, SECRET, body + b" ", NOW),
        (good, SECRET, body, NOW + 301),
        (good, SECRET, body, NOW - 301),
        (good | {"Webhook-Id": "msg_2"}, SECRET, body, NOW),
        (good | {"webhook-timestamp": str(NOW + 1)}, SECRET, body, NOW),
        (good | {"webhook-timestamp": "now"}, SECRET, body, NOW),
        (good | {"webhook-timestamp": "\u0661"}, SECRET, body, NOW),
        (good | {"WEBHOOK-SIGNATURE": good["WEBHOOK-SIGNATURE"].replace("v1,", "v2,")}, SECRET, body, NOW),
        (good | {"WEBHOOK-SIGNATURE": "v1,\u00e9"}, SECRET, body, NOW),
        ({}, SECRET, body, NOW),
        (good, [], body, NOW),
    ]:
        with pytest.raises(InvalidSignature):
            verify(secret, headers, sent, now=now)
    for bad in ("whsec_?", "", "whsec_"):
        with pytest.raises(ValueError, match="whsec_"):
            verify(bad, good, body, now=NOW)
    with pytest.raises(ProtocolError):
        verify(SECRET, signed(b"[]"), b"[]", now=NOW)


def test_the_clock_is_this_machines_by_default() -> None:
    body = body_of(CLOSED)
    assert verify(SECRET, signed(body, at=int(time.time())), body).closed
    with pytest.raises(InvalidSignature):
        verify(SECRET, signed(body, at=int(time.time()) - 3600), body)


def test_the_example_of_the_readme_runs() -> None:
    text = (Path(__file__).parents[1] / "README.md").read_text()
    (example,) = [one for one in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "webhooks" in one]
    names: dict[str, object] = {}
    exec(example, names)
    body = body_of({"event": EVENT, "prev_sequence": 6, "ledger_epoch": 1})
    received = names["received"]
    assert callable(received)
    assert received(SECRET, signed(body, at=int(time.time())), body) == 204
    assert received(OTHER, signed(body, at=int(time.time())), body) == 401
