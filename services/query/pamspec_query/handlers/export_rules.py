"""What stands beside the ledger in an export: policies, schemas, holds with the objects that they hold, and snapshots.

Invariant: each is what it is at its page's moment; of holds and snapshots only those of positions in the file.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

import msgspec

from pamspec_common.instants import wire
from pamspec_common.postgres import Connection
from pamspec_common.transfer import HeldLine, HoldLine, PolicyLine, SchemaLine, SnapshotLine, encode_line
from pamspec_query.queries import export as pages

RULE_ROWS = 20
HELD_ROWS = 1000

Reading = Callable[[], AbstractAsyncContextManager[Connection]]
"""Gives a moment in which to read a page."""


async def rule_lines(reading: Reading, scope_key: int, until: int) -> AsyncIterator[bytes]:
    """All of it, some lines at a time."""
    for kind in (_policies, _schemas, _holds, _held, _snapshots):
        async for lines in kind(reading, scope_key, until):
            yield lines


async def _policies(reading: Reading, scope_key: int, until: int) -> AsyncIterator[bytes]:
    after = 0
    while True:
        async with reading() as conn:
            rows = await pages.export_policies(conn, scope_key, after, RULE_ROWS)
        if not rows:
            return
        after = rows[-1].policy_version
        yield b"".join(map(_policy_line, rows))


async def _schemas(reading: Reading, scope_key: int, until: int) -> AsyncIterator[bytes]:
    after = ""
    while True:
        async with reading() as conn:
            rows = await pages.export_schemas(conn, scope_key, after, RULE_ROWS)
        if not rows:
            return
        after = rows[-1].schema_id
        yield b"".join(map(_schema_line, rows))


async def _holds(reading: Reading, scope_key: int, until: int) -> AsyncIterator[bytes]:
    after = ""
    while True:
        async with reading() as conn:
            rows = await pages.export_holds(conn, scope_key, after, until, RULE_ROWS)
        if not rows:
            return
        after = rows[-1].hold_id
        yield b"".join(map(_hold_line, rows))


async def _held(reading: Reading, scope_key: int, until: int) -> AsyncIterator[bytes]:
    after = ("", "")
    while True:
        async with reading() as conn:
            rows = await pages.export_held(conn, scope_key, after, HELD_ROWS)
        if not rows:
            return
        after = (rows[-1].hold_id, rows[-1].object_id)
        yield b"".join(
            encode_line(HeldLine(hold_id=row.hold_id, object_id=row.object_id, retention_state=row.retention_state))
            for row in rows
        )


async def _snapshots(reading: Reading, scope_key: int, until: int) -> AsyncIterator[bytes]:
    after = ""
    while True:
        async with reading() as conn:
            rows = await pages.export_snapshots(conn, scope_key, after, until, RULE_ROWS)
        if not rows:
            return
        after = rows[-1].snapshot_id
        yield b"".join(map(_snapshot_line, rows))


def _policy_line(row: pages.PolicyRow) -> bytes:
    line = PolicyLine(
        policy_version=row.policy_version,
        policy=msgspec.Raw(row.policy),
        actor_id=row.actor_id,
        operation_id=row.operation_id,
        changed_at=wire(row.changed_at),
        policy_basis=row.policy_basis,
        authenticated_as=row.authenticated_as,
    )
    return encode_line(line)


def _schema_line(row: pages.SchemaRow) -> bytes:
    line = SchemaLine(
        schema_id=row.schema_id,
        document=msgspec.Raw(row.document),
        actor_id=row.actor_id,
        operation_id=row.operation_id,
        registered_at=wire(row.registered_at),
        authenticated_as=row.authenticated_as,
    )
    return encode_line(line)


def _hold_line(row: pages.HoldRow) -> bytes:
    line = HoldLine(
        hold_id=row.hold_id,
        policy_basis=row.policy_basis,
        actor_id=row.actor_id,
        operation_id=row.operation_id,
        placed_at=wire(row.placed_at),
        placed_sequence=row.placed_seq,
        undone=row.undone,
        object_type=row.object_type,
        authenticated_as=row.authenticated_as,
        released_at=None if row.released_at is None else wire(row.released_at),
        release_basis=row.release_basis,
        released_by=row.released_by,
        release_operation_id=row.release_operation_id,
    )
    return encode_line(line)


def _snapshot_line(row: pages.SnapshotRow) -> bytes:
    line = SnapshotLine(
        snapshot_id=row.snapshot_id,
        ledger_epoch=row.ledger_epoch,
        watermark=row.watermark,
        gives_clock=row.gives_clock,
        created_at=wire(row.created_at),
        document=msgspec.Raw(row.document),
        evaluation_run_id=row.evaluation_run_id,
    )
    return encode_line(line)
