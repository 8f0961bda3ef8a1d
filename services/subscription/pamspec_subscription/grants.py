"""Grants under which is subscribed: what they leave of their grantor's rights now, and when that ends by itself.

Invariant: whatever revokes a grant of a chain raises the epoch of the scope in which it works, so a chain that was read
under today's epochs is not revoked. Windows are measured by PostgreSQL's clock, read beside the chain; what moves no
epoch (uses, credentials) is read again after `_AGAIN_S`.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime, timedelta
from typing import NamedTuple

from pamspec_common.delegation.grants import Chain
from pamspec_common.delegation.loading import load_chain
from pamspec_common.postgres import Connection

NOW_SQL = "SELECT clock_timestamp()"

_AGAIN_S = 1.0
_KEPT = 10_000


class Standing(NamedTuple):
    """A chain of grants as it stands, and PostgreSQL's clock."""

    chain: Chain
    now: datetime

    @property
    def left_s(self) -> float:
        """How long every window of the chain stays open."""
        return (min(grant.terms.not_after for grant in self.chain) - self.now).total_seconds()


class _Kept(NamedTuple):
    chain: Chain
    now: datetime
    read_at: float
    epochs: tuple[int, int]


class Grants:
    """Chains by grant, kept while they may be."""

    def __init__(self, session: Callable[[], AbstractAsyncContextManager[Connection]]) -> None:
        self._session = session
        self._kept: OrderedDict[tuple[str, str], _Kept] = OrderedDict()

    async def standing(
        self, tenant_id: str, delegation_id: str, epochs: tuple[int, int], conn: Connection | None
    ) -> Standing | None:
        """A grant with those above it under these epochs; None where the tenant has none of that id."""
        kept = self._kept.get((tenant_id, delegation_id))
        asked_at = _now()
        if kept is None or kept.epochs != epochs or asked_at - kept.read_at > _AGAIN_S:
            async with self._lent(conn) as lent:
                chain = await load_chain(lent, tenant_id, delegation_id)
                now = await lent.fetchval(NOW_SQL)
            if chain is None:
                return None
            kept = self._kept[tenant_id, delegation_id] = _Kept(chain, now, asked_at, epochs)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
            return Standing(chain, now)
        return Standing(kept.chain, kept.now + timedelta(seconds=asked_at - kept.read_at))

    @asynccontextmanager
    async def _lent(self, conn: Connection | None) -> AsyncIterator[Connection]:
        if conn is not None:
            yield conn
            return
        async with self._session() as own:
            yield own


def _now() -> float:
    return asyncio.get_running_loop().time()
