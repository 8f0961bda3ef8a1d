"""Queries of the one scope that most tests here use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from services.query.tests.door import Door

SCOPE = "workspace:a"


async def names(door: Door, query: dict[str, Any] | None = None, **more: Any) -> list[str]:
    """The ids of a page, without their scheme."""
    found = await door.ok("query", scope_id=SCOPE, query={"kind": "structured", **(query or {})}, **more)
    return [item_name(item) for item in found["items"]]


def item_name(item: dict[str, Any]) -> str:
    envelope = item["envelope"]
    return str(envelope.get("object_id") or envelope["relationship_id"]).partition(":")[2]


async def walk(door: Door, limit: int, **call: Any) -> list[list[str]]:
    """All pages of a query."""
    pages: list[list[str]] = []
    cursor: dict[str, str] = {}
    while True:
        document = {"scope_id": SCOPE, "pagination": {"limit": limit, **cursor}, **call}
        answer = await door.raw("query", orjson.dumps(document))
        assert answer.status == 200, answer.body
        found = orjson.loads(answer.body)
        pages.append([item_name(item) for item in found["items"]])
        if found["next_cursor"] is None:
            return pages
        cursor = {"cursor": found["next_cursor"]}


def flat(pages: Sequence[Sequence[str]]) -> list[str]:
    return [name for page in pages for name in page]


def eq(field: str, value: Any) -> dict[str, Any]:
    return {"field": field, "op": "eq", "value": value}
