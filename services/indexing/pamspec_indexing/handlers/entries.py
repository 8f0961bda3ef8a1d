"""What entries of the ledger do to the indexes: the effect of the consumer."""

from __future__ import annotations

from collections.abc import Sequence

from pamspec_common.consuming.model import Entry
from pamspec_common.postgres import Connection
from pamspec_indexing.model import LEXICAL, touched
from pamspec_indexing.queries import objects


class Indexing:
    """The effect of the ledger's entries (consuming.Effect)."""

    async def apply(self, conn: Connection, entries: Sequence[Entry]) -> None:
        """Index the heads of what these entries are about, and move the watermarks of their scopes."""
        names = touched(entries)
        heads = await objects.fetch_heads(conn, names) if names else []
        ahead = [head for head in heads if head.sequence > head.known]
        if ahead:
            await objects.guard(conn, ahead)
        await objects.move_watermark(conn, {entry.scope_key for entry in entries}, LEXICAL)

    async def forget(self, conn: Connection, scope_key: int) -> None:
        """The scope's ledger was restored: its entries come again."""
        await objects.forget(conn, scope_key)

    async def committed(self, entries: Sequence[Entry]) -> None:
        """Nobody else waits for it."""
