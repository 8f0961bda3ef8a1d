"""What entries of the ledger do to the indexes: the effect of the consumer."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from pamspec_common.consuming.model import Entry
from pamspec_common.postgres import Connection
from pamspec_indexing.model import touched
from pamspec_indexing.queries import jobs, objects
from pamspec_indexing.queries.objects import Indexed


class Projection(Protocol):
    """What an index makes of objects, inside the transaction that notes their versions."""

    @property
    def index_id(self) -> str | None:
        """The index whose watermark moves with that transaction; None where the projection moves its own later."""

    async def replace(self, conn: Connection, indexed: Sequence[Indexed]) -> None:
        """Let what is derived of these be that of their heads, which may be removed; the same again changes nothing."""

    async def advance(self, conn: Connection, scope_keys: Collection[int]) -> None:
        """Entries of these scopes have taken effect in the transaction, whether they were about an object or not."""

    def committed(self) -> None:
        """What was taken in is there for everybody now."""

    async def clear(self, conn: Connection, scope_key: int) -> bool:
        """Remove a bounded part of what is derived in a scope; whether some may be left."""


class Indexing:
    """The effect of the ledger's entries (consuming.Effect)."""

    def __init__(self, projections: Sequence[Projection]) -> None:
        self._projections = projections

    async def apply(self, conn: Connection, entries: Sequence[Entry]) -> None:
        """Index the heads of what these entries are about, and move the watermarks of their scopes."""
        names = touched(entries)
        heads = await objects.fetch_heads(conn, names) if names else []
        ahead = [head for head in heads if head.sequence > head.known]
        indexed = await objects.guard(conn, ahead) if ahead else []
        keys = {entry.scope_key for entry in entries}
        unready = await jobs.fetch_unready(conn, keys)
        for projection in self._projections:
            name = projection.index_id
            kept = [one for one in indexed if unready.get((one.head.scope_key, name or "")) != "dropped"]
            if kept:
                await projection.replace(conn, kept)
            ready = [key for key in keys if (key, name) not in unready]
            if name is not None and ready:
                await objects.move_watermark(conn, ready, name)
            await projection.advance(conn, keys)

    async def forget(self, conn: Connection, scope_key: int) -> None:
        """The scope's ledger was restored: its entries come again."""
        for projection in self._projections:
            while await projection.clear(conn, scope_key):
                pass
        await objects.forget(conn, scope_key)

    async def committed(self, entries: Sequence[Entry]) -> None:
        """Tell the projections."""
        for projection in self._projections:
            projection.committed()
