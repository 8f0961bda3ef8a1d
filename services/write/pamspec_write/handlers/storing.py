"""The transaction of an import: the scope of the name is found or made, filled from the checked file, and shown.

Invariant: everything here happens in one transaction, a batch of entries at a time, so that memory does not grow with
the file; nobody sees a scope that is new before all of it is there, and one that was empty stays locked until then.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime, timedelta

import orjson

from pamspec_common import ids, strict_json
from pamspec_common.calls import HEADER_REPLAYED, Answer
from pamspec_common.documents import MAX_SEQUENCE
from pamspec_common.errors import DuplicateOperation, InvalidRequest, ServiceUnavailable
from pamspec_common.ledger import genesis
from pamspec_common.postgres import Connection, begin, rollback, show_scopes
from pamspec_common.transfer import (
    EndLine,
    EntryLine,
    HeldLine,
    HoldLine,
    PolicyLine,
    SchemaLine,
    ScopeLine,
    SnapshotLine,
    decode_line,
)
from pamspec_write.handlers.spool import Spool
from pamspec_write.handlers.storage import StorageQuotas
from pamspec_write.handlers.storing_rules import RuleStore
from pamspec_write.model.commands import fingerprint, key_hash, operation_hash
from pamspec_write.model.entry_lines import BadLine, Entry, read_entry
from pamspec_write.model.facts import ScopeRef, ScopeState
from pamspec_write.model.imports import Arrivals, unexplained
from pamspec_write.model.records import positions
from pamspec_write.model.remapping import Remapping
from pamspec_write.model.rows import NO_BASIS, AdministrationRow
from pamspec_write.model.rule_lines import RuleLine
from pamspec_write.model.storage import Growth, check_room
from pamspec_write.queries import scopes, transfer
from pamspec_write.queries.administration import record_change
from pamspec_write.queries.commit import erase, write
from pamspec_write.queries.deletion import deletion
from pamspec_write.queries.usage import add_scope, count_scope, lock_usage, tenant_quotas

BATCH_LINES = 200
BATCH_BYTES = 1024 * 1024
LOCK_MS = 30_000
"""How long an import waits for another one into the same scope."""
CHECK_S = 900.0
"""How long one statement over everything that was imported may take."""
_AHEAD = timedelta(days=1)
_PAGE = 1000
_LINES_IN_A_ROW = 16
"""So many lines are read before others get their turn: other writes, and the batch that is being written."""
_ENTRIES_FROM = 3
"""The number of the line of the first entry."""


@dataclass(frozen=True, slots=True)
class File:
    """A checked file, and how it was asked for."""

    tenant_id: str
    scope_id: str
    """The scope that it goes to."""
    scope: ScopeLine
    old_scope_id: str
    end: EndLine
    remapped: bool
    skip: bool
    actor_id: str
    """The principal's own, under which the operation is found again."""
    operation_id: str
    idempotency_key: str | None
    repeatable: bytes
    partitions: int

    @property
    def document(self) -> bytes:
        """The document of a scope that is made for it."""
        if not self.remapped:
            return bytes(self.scope.document)
        return strict_json.dumps({**orjson.loads(bytes(self.scope.document)), "scope_id": self.scope_id})


