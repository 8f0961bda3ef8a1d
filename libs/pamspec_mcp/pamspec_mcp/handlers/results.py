"""An answer of an operation as the result of a tool: structured, as text, and no larger than a host can take.

Invariants: a refusal is a result (`isError`) with the error envelope as it came, never an error of the protocol; what
is left out of a result is reached by its cursor, and the parts of an answer, joined, are its JSON text.
"""

from __future__ import annotations

import json
from typing import Any

import mcp_types as types

from pamspec_common import contracts, strict_json
from pamspec_common.calls import Answer, refusal
from pamspec_common.errors import InvalidRequest, PamspecError
from pamspec_common.operating import Caller, answered
from pamspec_mcp.model import cursors
from pamspec_mcp.model.bounds import Bounds, cursor_fits, page_limit
from pamspec_mcp.model.cursors import BadCursor, Cursor

_PAGE = 50
_HALVINGS = 12
_META = "pamspec/"


def refused(error: PamspecError) -> types.CallToolResult:
    """The result that tells of a refusal by the door itself."""
    return result(refusal(error))


def result(answer: Answer) -> types.CallToolResult:
    """An answer that fits, as it is; its positions stand in `_meta`, since bodies carry none."""
    text = answer.body.decode()
    meta = {_META + name.lower(): value for name, value in answer.headers.items()}
    return types.CallToolResult(
        content=[types.TextContent(text=text)],
        structured_content=json.loads(text),
        is_error=answer.status >= 400,
        _meta=meta or None,
    )


async def bounded(caller: Caller, operation: str, arguments: dict[str, Any], bounds: Bounds) -> types.CallToolResult:
    """The result of an operation: whole, or a shorter page, or the first part of it."""
    answer = await answered(caller, operation, arguments)
    if answer.status < 400 and not bounds.holds(answer.body):
        answer = await _shorter(caller, operation, arguments, answer, bounds)
    if answer.status >= 400 or bounds.holds(answer.body):
        return result(_without_details(answer, bounds))
    return _first_part(operation, arguments, answer, bounds)


async def _shorter(caller: Caller, operation: str, arguments: dict[str, Any], answer: Answer, bounds: Bounds) -> Answer:
    """The same, with as many entries as fit, where the answer comes in pages; else as it is."""
    if operation == "poll":
        return _fewer_events(answer, bounds)
    if contracts.operations()[operation].writes or b'"next_cursor"' not in answer.body:
        return answer
    limit = page_limit(arguments, _PAGE)
    for _ in range(_HALVINGS):
        if limit <= 1 or bounds.holds(answer.body):
            break
        limit = bounds.smaller_page(limit, len(answer.body))
        given = arguments.get("pagination")
        page = {**given, "limit": limit} if isinstance(given, dict) else {"limit": limit}
        answer = await answered(caller, operation, {**arguments, "pagination": page})
    return answer


def _fewer_events(answer: Answer, bounds: Bounds) -> Answer:
    """As many events as fit. Its reader goes on after the last of them and acknowledges no more than it has."""
    document = strict_json.loads(answer.body)
    events = document["events"]
    while len(events) > 1 and not bounds.holds(strict_json.dumps(document)):
        del events[max(1, len(events) // 2) :]
        document["next_after_sequence"] = events[-1]["sequence"]
        document["closed"] = None
        if "envelopes" in document:
            kept = {event.get("version_id") for event in events}
            document["envelopes"] = {key: one for key, one in document["envelopes"].items() if key in kept}
    return Answer(answer.status, strict_json.dumps(document), answer.headers)


def _first_part(operation: str, arguments: dict[str, Any], answer: Answer, bounds: Bounds) -> types.CallToolResult:
    text = answer.body.decode()
    document = json.loads(text)
    if contracts.operations()[operation].writes:
        text = _written(document)
        named = {name: document[name] for name in ("operation_id", "scope_id") if isinstance(document.get(name), str)}
        named = {"scope_id": arguments["scope_id"], **named} if "scope_id" in arguments else named
        cursor = Cursor("get_operation", named, 0, cursors.digest(text), "outcome") if "operation_id" in named else None
    else:
        cursor = Cursor(operation, arguments, 0, cursors.digest(text))
    following = document.get("next_cursor")
    return part(text, cursor, bounds, following if isinstance(following, str) else None, answer.headers)


def part(
    text: str,
    cursor: Cursor | None,
    bounds: Bounds,
    next_page: str | None = None,
    headers: dict[str, str] | None = None,
) -> types.CallToolResult:
    """A part of a text from where the cursor stands, and the cursor of the next."""
    begin = 0 if cursor is None else cursor.begin
    longest = "" if cursor is None else _moved(cursor, len(text)).written()
    piece = bounds.part(text, begin, len(longest) + len(next_page or ""))
    end = begin + len(piece)
    onward = None
    if cursor is not None and end < len(text):
        written = _moved(cursor, end).written()
        onward = written if cursor_fits(written) else None
    told: dict[str, Any] = {"part": piece, "from": begin, "of": len(text), "cursor": onward}
    if next_page is not None:
        told["next_cursor"] = next_page
    return result(Answer(200, strict_json.dumps({"truncated": told}), headers or {}))


def _moved(cursor: Cursor, begin: int) -> Cursor:
    return Cursor(cursor.operation, cursor.arguments, begin, cursor.digest, cursor.member)


async def continued(caller: Caller, written: object, bounds: Bounds) -> types.CallToolResult:
    """The next part of an answer. It asks the operation again, as the caller that asks now."""
    try:
        cursor = cursors.read(written) if isinstance(written, str) else None
    except BadCursor:
        cursor = None
    if cursor is None or not _may_repeat(cursor.operation):
        return refused(InvalidRequest("Send the cursor of the part before, as it came.", details={"field": "cursor"}))
    answer = await answered(caller, cursor.operation, cursor.arguments)
    if answer.status >= 400:
        return result(_without_details(answer, bounds))
    text = answer.body.decode()
    if cursor.member is not None:
        text = _written(json.loads(text).get(cursor.member))
    if cursors.digest(text) != cursor.digest or cursor.begin >= len(text):
        message = "What this cursor goes on with has changed meanwhile; ask the operation anew."
        return refused(InvalidRequest(message, details={"reason": "answer_changed"}))
    return part(text, cursor, bounds)


def _written(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _may_repeat(operation: str) -> bool:
    known = contracts.operations().get(operation)
    return known is not None and known.public and not known.writes and known.streams is None


def _without_details(answer: Answer, bounds: Bounds) -> Answer:
    """A refusal that fits: one whose details are too large goes without them."""
    if answer.status < 400 or bounds.holds(answer.body):
        return answer
    document = strict_json.loads(answer.body)
    document["error"]["details"] = {"reason": "details_too_large"}
    return Answer(answer.status, strict_json.dumps(document), answer.headers)
