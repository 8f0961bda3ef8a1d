"""The group commit: one transaction for all commands that wait for the same lane.

The order of its steps is the protocol of docs/architecture/order.md: prefetch, lock the scopes in order before any
other lock, read again what has moved, decide in memory, write in one statement, commit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import asyncpg

from pamspec_common import ids
from pamspec_common.authorization.rights import Authorizer
from pamspec_common.calls import Answer
from pamspec_common.needles import NeedleSeal
from pamspec_common.postgres import Connection, Pool, begin, rollback
from pamspec_common.settings import CommonSettings
from pamspec_write.documents.snapshots import SealSnapshot
from pamspec_write.documents.states import Transition
from pamspec_write.handlers.access import refresh
from pamspec_write.handlers.grants import fill_grants, refresh_authority
from pamspec_write.handlers.rules import Rules
from pamspec_write.handlers.storage import StorageQuotas
from pamspec_write.model.attested import attest_ahead
from pamspec_write.model.commands import BatchCommand, Command, Work, commands_of, scopes_of
from pamspec_write.model.conformity import judge_ahead
from pamspec_write.model.decide import Decider
from pamspec_write.model.facts import ScopeRef, ScopeState
from pamspec_write.model.rows import Rows
from pamspec_write.model.versions import Entropy
from pamspec_write.queries.commit import UsageRow, erase, lock, write
from pamspec_write.queries.delegations import change_delegations
from pamspec_write.queries.erasures import open_erasures
from pamspec_write.queries.holds import change_held
from pamspec_write.queries.prefetch import Wanted, prefetch
from pamspec_write.queries.rules import change_rules
from pamspec_write.queries.snapshots import insert_snapshots

ENTROPY = Entropy(mint=ids.mint, salt=ids.salt)


class AuthorizationMoved(Exception):
    """A tenant's authorization changed between decision and write; the batch has to be decided again."""


class SnapshotTaken(Exception):
    """A snapshot's id or run was taken between decision and write; the batch has to be decided again."""


class UsesMoved(Exception):
    """A grant was used by somebody who did not hold its lock; the batch has to be decided again."""


@dataclass(slots=True)
class Committed:
    """What a transaction did: the outcome of each piece of work, those left out, and the entries of each partition."""

    answers: list[tuple[Work, Answer]]
    left_out: list[Work]
    entries: Mapping[int, int]


def wanted_of(works: Sequence[Work]) -> tuple[Wanted, dict[int, ScopeRef]]:
    """Everything that the commands will look up."""
    wanted = Wanted()
    refs: dict[int, ScopeRef] = {}
    for work in works:
        for ref in scopes_of(work):
            refs[ref.scope_key] = ref
        if isinstance(work, BatchCommand):
            _want_record(wanted, work)
        for command in commands_of([work]):
            _want_record(wanted, command)
            key = command.scope.scope_key
            if command.object_id is not None:
                wanted.objects.add((key, command.object_id))
            if command.restored is not None:
                wanted.restored.add((key, command.restored))
            if command.past:
                wanted.versions.update((key, version_id) for version_id in command.past)
            if command.kind == "r":
                _want_edges(wanted, command)
            if command.others:
                wanted.others.update((other.scope_key, object_id) for other, object_id in command.others)
            if command.source_hash is not None:
                wanted.sources.add((key, command.source_hash))
            if isinstance(command.request, SealSnapshot):
                _want_snapshot(wanted, command.scope, command.request)
            elif command.scope.evaluation and command.request.evaluation_run_id is not None:
                wanted.runs.add((command.scope.tenant_id, command.request.evaluation_run_id))
    wanted.scopes = set(refs)
    return wanted, refs


def _want_edges(wanted: Wanted, command: Command) -> None:
    """A relationship that is new or active again must find no active one of its kind; one that changes, its ends."""
    key = command.scope.scope_key
    if command.object_id is not None:
        wanted.joined.add((key, command.object_id))
    if command.edge is not None:
        wanted.edges.add((key, *command.edge))
    elif isinstance(command.request, Transition) and command.request.target_state == "active":
        wanted.rivals.add((key, command.object_id or ""))


def _want_record(wanted: Wanted, work: Work) -> None:
    if work.repeatable is not None or work.attempts > 0:
        wanted.operations.add((work.scope.scope_key, work.operation_hash))
    if work.key_hash is not None:
        wanted.keys.add((work.scope.scope_key, work.key_hash))


def _want_snapshot(wanted: Wanted, scope: ScopeRef, request: SealSnapshot) -> None:
    if request.snapshot_id is not None:
        wanted.snapshots.add((scope.tenant_id, request.snapshot_id))
    if request.evaluation_run_id is not None:
        wanted.runs.add((scope.tenant_id, request.evaluation_run_id))
    wanted.members.update((scope.scope_key, name) for name in request.included_object_ids or ())


