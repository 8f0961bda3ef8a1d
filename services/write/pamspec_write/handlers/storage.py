"""Storage quotas on the way into a commit: which hold, and what a bounded tenant has stored, under a lock.

Invariant: the commits of a tenant with a bound of its own over storage follow one another, whichever processes they are
of, so the bound is exact; those of a tenant without one do not wait for one another.
"""

from __future__ import annotations

from collections.abc import Iterable

from pamspec_common.postgres import Connection
from pamspec_common.quotas import NO_QUOTAS, Quotas, stored_quotas
from pamspec_write.model.facts import ScopeState
from pamspec_write.model.storage import has_storage_bound
from pamspec_write.queries.usage import lock_usage

_KEPT = 10_000


class QuotasMoved(Exception):
    """A tenant's quotas changed after they were read; the batch has to be decided again."""


class StorageQuotas:
    """The quotas in force, parsed once for each document."""

    def __init__(self, defaults: Quotas) -> None:
        self._defaults = NO_QUOTAS.over(defaults)
        self._parsed: dict[str, Quotas] = {}

    def of(self, text: str | None) -> Quotas:
        """What holds under a stored document, or without one."""
        if text is None:
            return self._defaults
        found = self._parsed.get(text)
        if found is None:
            if len(self._parsed) >= _KEPT:
                self._parsed.clear()
            found = self._parsed[text] = stored_quotas(text).over(self._defaults)
        return found

    async def fill(self, conn: Connection, states: Iterable[ScopeState]) -> None:
        """Tell the states, whose scopes are locked, their quotas; bounded tenants are locked and counted."""
        bounded: dict[str, list[ScopeState]] = {}
        for state in states:
            state.quotas = self.of(state.quotas_text)
            if has_storage_bound(state.quotas.tenant):
                bounded.setdefault(state.ref.tenant_id, []).append(state)
        if not bounded:
            return
        for tenant_id, usage in (await lock_usage(conn, sorted(bounded))).items():
            for state in bounded[tenant_id]:
                if usage.quotas_version != state.quotas_version:
                    raise QuotasMoved
                state.tenant_stored = usage.stored
