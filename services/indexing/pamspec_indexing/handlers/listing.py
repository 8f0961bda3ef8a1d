"""list_indexes: which indexes a scope has, and how far behind the ledger each is."""

from __future__ import annotations

from dataclasses import dataclass

from pamspec_common.asked import Asked
from pamspec_common.authorization.rights import Authorizer
from pamspec_common.calls import HEADER_LEDGER_EPOCH, Answer
from pamspec_common.instants import wire
from pamspec_common.strict_json import dumps
from pamspec_indexing.documents import ListIndexes
from pamspec_indexing.handlers.asked import scope_of
from pamspec_indexing.handlers.jobs import shown
from pamspec_indexing.queries import jobs
from pamspec_indexing.queries.indexes import Progress, fetch_indexes
from pamspec_indexing.queries.jobs import Job
from pamspec_indexing.store import Store


@dataclass(frozen=True)
class Listing:
    """The operation, and what it stands on."""

    store: Store
    authorizer: Authorizer

    async def list_indexes(self, asked: Asked[ListIndexes]) -> Answer:
        """The indexes of a scope by their ids, for whoever may query it."""
        key = await scope_of(self.store, self.authorizer, asked, "query")
        async with self.store.scoped([key]) as conn:
            epoch, head, found = await fetch_indexes(conn, key)
            states = {name: state for (_, name), state in (await jobs.fetch_unready(conn, [key])).items()}
            last = await jobs.fetch_of_scope(conn, key)
        shown_ones = [_shown(one, states.get(one.index_id), last.get(one.index_id)) for one in found]
        body = {"head": {"ledger_epoch": epoch, "sequence": head}, "indexes": shown_ones}
        return Answer(200, dumps(body), {HEADER_LEDGER_EPOCH: str(epoch)})


def _shown(one: Progress, state: str | None, job: Job | None) -> dict[str, object]:
    body: dict[str, object] = {
        "index_id": one.index_id,
        "state": state or "ready",
        "watermark": {"ledger_epoch": one.ledger_epoch, "sequence": one.sequence, "at": wire(one.at)},
        "lag": {"events": one.events, "seconds": round(one.seconds, 3)},
    }
    return body if job is None else body | {"job": shown(job)}
