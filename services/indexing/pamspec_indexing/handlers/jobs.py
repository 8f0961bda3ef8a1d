"""rebuild_index, drop_index and verify_index: what asks for a job, and what a job looks like from outside."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from pamspec_common.asked import Asked
from pamspec_common.authorization.rights import Authorizer
from pamspec_common.calls import Answer
from pamspec_common.errors import InvalidRequest
from pamspec_common.ids import mint
from pamspec_common.instants import wire
from pamspec_common.strict_json import dumps
from pamspec_indexing.documents import OfIndex
from pamspec_indexing.handlers.asked import scope_of
from pamspec_indexing.queries import clearing, jobs
from pamspec_indexing.queries.jobs import Job
from pamspec_indexing.store import Store


@dataclass(frozen=True)
class Jobs:
    """The operations, and what they stand on."""

    store: Store
    authorizer: Authorizer
    index_ids: Collection[str]

    async def rebuild(self, asked: Asked[OfIndex]) -> Answer:
        """Write all rows of an index anew, while queries go on with the old ones."""
        return await self._request(asked, "rebuild", "administer")

    async def drop(self, asked: Asked[OfIndex]) -> Answer:
        """Remove all rows of an index; nothing is written to it until it is rebuilt."""
        return await self._request(asked, "drop", "administer")

    async def verify(self, asked: Asked[OfIndex]) -> Answer:
        """Compare all rows of an index with the canonical store; nothing is changed."""
        return await self._request(asked, "verify", "verify")

    async def _request(self, asked: Asked[OfIndex], kind: str, action: str) -> Answer:
        """The job, or the one that is under way already; InvalidRequest where that is another one."""
        index_id = asked.request.index_id
        key = await scope_of(self.store, self.authorizer, asked, action)
        if index_id not in self.index_ids:
            known = ", ".join(sorted(self.index_ids))
            raise InvalidRequest(f"index_id names no index that has jobs; there are: {known}.")
        async with self.store.scoped([key]) as conn:
            await clearing.lock(conn, key)
            job = await jobs.request(conn, key, index_id, kind, mint("op"))
            if job is None:
                job = (await jobs.fetch_of_scope(conn, key))[index_id]
                if job.kind != kind:
                    raise InvalidRequest(f"A {job.kind} of this index is under way; ask again when it has ended.")
            elif kind == "drop":
                await jobs.drop(conn, key, index_id)
            elif kind == "rebuild":
                await jobs.build(conn, key, index_id)
        return Answer(200, dumps({"index_id": index_id, "job": shown(job)}))


def shown(job: Job) -> dict[str, object]:
    """A job as every door answers it."""
    body: dict[str, object] = {
        "kind": job.kind,
        "state": "running" if job.open else "done",
        "done": min(job.done, job.total) if job.open else job.done,
        "total": job.total if job.open else job.done,
        "requested_at": wire(job.requested_at),
        "finished_at": None if job.finished_at is None else wire(job.finished_at),
    }
    if job.kind == "verify":
        body["problems"] = {"missing": job.missing, "stale": job.stale, "stray": job.stray}
    return body
