"""Watched resources: a subscription of the caller for each scope, and a notification for each resource that an event
touched.

Invariants: what is told comes from the subscription service, with the rights that the watcher has at that moment, and
says nothing but the address; whoever stops watching, or vanishes, leaves no subscription and no task behind.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from pamspec_common.operating import Caller, Refused, document
from pamspec_mcp.model import uris
from pamspec_mcp.model.uris import Place

_log = logging.getLogger(__name__)

_WAIT_MS = 25_000
_PAUSE_S = 1.0
_CLOSE_S = 4.0
MOST_ADDRESSES = 1000
"""How many resources one session may watch."""

Notify = Callable[[str], Awaitable[None]]
"""Tells the host that a resource changed."""

# Only an erasure changes a version that was written.
_ERASURES = frozenset(("object_redacted", "object_deleted"))


class TooMany(Exception):
    """A session watches as many resources as it may."""


class Followings:
    """What one host watches."""

    def __init__(self) -> None:
        self._scopes: dict[str, _Following] = {}
        self._opening = asyncio.Lock()
        self._closed = False

    async def add(self, caller: Caller, uri: str, place: Place, notify: Notify) -> None:
        """Watch a resource that the caller may read. Refused when it may not; TooMany beyond the limit."""
        if sum(len(one.places) for one in self._scopes.values()) >= MOST_ADDRESSES:
            raise TooMany
        operation, arguments = place.request()
        await document(caller, operation, arguments)
        async with self._opening:
            if self._closed:
                return
            following = self._scopes.get(place.scope_id)
            if following is None or following.ended:
                following = _Following(caller, place.scope_id, notify)
                await following.open()
                self._scopes[place.scope_id] = following
            following.places[uri] = place

    async def remove(self, uri: str) -> None:
        """Watch a resource no more."""
        async with self._opening:
            for scope_id, following in list(self._scopes.items()):
                if following.places.pop(uri, None) is not None and not following.places:
                    del self._scopes[scope_id]
                    await following.close()

    async def close(self) -> None:
        """Watch nothing more, and leave nothing behind."""
        async with self._opening:
            self._closed = True
            scopes, self._scopes = self._scopes, {}
            await asyncio.gather(*(one.close() for one in scopes.values()))


class _Following:
    """The events of one scope."""

    def __init__(self, caller: Caller, scope_id: str, notify: Notify) -> None:
        self._caller, self._scope_id, self._notify = caller, scope_id, notify
        self.places: dict[str, Place] = {}
        self.ended = False
        self._subscription = ""
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Subscribe, and begin to listen. Refused when the caller may not."""
        opened = await document(self._caller, "subscribe", {"scope_id": self._scope_id, "channel": "poll"})
        self._subscription = opened["subscription_id"]
        self._task = asyncio.create_task(self._run(opened["start_sequence"]), name=f"mcp {self._subscription}")

    async def _run(self, position: int) -> None:
        asked = {"subscription_id": self._subscription, "wait_ms": _WAIT_MS}
        try:
            while True:
                try:
                    page = await document(self._caller, "poll", {**asked, "after_sequence": position})
                except Refused as refusal:
                    if not refusal.error.get("retryable"):
                        break
                    await asyncio.sleep(_PAUSE_S)
                    continue
                position = page["next_after_sequence"]
                for uri in touched(self.places, page["events"]):
                    await self._notify(uri)
                if page["closed"] is not None:
                    break
        except Exception:
            _log.exception("a watched scope is told of no more", extra={"action": "mcp_following_failed"})
        # Whoever reads now learns why nothing more will be told.
        self.ended = True
        for uri in list(self.places):
            await self._notify(uri)

    async def close(self) -> None:
        """Stop listening, and end the subscription."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self.ended = True
        try:
            async with asyncio.timeout(_CLOSE_S):
                await document(self._caller, "unsubscribe", {"subscription_id": self._subscription})
        except (Refused, TimeoutError) as error:
            # The subscription service ends it by itself: at once where the right is gone, else as one without progress.
            _log.info("a subscription is left to its end: %s", error, extra={"action": "mcp_unsubscribe_failed"})


def touched(places: Mapping[str, Place], events: Iterable[Mapping[str, Any]]) -> list[str]:
    """The addresses, each once, whose resource these events changed."""
    seen = list(events)
    return [uri for uri, place in places.items() if any(_touches(place, event) for event in seen)]


def _touches(place: Place, event: Mapping[str, Any]) -> bool:
    if place.kind in ("scope", "events"):
        return True
    if place.kind == "snapshot" or event.get("object_id") != place.ids["object_id"]:
        return False
    return place.kind == "object" or event.get("event_type") in _ERASURES


def watchable(uri: str) -> Place | None:
    """The resource of an address that can be watched."""
    return uris.place(uri)
