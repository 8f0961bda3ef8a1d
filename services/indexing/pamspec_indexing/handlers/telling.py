"""embedding_generated: the ledger is told which versions got vectors (PAMSPEC P70).

One entry for each object would make the ledger twice as long as what was written. So the vectors of a scope and space
that came within a second are told of by one entry: of one object with its ids, of several with their number. What is
not told yet stands in the store, gathered under a number that names the operation, so that a repetition makes no second
entry.
"""

from __future__ import annotations

import logging
from typing import Any

import asyncpg

from pamspec_common.calls import Call
from pamspec_common.embedding_spaces import index_id
from pamspec_common.errors import PamspecError, told_error
from pamspec_common.peers import Peer
from pamspec_common.principal import TokenSigner, service_principal
from pamspec_common.service import Background
from pamspec_common.strict_json import dumps
from pamspec_indexing.queries import embedding
from pamspec_indexing.store import Store

_log = logging.getLogger(__name__)
_AT_ONCE = 100


class Telling:
    """The job that tells."""

    def __init__(self, store: Store, write: Peer, signer: TokenSigner, period_s: float) -> None:
        self._store, self._write, self._signer, self._period_s = store, write, signer, period_s

    async def run(self, background: Background) -> None:
        """Tell until the service stops."""
        while not await background.pause(self._period_s):
            try:
                await self.step()
                background.recovered("telling")
            except PamspecError as error:
                _log.info("told later: %s", error.message, extra={"action": "telling_waits"})

    async def step(self) -> int:
        """Tell of what came since; how many entries that were.

        What is refused for now is told later, and what is refused for good (its scope or tenant is gone) never; neither
        holds up the others.
        """
        async with self._store.session() as conn:
            await conn.execute(embedding.GATHER_SQL)
            gathered = await conn.fetch(embedding.GATHERED_SQL, _AT_ONCE)
        for row in gathered:
            await self._tell(row)
        return len(gathered)

    async def _tell(self, row: asyncpg.Record) -> None:
        space_id, key = row["embedding_space_id"], row["scope_key"]
        event: dict[str, Any] = {
            "scope_id": row["scope_id"],
            "operation_id": f"op:embedding:{key}:{row['batch']}",
            "event_type": "embedding_generated",
        }
        payload: dict[str, Any] = {"embedding_space_id": space_id, "index_id": index_id(space_id)}
        if row["objects"] == 1:
            async with self._store.scoped([key]) as conn:
                about = await conn.fetchrow(embedding.ABOUT_SQL, key, row["doc"])
            if about is not None:
                event |= {"object_id": about["object_id"], "version_id": about["version_id"]}
                payload["object_type"] = about["object_type"]
        if "object_id" not in event:
            payload["count"] = row["objects"]
        token = self._signer.sign(service_principal("indexing", row["tenant_id"]))
        answer = await self._write.call(Call("record_event", token, dumps(event | {"payload": payload})))
        if answer.status >= 400:
            error = told_error(answer.status, answer.body)
            told = {"action": "embedding_untold", "code": error.code}
            _log.info("not told: %s", error.message, extra=told)
            if error.can_retry:
                return
        async with self._store.session() as conn:
            await conn.execute(embedding.TOLD_SQL, key, space_id, row["batch"])
