"""list_indexes: which indexes a scope has, and how far behind the ledger each is."""

from __future__ import annotations

from dataclasses import dataclass

from pamspec_common.authorization.rights import Authorizer
from pamspec_common.calls import HEADER_LEDGER_EPOCH, Answer
from pamspec_common.instants import wire
from pamspec_common.strict_json import dumps
from pamspec_indexing.documents import ListIndexes
from pamspec_indexing.handlers.asked import Asked, scope_of
from pamspec_indexing.queries.indexes import Progress, fetch_indexes
from pamspec_indexing.store import Store


@dataclass(frozen=True)
class Listing:
    """The operation, and what it stands on."""

    store: Store
    authorizer: Authorizer

    async def list_indexes(self, asked: Asked[ListIndexes]) -> Answer:
        """The indexes of a scope by their ids, for whoever may query it."""
        key = await scope_of(self.store, self.authorizer, asked, "query")
        async with self.store.of_scopes([key]) as conn:
            epoch, head, found = await fetch_indexes(conn, key)
        body = {"head": {"ledger_epoch": epoch, "sequence": head}, "indexes": [_shown(one) for one in found]}
        return Answer(200, dumps(body), {HEADER_LEDGER_EPOCH: str(epoch)})


def _shown(one: Progress) -> dict[str, object]:
    return {
        "index_id": one.index_id,
        "watermark": {"ledger_epoch": one.ledger_epoch, "sequence": one.sequence, "at": wire(one.at)},
        "lag": {"events": one.events, "seconds": round(one.seconds, 3)},
    }
