"""How the door reaches the operations: as whoever speaks, one document in, one answer out.

Invariant: the door has this way and no other. A caller is bound to one principal; behind it stand the same
authentication, limits, idempotency and traces as behind `POST /v1/{operation}`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

from pamspec_common import strict_json
from pamspec_common.calls import Answer, refusal
from pamspec_common.errors import InvalidRequest


class Caller(Protocol):
    """The operations, as one principal."""

    async def __call__(self, operation: str, document: bytes) -> Answer:
        """The answer of an operation; refusals are answers too."""


class Refused(Exception):
    """An operation was refused; `error` is the error of the answer."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(error.get("code"))
        self.error = dict(error)


async def answered(caller: Caller, operation: str, arguments: Mapping[str, Any]) -> Answer:
    """The answer of an operation with these arguments; arguments that are no JSON document are refused like any."""
    try:
        _check_numbers(arguments)
        document = strict_json.canonical(dict(arguments))
    except (TypeError, ValueError, RecursionError):
        return refusal(InvalidRequest("The arguments are not strict JSON; send plain objects, texts and numbers."))
    return await caller(operation, document)


def _check_numbers(value: Any) -> None:
    """ValueError for what the parser of a host's message lets pass and JSON does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("no JSON number")
    if isinstance(value, Mapping):
        for one in value.values():
            _check_numbers(one)
    elif isinstance(value, list):
        for one in value:
            _check_numbers(one)


async def document(caller: Caller, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The document of an answer. Refused when it is none."""
    answer = await answered(caller, operation, arguments)
    found: dict[str, Any] = strict_json.loads(answer.body)
    if answer.status >= 400:
        raise Refused(found["error"])
    return found
