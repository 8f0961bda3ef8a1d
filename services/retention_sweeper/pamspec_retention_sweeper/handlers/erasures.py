"""The verification of erasures: scans surface by surface until a receipt closes (PAMSPEC P184, P187, S21).

Invariants: one transaction claims a group, scans, repairs and notes, so a process that is killed anywhere in it has
done nothing and the next one begins anew; nothing that a scan finds is ever told but where it was. An erasure closes
only when every surface is settled, and with the closing its needles and what opens them are gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pamspec_common.analysis import sought
from pamspec_common.errors import PamspecError
from pamspec_common.instants import wire
from pamspec_common.needles import NeedleSeal
from pamspec_common.postgres import Connection
from pamspec_common.service import Background, Part
from pamspec_common.surfaces import PAGE_BYTES, unsettled
from pamspec_common.telemetry import metrics
from pamspec_retention_sweeper.model.erasures import ABSENT, Seen, clean, left, noted, wait_s, waiting
from pamspec_retention_sweeper.queries import erasures as queries
from pamspec_retention_sweeper.queries import scans
from pamspec_retention_sweeper.queries.erasures import Erasure, Noted, Standing
from pamspec_retention_sweeper.queries.scans import Standbys
from pamspec_retention_sweeper.settings import Settings
from pamspec_retention_sweeper.store import Store

_SCOPES_A_TURN = 16
_NEEDLES_A_GROUP = 400
_TERMS = 200
"""Terms of one erasure that are looked for."""
_FOUND = "a scan found something; it was removed and is looked for again"
_BY_DESIGN = ("caches", "exports")
"""They hold no content: caches of this product keep rights and counters, and an export is kept nowhere."""

Lines = dict[int, dict[str, Seen]]
"""By the number of the erasure in its group, what was seen of its surfaces."""


class ErasureJob:
    """Looks after open erasures."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store, self._settings = store, settings
        self._seal = NeedleSeal.of(settings)
        self._standing = Standing(0, 0, None)

    async def run(self, background: Background) -> None:
        """Work until the service stops."""
        busy = False
        while not (
            background.stopping.is_set() if busy else await background.pause(self._settings.erasure_poll_ms / 1000)
        ):
            try:
                busy = await self._round(background)
            except PamspecError:
                busy = False
                continue
            background.recovered("erasures")

    def part(self) -> Part:
        """How the erasures stand; one that keeps finding something makes the service degraded."""
        detail: dict[str, Any] = {"open": self._standing.open, "failing": self._standing.failing}
        if self._standing.oldest is not None:
            detail["oldest_s"] = round((datetime.now(UTC) - self._standing.oldest).total_seconds())
        return Part("erasure_receipts", self._standing.failing == 0, detail, essential=False)

    async def _round(self, background: Background) -> bool:
        """A group of each scope that waits; whether there is more."""
        async with self._store.session() as conn:
            due = await queries.due(conn, _SCOPES_A_TURN)
            standing = await queries.standing(conn)
        self._standing = standing
        metrics.ERASURES_OPEN.set(self._standing.open)
        metrics.ERASURES_FAILING.set(self._standing.failing)
        busy = False
        for scope_key in due:
            busy |= await self.verify(scope_key)
            if background.stopping.is_set():
                return False
        return busy

    async def verify(self, scope_key: int) -> bool:
        """Look after the next group of a scope; whether it was a full one."""
        limit = self._settings.erasure_group
        async with self._store.scoped([scope_key]) as conn:
            claimed = await queries.claim(conn, scope_key, limit)
            if not claimed:
                return False
            now = wire(claimed[0].now)
            group = [one for one in claimed if one.kind != "f"]
            seen = await self._scan(conn, scope_key, group) if group else {}
            done = [self._noted(one, seen[n], now) for n, one in enumerate(group)]
            for one in claimed:
                if one.kind == "f":
                    done.append(await self._whole(conn, scope_key, one))
            await queries.note(conn, scope_key, done)
        for each in done:
            metrics.ERASURE_CHECKS.add(1, {"result": "closed" if each.closed else "open"})
        return len(claimed) == limit

    def _noted(self, one: Erasure, seen: Mapping[str, Seen], now: str) -> Noted:
        lines = noted(one.surfaces, seen, now)
        wait = wait_s(one.attempts, lines, self._settings.erasure_retry_s)
        return Noted(one.erasure_id, lines, wait, not unsettled(lines))

    async def _whole(self, conn: Connection, scope_key: int, one: Erasure) -> Noted:
        """A forget is settled when its job is done and each of its parts is."""
        lines = await queries.parts(conn, scope_key, one.erasure_id)
        wait = wait_s(one.attempts, lines, self._settings.erasure_retry_s)
        return Noted(one.erasure_id, lines, wait, not unsettled(lines))

    async def _scan(self, conn: Connection, scope_key: int, group: Sequence[Erasure]) -> Lines:
        """Every scan over a group."""
        seen: Lines = {n: {name: clean("none", one.position) for name in _BY_DESIGN} for n, one in enumerate(group)}
        await self._scan_canonical(conn, scope_key, group, seen)
        await self._scan_indexes(conn, scope_key, group, seen)
        await self._scan_values(conn, scope_key, group, seen)
        await self._scan_copies(conn, scope_key, group, seen)
        return seen

    async def _scan_canonical(self, conn: Connection, scope_key: int, group: Sequence[Erasure], seen: Lines) -> None:
        remains = await scans.canonical(conn, scope_key, group)
        again = [group[n] for n, found in remains.items() if any(found)]
        if again:
            await scans.remove_canonical(conn, scope_key, again)
        for n, one in enumerate(group):
            found = remains.get(n, scans.Remains(0, 0, 0))
            for name, count in zip(("canonical_content", "provenance", "idempotency_records"), found, strict=True):
                seen[n][name] = left(_FOUND, "ids") if count else clean("ids", one.position)

    async def _scan_indexes(self, conn: Connection, scope_key: int, group: Sequence[Erasure], seen: Lines) -> None:
        """Derived stores; relationships are read where they are kept, so a graph of their own does not exist."""
        state = await scans.indexes(conn, scope_key)
        remains = await scans.derived(conn, scope_key, group) if state.deployed else set()
        terms, valued = self._terms(group) if state.deployed else ([], set())
        listed = {(name, "lexical_posting") for name in await scans.postings(conn, scope_key, terms)}
        behind = {object_id for object_id, place in remains if place == "indexed_object"}
        for place in {place for _, place in remains} - {"indexed_object"}:
            await scans.remove_derived(conn, scope_key, [name for name, where in remains if where == place], place)
        vector_places = {place for _, place in remains if "vector" in place or "embedding" in place}
        for n, one in enumerate(group):
            mine = {place for name, place in remains | listed if name == one.subject_id} - {"indexed_object"}
            seen[n]["graph"] = ABSENT
            for name, position, places in (
                ("lexical", state.lexical, mine - vector_places),
                ("vector", state.vector, mine & vector_places),
            ):
                if not state.deployed or (name == "vector" and position is None and not places):
                    seen[n][name] = ABSENT
                elif places:
                    seen[n][name] = left(_FOUND, "ids")
                elif (position or 0) < one.position or one.subject_id in behind:
                    seen[n][name] = waiting("the index is not that far yet", position)
                else:
                    seen[n][name] = clean("value" if name == "lexical" and n in valued else "ids", position)

    def _terms(self, group: Sequence[Erasure]) -> tuple[list[tuple[str, int]], set[int]]:
        """The terms of the needles, each with its object, and the numbers of the erasures that have any."""
        found: list[tuple[str, int]] = []
        valued: set[int] = set()
        for n, one in enumerate(group):
            opened = self._seal.open(one.needles, one.seal_salt) or []
            numbers = {number for text in opened for number in sought(text).terms}
            found += [(one.subject_id or "", number) for number in sorted(numbers)[:_TERMS]]
            valued |= {n} if numbers else set()
        return found, valued

    async def _scan_values(self, conn: Connection, scope_key: int, group: Sequence[Erasure], seen: Lines) -> None:
        """The values themselves, wherever a copy of them could be though none should."""
        opened = {n: self._seal.open(one.needles, one.seal_salt) for n, one in enumerate(group)}
        share = max(2, _NEEDLES_A_GROUP // len(group))
        texts = [(n, text) for n, needles in opened.items() for text in (needles or ())[:share]]
        found = await scans.needles(conn, scope_key, group, texts)
        for n, one in enumerate(group):
            scan = "ids" if opened[n] is None else "value"
            for name in ("operation_outcomes", "webhook_log", "parked_messages", "import_staging", "snapshots"):
                seen[n][name] = clean(scan, one.position)
            for place in (place for number, place in found if number == n and place != "streams"):
                seen[n][place] = Seen("open", "a scan found the value; tell the operator", scan, found=True)

        first = await scans.unpublished(conn, scope_key)
        for n, one in enumerate(group):
            if first is not None and first <= one.position:
                seen[n]["streams"] = waiting("entries still wait for the bus", first - 1)
            elif (n, "streams") in found:
                seen[n]["streams"] = Seen("open", "a scan found the value; tell the operator", "value", found=True)
            else:
                seen[n]["streams"] = clean("ids" if opened[n] is None else "value", one.position)

    async def _scan_copies(self, conn: Connection, scope_key: int, group: Sequence[Erasure], seen: Lines) -> None:
        """Standbys and pages: what is not in any answer, and may still be on a disk."""
        owed = await scans.pages_owed(conn, scope_key, [one.position for one in group])
        first = await scans.standbys(conn, None)
        for n, one in enumerate(group):
            mark = one.surfaces.get("read_replicas", {}).get("mark")
            found = first if mark is None or first.found == 0 else await scans.standbys(conn, mark)
            seen[n]["read_replicas"] = _replicated(found, mark, one.position)
            seen[n][PAGE_BYTES] = clean("none", one.position)
            if one.position in owed:
                seen[n][PAGE_BYTES] = waiting("files that held it are not written anew yet")


def _replicated(found: Standbys, mark: str | None, position: int) -> Seen:
    """Whether every standby has replayed what was written when they were first looked at."""
    if found.found == 0:
        return ABSENT
    if found.unseen:
        return waiting("standbys are not seen; give pg_read_all_stats to pamspec_verifier")
    if mark is None or found.behind:
        return Seen("open", "a standby is not that far yet", mark=mark or found.here)
    return clean("none", position)
