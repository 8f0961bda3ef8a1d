"""What schemathesis is told of this service: ids of things that are there, and not to wait.

Only values that keep their schema are replaced, so what is meant to break it still does.
"""

from __future__ import annotations

import re
from typing import Any

import schemathesis
from schemathesis import HookContext, SerializationContext

SCOPE = "workspace:garden"
_ID = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:[A-Za-z0-9+._:\-/]{1,200}")
_LONGEST_WAIT_MS = 30_000


@schemathesis.hook
def map_body(context: HookContext, body: Any) -> Any:
    """A body about the scope that is there."""
    return _here(body)


@schemathesis.hook
def map_query(context: HookContext, query: Any) -> Any:
    """The same of query parameters."""
    return _here(query)


def _here(members: Any) -> Any:
    if not isinstance(members, dict):
        return members
    wait = members.get("wait_ms")
    if isinstance(wait, int) and not isinstance(wait, bool) and 20 < wait <= _LONGEST_WAIT_MS:
        members["wait_ms"] = 20
    scope = members.get("scope_id")
    if isinstance(scope, str) and _ID.fullmatch(scope):
        members["scope_id"] = SCOPE
    return members


@schemathesis.serializer("application/x-ndjson")
def lines(context: SerializationContext, value: Any) -> bytes:
    """The lines of an import are text, whatever it holds."""
    return (value if isinstance(value, str) else str(value)).encode("utf-8", "replace")