async def commit(
    pool: Pool,
    settings: CommonSettings,
    rules: Rules,
    authorizer: Authorizer,
    storage: StorageQuotas,
    works: Sequence[Work],
    *,
    wait: bool,
) -> Committed:
    """Decide and commit; with `wait` it waits for the scopes' locks (lock_timeout), otherwise leaves held ones out.

    Raises the driver's error when the transaction fails; nothing of it is then visible, or all of it (a lost COMMIT).
    """
    async with connection_raw(pool, settings.pool_wait_ms) as conn:
        wanted, refs = wanted_of(works)
        await begin(conn, wanted.scopes)
        done = False
        try:
            seal = NeedleSeal.of(settings)
            result = await _transaction(conn, rules, authorizer, storage, seal, works, wanted, refs, wait=wait)
            await conn.execute("COMMIT")
            done = True
            return result
        finally:
            if not done:
                await rollback(conn)


def connection_raw(pool: Pool, wait_ms: int) -> asyncpg.pool.PoolAcquireContext:
    """A connection whose errors are not yet translated: the committer tells a lost COMMIT from a refusal."""
    return pool.acquire(timeout=wait_ms / 1000)


async def _transaction(
    conn: Connection,
    rules: Rules,
    authorizer: Authorizer,
    storage: StorageQuotas,
    seal: NeedleSeal,
    works: Sequence[Work],
    wanted: Wanted,
    refs: dict[int, ScopeRef],
    *,
    wait: bool,
) -> Committed:
    states = await prefetch(conn, wanted, refs.values())
    await rules.fill(conn, states, works)
    for command in commands_of(works):
        judge_ahead(states[command.scope.scope_key], command)
        attest_ahead(states[command.scope.scope_key], command)
    revisions, at = await lock(conn, sorted(refs), wait=wait)
    mine: list[Work] = []
    left_out: list[Work] = []
    for work in works:
        free = all(ref.scope_key in revisions for ref in scopes_of(work))
        (mine if free else left_out).append(work)
    if at is None or not mine:
        return Committed([], left_out, {})
    await _refresh(conn, mine, states, revisions, refs)
    await rules.fill(conn, states, mine)
    await fill_grants(conn, mine, states)
    await refresh(conn, authorizer, commands_of(mine), states)
    await refresh_authority(conn, authorizer, mine, states)
    await storage.fill(conn, (states[key] for key in revisions))
    rows = Rows()
    decider = Decider(states, rows, at, ENTROPY)
    answers = [(work, decider.decide(work)) for work in mine]
    await _write(conn, states, rows, seal)
    return Committed(answers, left_out, _entries(states, rows))


def _entries(states: dict[int, ScopeState], rows: Rows) -> Mapping[int, int]:
    return Counter(states[int(row[0])].ref.partition for row in rows.ledger)


async def _refresh(
    conn: Connection,
    works: Sequence[Work],
    states: dict[int, ScopeState],
    revisions: dict[int, int],
    refs: dict[int, ScopeRef],
) -> None:
    """Read again, in a statement of its own, the scopes that moved between the prefetch and the lock.

    The others keep what was read first: the second look asks only for what the commands of moved scopes need.
    """
    moved = {key for key, revision in revisions.items() if states[key].revision != revision}
    if not moved:
        return
    again, _ = wanted_of([work for work in works if any(ref.scope_key in moved for ref in scopes_of(work))])
    fresh = await prefetch(conn, again, refs.values())
    states.update({key: fresh[key] for key in moved if key in fresh})


async def _write(conn: Connection, states: dict[int, ScopeState], rows: Rows, seal: NeedleSeal) -> None:
    """One statement for everything that is common; AuthorizationMoved when a tenant's epoch is not the prefetch's."""
    if not rows.touched:
        return
    freed = [rows.freed]
    if rows.receipts:
        await open_erasures(conn, rows, seal)
    if rows.erasures or rows.chosen:
        freed.append(await erase(conn, rows))
    for by_scope in freed:
        for scope_key, content_bytes in by_scope.items():
            states[scope_key].stored.content_bytes -= content_bytes
    if rows.snapshots and not await insert_snapshots(conn, rows.snapshots):
        raise SnapshotTaken
    if rows.rules:
        await change_rules(conn, rows)
    if (rows.grants or rows.revocations or rows.uses or rows.tallies) and not await change_delegations(conn, rows):
        raise UsesMoved
    if rows.held or rows.passed_on or rows.let_go:
        await change_held(conn, rows)
    heads = [states[key] for key in sorted(rows.touched)]
    tenants = {state.ref.tenant_id: state.tenant_epoch for state in heads}
    if not await write(conn, tenants, heads, rows, _usage(heads)):
        raise AuthorizationMoved


def _usage(heads: Sequence[ScopeState]) -> list[UsageRow]:
    """What the tenants of these scopes have stored more; nothing of those for whom it came to the same."""
    found: dict[str, UsageRow] = {}
    for state in heads:
        now, before, tenant_id = state.stored, state.stored_before, state.ref.tenant_id
        _, _, *sums = found.get(tenant_id, (tenant_id, 0, 0, 0, 0))
        more = (now.objects - before.objects, now.versions - before.versions, now.content_bytes - before.content_bytes)
        objects, versions, content_bytes = (one + another for one, another in zip(sums, more, strict=True))
        found[tenant_id] = (tenant_id, state.quotas_version, objects, versions, content_bytes)
    return [row for row in found.values() if any(row[2:])]
