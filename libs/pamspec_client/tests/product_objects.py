"""What tests of the client make, and how they take events."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

from pamspec_client import (
    Event,
)
from pamspec_client.requests import CreateRequest


def claim(scope: str, content: object = "x", **more: Any) -> CreateRequest:
    return cast(
        CreateRequest,
        {
            "scope_id": scope,
            "object_type": "claim",
            "canonical_content": content,
            "provenance": {"activity": "test", "source_ref": "test:client"},
            **more,
        },
    )


async def take(events: AsyncIterator[Event], count: int) -> list[Event]:
    found = []
    async with asyncio.timeout(60):
        async for event in events:
            found.append(event)
            if len(found) == count:
                break
    return found
