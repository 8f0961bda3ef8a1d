"""Collecting a page: bounded in events, in bytes and in the ledger rows it passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pamspec_common.postgres import Connection, scoped
from pamspec_subscription.entries import Entry
from pamspec_subscription.matching import Matcher
from pamspec_subscription.model import PAGE_BYTES, SCAN_ROWS, Subscription
from pamspec_subscription.queries import ledger
from pamspec_subscription.rights import Permitted
from pamspec_subscription.store import read_page

_FETCH_ROWS = 1000
_HYDRATE = 8


@dataclass(frozen=True)
class Collected:
    """The events of a page, the position after it, and the envelopes of its versions where they are wanted."""

    events: list[Entry]
    next_after: int
    envelopes: dict[str, bytes] | None = None


async def collect(
    conn: Connection,
    subscription: Subscription,
    matcher: Matcher,
    permitted: Permitted,
    after: int,
    limit: int,
    page_bytes: int = PAGE_BYTES,
) -> Collected:
    """The matching events after a position, at most `limit`, from at most SCAN_ROWS ledger rows and page_bytes."""
    limit = min(limit, subscription.delivery.batching_max_events)
    page = _within_bytes(await _events(conn, subscription, matcher, permitted, after, limit), page_bytes)
    if not subscription.include_content:
        return page
    return await _with_envelopes(conn, subscription, page, page_bytes)


async def _events(
    conn: Connection, subscription: Subscription, matcher: Matcher, permitted: Permitted, after: int, limit: int
) -> Collected:
    end = min(subscription.head.last_seq, after + SCAN_ROWS)
    acked = frozenset(subscription.acked_ahead)
    events: list[Entry] = []
    while after < end and len(events) < limit:
        fetch = limit - len(events) if matcher.exact_by_columns else _FETCH_ROWS
        page = await read_page(conn, subscription.scope_key, after, subscription.head, fetch, matcher, end)
        found = matcher.select(page.entries)
        if acked:
            found = [entry for entry in found if entry.sequence not in acked]
        if not permitted.sight.everything:
            async with scoped(conn, [subscription.scope_key]):
                found = await ledger.in_sight(conn, subscription.scope_key, found, permitted)
        after = page.scanned_to
        if len(events) + len(found) >= limit:
            found = found[: limit - len(events)]
            after = found[-1].sequence
        events += found
    return Collected(events, after)


def _within_bytes(page: Collected, page_bytes: int) -> Collected:
    """The page, or its beginning where it would be larger."""
    events = page.events
    if sum(len(entry.event) + 1 for entry in events) <= page_bytes:
        return page
    size = 0
    for at, entry in enumerate(events):
        size += len(entry.event) + 1
        if at and size > page_bytes:
            return Collected(events[:at], entry.sequence - 1)
    return page


async def _with_envelopes(conn: Connection, subscription: Subscription, page: Collected, page_bytes: int) -> Collected:
    """Add the versions' envelopes in groups; the page ends where the bytes do."""
    envelopes: dict[str, bytes] = {}
    size = 0
    async with scoped(conn, [subscription.scope_key]):
        for start in range(0, len(page.events), _HYDRATE):
            group = page.events[start : start + _HYDRATE]
            found = await ledger.envelopes(conn, subscription.scope_key, _versions(group))
            for at, entry in enumerate(group, start):
                name = entry.document.get("version_id", "")
                size += len(entry.event) + (len(found[name]) if name in found and name not in envelopes else 0)
                if at and size > page_bytes:
                    return Collected(page.events[:at], entry.sequence - 1, envelopes)
                if name in found:
                    envelopes[name] = found[name]
    return Collected(page.events, page.next_after, envelopes)


def _versions(entries: Sequence[Entry]) -> list[str]:
    return sorted({name for entry in entries if (name := entry.document.get("version_id")) is not None})
