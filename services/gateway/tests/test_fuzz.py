"""Requests that were bent at random, through the gateway into the real services of one process.

Whatever comes: an answer by its contract or a refusal in the closed envelope, never an internal error.
"""

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from jsonschema import ValidationError

from pamspec_common import contracts
from pamspec_common.ids import is_id
from services.gateway.tests.whole import SCOPE, Whole

EXAMPLES = Path(__file__).resolve().parents[3] / "contracts" / "examples" / "valid"
BENT_PER_EXAMPLE = 25
ODD: list[Any] = [
    None, True, 0, -1, 2**63, 10**40, 1.5, 1e308, "", " ", "x" * 300, "obj:a\n", "obj:\u0000", "\ud7ff", "scope:%00",
    "'; DROP TABLE core.scope; --", [], [[]], {}, {"$ne": None}, ["a"] * 1001, {"": {}}, "2026-13-01T00:00:00Z",
    "9999-12-31T23:59:60Z", "any", {"whole": True}, [None], "*", "💥" * 255,
]  # fmt: skip
STREAMING = {name for name, one in contracts.operations().items() if one.streams == "answer"}
DOCUMENTS = [name for name, one in contracts.operations().items() if one.public and one.streams != "request"]
PAGED = [
    name
    for name in DOCUMENTS
    if "pagination" in contracts.schema(f"pamspec:operation:{name}:request").get("properties", {})
]
OPERATORS = ("list_parked_entries", "list_tenants")
"""Not for the key of these tests."""
CURSORS: list[Any] = [
    "²", "٣", "1" * 19, "9" * 19, "0" * 30, "a\u0000 b", "agent:a \u0000", "agent:a", "agent:a captain", " ", "\n",
    "💥", "e30", "e30=", "AAAA", "../..", "x" * 16_384, None, 5, True, ["a"], {"": 1}, "",
]  # fmt: skip
MEMBERS = ["colour", "scope_id", "tenant_id", "operation_id", "idempotency_key", "actor", "wait_ms", "as_of"]
NOT_DOCUMENTS = [
    *(b"", b" ", b"null", b"[]", b"1", b'"a"', b"{", b"}", b"{}{}", b"\xff\xfe{}", b"\xef\xbb\xbf{}", b"// c\n{}"),
    *(b'{"a":1,"a":2}', b'{"scope_id":"\\ud800"}', b'{"scope_id":NaN}', b'{"scope_id":1e999}', b"{'scope_id':1}"),
    *(
        b'{"a":' * 200 + b"1" + b"}" * 200,
        b"[" * 100_000,
        b'{"scope_id":"a\x00b"}',
        b'{"wait_ms":' + b"9" * 2000 + b"}",
    ),
]


def bent(document: Any, dice: random.Random) -> Any:
    """The document with one thing changed somewhere."""
    copy = json.loads(json.dumps(document))
    places = list(_places(copy))
    holder, member = dice.choice(places) if places else (copy, "scope_id")
    act = dice.randrange(4)
    if act == 0 and isinstance(holder, dict):
        holder[dice.choice(MEMBERS)] = dice.choice(ODD)
    elif act == 1 and places and isinstance(holder, dict):
        del holder[member]
    else:
        holder[member] = dice.choice(ODD)
    return copy


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for member, below in list(members):
        yield value, member
        yield from _places(below)


def _examples(operation: str) -> list[Any]:
    found = [orjson.loads(path.read_bytes()) for path in sorted((EXAMPLES / f"{operation}.request").glob("*.json"))]
    assert found, f"{operation} has no example"
    return found


def _judge(operation: str, body: bytes, status: int, answer: bytes) -> str | None:
    try:
        document = orjson.loads(answer.splitlines()[0] if status < 400 and operation in STREAMING else answer)
        if status < 400:
            contracts.answer_validator(operation).validate(document)
        else:
            contracts.check("error", document)
    except (ValueError, ValidationError) as problem:
        return f"{operation} {status} {body[:300]!r}: {problem!s:.300}"
    if status >= 500 and not (status == 503 and document["error"]["code"] == "service_unavailable"):
        return f"{operation} {status} {body[:300]!r}"
    return None


@pytest.mark.parametrize("operation", DOCUMENTS)
async def test_bent_requests(whole: Whole, operation: str) -> None:
    dice = random.Random(f"bent {operation}")
    findings: list[str] = []
    for example in _examples(operation):
        bodies = [orjson.dumps(example)]
        for _ in range(BENT_PER_EXAMPLE):
            bodies.append(json.dumps(bent(example, dice)).encode())
        for body in bodies:
            status, answer = await whole.post(operation, body)
            if (finding := _judge(operation, body, status, answer)) is not None:
                findings.append(finding)
    assert not findings, "\n".join(findings)


@pytest.mark.parametrize("operation", DOCUMENTS)
async def test_what_is_no_document(whole: Whole, operation: str) -> None:
    findings = []
    for body in NOT_DOCUMENTS:
        status, answer = await whole.post(operation, body)
        finding = _judge(operation, body, status, answer)
        if finding is None and (status != 400 or orjson.loads(answer)["error"]["code"] != "invalid_request"):
            finding = f"{operation} {status} {body[:100]!r}: {answer[:200]!r}"
        if finding is not None:
            findings.append(finding)
    assert not findings, "\n".join(findings)


@pytest.mark.parametrize("operation", PAGED)
async def test_a_cursor_that_is_not_ours(whole: Whole, operation: str) -> None:
    """Refused, or a place in a list whose cursors are plain numbers or ids; never an internal error."""
    for cursor in CURSORS:
        document = _examples(operation)[0] | {"pagination": {"limit": 5, "cursor": cursor}}
        document.pop("snapshot_id", None)
        if "scope_id" in document:
            document["scope_id"] = SCOPE
        status, answer = await whole.post(operation, document)
        assert (finding := _judge(operation, orjson.dumps(document), status, answer)) is None, finding
        if status == 200:
            assert isinstance(cursor, str), answer
            assert is_id(cursor) or re.fullmatch("[0-9]{1,19}", cursor), (cursor, answer)
        else:
            assert status in (400, 403 if operation in OPERATORS else 404), (cursor, answer)