@dataclass(slots=True)
class Storing:
    """One import on its way into the store."""

    file: File
    quotas: StorageQuotas
    partition: int | None = None
    """The partition to wake, once something was stored."""
    line: int = 0
    stored: int = 0
    """Ledger entries."""

    def refused(self, why: str) -> InvalidRequest:
        """The refusal of the line that is being stored."""
        return InvalidRequest(f"Line {self.line}: {why} Nothing was imported.", details={"line": self.line})

    async def run(self, conn: Connection, spool: Spool) -> Answer:
        """The answer, with everything committed; or the refusal, with nothing changed."""
        await begin(conn, [])
        done = False
        try:
            await conn.execute(
                f"SET LOCAL lock_timeout = {LOCK_MS}; SET LOCAL statement_timeout = {CHECK_S * 1000:.0f}"
            )
            answer = await self._import(conn, spool)
            await conn.execute("COMMIT" if self.partition is not None else "ROLLBACK")
            done = True
            return answer
        finally:
            if not done:
                await rollback(conn)

    async def _import(self, conn: Connection, spool: Spool) -> Answer:
        epoch, now = await transfer.tenant_now(conn, self.file.tenant_id)
        ledger_id = os.urandom(16) if self.file.remapped else bytes.fromhex(self.file.scope.ledger_id)
        ref, is_new = await self._scope(conn, ledger_id, now)
        target = await transfer.target(conn, ref.scope_key)
        assert target is not None
        if not is_new:
            if await deletion(conn, ref.scope_key) is not None:
                raise DuplicateOperation(
                    "The scope of that id was deleted, and ids are not used again; import with remap.",
                    details={"reason": "scope_deleted"},
                )
            known = await self._known_answer(conn, ref, target)
            if known is not None:
                return known
            await transfer.adopt(
                conn, ref.scope_key, ledger_id, target.document if self.file.remapped else self.file.document
            )
        ledger_epoch = target.ledger_epoch if self.file.remapped else self.file.scope.ledger_epoch
        await transfer.adopt_head(conn, ref.scope_key, genesis(ledger_id), ledger_epoch)
        state = ScopeState(ref, 0, 0, genesis(ledger_id), now, ledger_epoch, 1, epoch)
        rules = RuleStore(ref.scope_key, ref.tenant_id, target.rules_version, self.file.remapped)
        await self._fill(conn, spool, state, ledger_id, rules)
        if state.last_at > now + _AHEAD:
            raise self.refused("the last entry lies more than a day ahead of this service's clock; compare the clocks.")
        await self._check_all(conn, state)
        await rules.finish(conn)
        await self._count(conn, state)
        answer = self._answer(state.last_hash, imported=True)
        answer.headers.update(positions(state, state.last_seq))
        await self._remember(conn, state, answer)
        self.partition = ref.partition
        return answer

    async def _scope(self, conn: Connection, ledger_id: bytes, now: datetime) -> tuple[ScopeRef, bool]:
        """The scope of the name, locked, and whether it was made here."""
        file = self.file
        found = await conn.fetchrow(scopes.RESOLVE_SCOPE_SQL, file.tenant_id, file.scope_id)
        if found is None:
            key, _ = await conn.fetchrow(scopes.NEXT_SCOPE_KEY_SQL) or (0, None)
            tokens = ids.subject_token(file.tenant_id), ids.subject_token(file.tenant_id, file.scope_id)
            partition = key % file.partitions
            await show_scopes(conn, [key])
            made = await conn.execute(
                scopes.INSERT_SCOPE_SQL, key, file.tenant_id, file.scope_id, *tokens, partition, file.document,
                ledger_id, now,
            )  # fmt: skip
            if made.endswith(" 1"):
                await conn.execute(scopes.INSERT_SCOPE_HEAD_SQL, key, genesis(ledger_id), now, 0)
                return ScopeRef(key, file.tenant_id, file.scope_id, *tokens, partition), True
            found = await conn.fetchrow(scopes.RESOLVE_SCOPE_SQL, file.tenant_id, file.scope_id)
        if found is None:
            raise ServiceUnavailable("The scope is being made; try again with the same file.")
        ref = ScopeRef(
            found["scope_key"], file.tenant_id, file.scope_id, found["tenant_token"], found["scope_token"],
            found["partition"],
        )  # fmt: skip
        await show_scopes(conn, [ref.scope_key])
        await transfer.lock_head(conn, ref.scope_key)
        return ref, False

    async def _known_answer(self, conn: Connection, ref: ScopeRef, target: transfer.Target) -> Answer | None:
        """The answer where nothing is to be stored: the scope has this already, or has something else."""
        file, end = self.file, self.file.end
        digest = bytes.fromhex(end.digest.removeprefix("sha256:"))
        if target.answer is not None and (target.digest, target.remapped) == (digest, file.remapped):
            headers = {**positions_of(target.ledger_epoch, target.imported_seq or 0), HEADER_REPLAYED: "true"}
            return Answer(200, target.answer, headers)
        if not file.remapped and target.ledger_id.hex() == file.scope.ledger_id:
            held = await transfer.entry_hash_at(conn, ref.scope_key, end.sequence) if end.sequence else end.head_hash
            if held == end.head_hash:
                answer = self._answer(bytes.fromhex(end.head_hash), imported=True)
                answer.headers.update({**positions_of(target.ledger_epoch, end.sequence), HEADER_REPLAYED: "true"})
                return answer
        empty = target.last_seq == 0 and target.answer is None and (file.remapped or target.rules_version == 0)
        if empty:
            return None
        if file.skip:
            return self._answer(target.last_hash, imported=False)
        raise DuplicateOperation(
            "The scope holds something else already and nothing is ever overwritten; import into a new scope with"
            " remap, or send on_conflict=skip to leave it as it is.",
            details={"reason": "scope_not_empty", "scope_id": file.scope_id},
        )

    async def _fill(
        self, conn: Connection, spool: Spool, state: ScopeState, ledger_id: bytes, rules: RuleStore
    ) -> None:
        """Store the lines: a batch of entries is read while the one before it is written; behind them the rules."""
        writing: asyncio.Task[None] | None = None
        self.line = _ENTRIES_FROM - 1
        try:
            async with aclosing(self._batches(spool, ledger_id)) as batches:
                async for entries, following in batches:
                    if writing is not None:
                        await writing
                    writing = asyncio.create_task(self._write(conn, state, entries)) if entries else None
                    if following and writing is not None:
                        await writing
                    for line in following:
                        self.line += 1
                        await rules.add(conn, line)
            if writing is not None:
                await writing
        finally:
            if writing is not None and not writing.done():
                await asyncio.gather(writing, return_exceptions=True)

    async def _batches(
        self, spool: Spool, ledger_id: bytes
    ) -> AsyncGenerator[tuple[list[Entry], list[RuleLine]], None]:
        """The lines as they are stored: entries, and the rules that stand behind them."""
        file = self.file
        remapping = (
            Remapping(file.old_scope_id, file.scope_id, ledger_id, file.actor_id, ids.mint, ids.salt)
            if file.remapped
            else None
        )
        entries: list[Entry] = []
        rules: list[RuleLine] = []
        size = 0
        async for lines in spool.lines():
            for raw in lines:
                line = decode_line(raw) if raw else None
                if isinstance(line, EntryLine):
                    entry = read_entry(line)
                    entries.append(entry if remapping is None else remapping.entry(entry))
                elif isinstance(line, PolicyLine | SchemaLine | HoldLine | HeldLine | SnapshotLine):
                    rules.append(line)
                size += len(raw)
                if (len(entries) + len(rules)) % _LINES_IN_A_ROW == 0:
                    await asyncio.sleep(0)
                if len(entries) + len(rules) >= BATCH_LINES or size >= BATCH_BYTES:
                    yield entries, rules
                    entries, rules, size = [], [], 0
        yield entries, rules

    async def _write(self, conn: Connection, state: ScopeState, batch: list[Entry]) -> None:
        """Write a batch; refuses the line whose version does not follow, or whose id another one has."""
        key = state.ref.scope_key
        made = [entry.version.metadata for entry in batch if entry.version is not None]
        known = await transfer.known(conn, key, sorted({metadata.subject_id for metadata in made}))
        taken = await transfer.taken_ids(conn, key, [metadata.version_id for metadata in made])
        arrivals = Arrivals(state, known, taken)
        for entry in batch:
            self.line += 1
            try:
                arrivals.add(entry)
            except BadLine as problem:
                raise self.refused(str(problem)) from None
        self.stored += len(arrivals.rows.ledger)
        if not await write(conn, {state.ref.tenant_id: state.tenant_epoch}, [state], arrivals.rows):
            raise ServiceUnavailable("Rights changed while the file was stored; try again with the same file.")
        if arrivals.erasures:
            arrivals.rows.erase_versions(key, await transfer.unerased(conn, key, arrivals.erasures))
            if arrivals.rows.chosen:
                await erase(conn, arrivals.rows)

    async def _count(self, conn: Connection, state: ScopeState) -> None:
        """Count what was stored; ServiceUnavailable (429) where the scope or its tenant has no room for it.

        The last step, since other commits of the tenant wait from here on.
        """
        key, tenant_id = state.ref.scope_key, state.ref.tenant_id
        stored = await count_scope(conn, key, CHECK_S)
        found = (await lock_usage(conn, [tenant_id]))[tenant_id]
        version, text = await tenant_quotas(conn, tenant_id)
        if version != found.quotas_version:
            raise ServiceUnavailable("Quotas changed while the file was stored; try again with the same file.")
        state.quotas, state.tenant_stored = self.quotas.of(text), found.stored
        check_room(state, Growth(stored.objects, stored.versions, stored.content_bytes))
        await add_scope(conn, tenant_id, key, stored)

    async def _check_all(self, conn: Connection, state: ScopeState) -> None:
        """What only the whole shows: every gap is explained, and no entry has the id of another."""
        key, after = state.ref.scope_key, 0
        while versions := await transfer.erased_versions(conn, key, after, _PAGE):
            events = await transfer.erasing_events(conn, key, (version.subject_id for version in versions))
            lost = unexplained(versions, events)
            if lost is not None:
                self.line = lost + _ENTRIES_FROM - 1
                raise self.refused("a part of the version is missing, and no entry says that it was erased.")
            after = versions[-1].ledger_seq
        repeated = await transfer.repeated_event(conn, key, CHECK_S)
        if repeated is not None:
            self.line = repeated + _ENTRIES_FROM - 1
            raise self.refused("another entry has the same event_id.")

    def _answer(self, head_hash: bytes, *, imported: bool) -> Answer:
        file, end = self.file, self.file.end
        body: dict[str, object] = {
            "operation_id": file.operation_id,
            "scope_id": file.scope_id,
            "imported": imported,
            "entries": end.entries,
            "versions": end.versions,
            "operations": end.operations,
            "source_events": end.source_events,
            "head_hash": "sha256:" + head_hash.hex(),
            "digest": end.digest,
        }
        if file.remapped:
            body["remapped_from"] = {"scope_id": file.old_scope_id, "ledger_id": file.scope.ledger_id}
        return Answer(200, strict_json.dumps(body), {})

    async def _remember(self, conn: Connection, state: ScopeState, answer: Answer) -> None:
        """The import's own record: for a look-up of its operation, and for the same file again."""
        file, key, salt = self.file, state.ref.scope_key, ids.salt()
        named = None
        if file.idempotency_key is not None:
            named = key_hash(file.actor_id, "import", file.idempotency_key)
        recorded = await transfer.record_operation(
            conn,
            key,
            operation_hash(file.actor_id, file.operation_id),
            named,
            file.operation_id,
            file.actor_id,
            salt,
            fingerprint(salt, file.repeatable),
            state.last_seq,
            answer.body,
        )
        if not recorded:
            raise DuplicateOperation("An operation in the file has this operation_id or key; use a new one.")
        digest = bytes.fromhex(file.end.digest.removeprefix("sha256:"))
        ledger_id = bytes.fromhex(file.scope.ledger_id)
        change = AdministrationRow(
            file.tenant_id, key, "import", file.operation_id, file.actor_id, None, NO_BASIS, file.end.digest,
            f"{state.tenant_epoch}.{state.epoch_authz}",
        )  # fmt: skip
        await record_change(conn, change)
        await transfer.record_import(conn, key, digest, ledger_id, file.remapped, state.last_seq, answer.body)


def positions_of(ledger_epoch: int, sequence: int) -> dict[str, str]:
    """The position headers of an answer that another transaction gave."""
    assert 0 <= sequence <= MAX_SEQUENCE
    return {"Pamspec-Ledger-Epoch": str(ledger_epoch), "Pamspec-Ledger-Sequence": str(sequence)}
