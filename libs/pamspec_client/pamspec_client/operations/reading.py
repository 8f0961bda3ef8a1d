"""What is read: versions, pages of queries and history, contexts, snapshots."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Unpack

from pamspec_client import requests as r
from pamspec_client.models import (
    Comparison,
    Context,
    Envelope,
    HistoryPage,
    ProjectionAnswer,
    QueryItem,
    QueryPage,
    ReadAnswer,
    Sealed,
    Snapshot,
    SnapshotPage,
)
from pamspec_client.operations.caller import PAGE, Caller


class Reading(Caller):
    """What is read: versions, pages of queries and history, contexts, snapshots."""

    async def read(self, **request: Unpack[r.ReadRequest]) -> Envelope:
        """One version of an object or a relationship (PAMSPEC P109)."""
        return Envelope.of((await self._typed(ReadAnswer, "read", request)).envelope_raw)

    async def read_fields(self, fields: list[str], **request: Unpack[r.ReadRequest]) -> dict[str, Any]:
        """Only these members of one version's envelope; members that it lacks are left out."""
        return (await self._typed(ProjectionAnswer, "read", {**request, "fields": fields})).projection

    async def query(self, **request: Unpack[r.QueryRequest]) -> QueryPage:
        """One page of a query; without filters or trust only what is trusted (PAMSPEC P157)."""
        return await self._typed(QueryPage, "query", request)

    async def query_pages(self, **request: Unpack[r.QueryPages]) -> AsyncIterator[QueryPage]:
        """All pages of a query, one after the other."""
        fields: dict[str, Any] = {**request}
        fields["limit"], cursor = fields.pop("page_size", PAGE), None
        while True:
            page = await self._typed(QueryPage, "query", {**fields, "cursor": cursor})
            yield page
            if not (cursor := page.next_cursor):
                return

    async def query_items(self, **request: Unpack[r.QueryPages]) -> AsyncIterator[QueryItem]:
        """All items of a query."""
        async for page in self.query_pages(**request):
            for item in page.items:
                yield item

    async def assemble(self, **request: Unpack[r.AssembleRequest]) -> Context:
        """A context for a model: what a query finds, valid, without repetitions, with conflicts, within a budget."""
        return await self._typed(Context, "assemble", request)

    async def inspect_history(self, **request: Unpack[r.HistoryRequest]) -> HistoryPage:
        """One page of versions and ledger entries (PAMSPEC P124)."""
        return await self._typed(HistoryPage, "inspect_history", request)

    async def history_pages(self, **request: Unpack[r.HistoryPages]) -> AsyncIterator[HistoryPage]:
        """All pages of history, one after the other."""
        fields: dict[str, Any] = {**request}
        fields["limit"], cursor = fields.pop("page_size", PAGE), None
        while True:
            page = await self._typed(HistoryPage, "inspect_history", {**fields, "cursor": cursor})
            yield page
            if not (cursor := page.next_cursor):
                return

    async def seal_snapshot(self, **request: Unpack[r.SealSnapshotRequest]) -> Sealed:
        """Seal a view of a scope at its present position, for reads, queries and histories with `snapshot_id`."""
        return await self._typed(Sealed, "seal_snapshot", request)

    async def list_snapshots(self, **request: Unpack[r.ListSnapshotsRequest]) -> SnapshotPage:
        """One page of a scope's snapshots, or one by its id."""
        return await self._typed(SnapshotPage, "list_snapshots", request)

    async def get_snapshot(self, snapshot_id: str) -> Snapshot:
        """One snapshot's descriptor; SnapshotNotFound when there is none."""
        page = await self.list_snapshots(snapshot_id=snapshot_id)
        return page.snapshots[0].snapshot

    async def compare_snapshots(self, **request: Unpack[r.CompareSnapshotsRequest]) -> Comparison:
        """One page of what two snapshots of a scope show differently (PAMSPEC P231)."""
        return await self._typed(Comparison, "compare_snapshots", request)
