"""Where a query reads: at which position of which scopes, and which versions a snapshot or a traversal leaves."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from pamspec_common.authorization.rights import Rights
from pamspec_common.errors import InvalidRequest
from pamspec_common.postgres import Connection
from pamspec_query.documents import Query
from pamspec_query.handlers.context import Context, check_cursor
from pamspec_query.handlers.traverse import Ground, traverse
from pamspec_query.model import ordering
from pamspec_query.model.bounds import Bounds
from pamspec_query.model.cursors import Cursor
from pamspec_query.model.paths import Paths
from pamspec_query.model.plan import Plan
from pamspec_query.model.positions import Head, check_reached
from pamspec_query.queries import snapshots
from pamspec_query.queries.heads import position_at, positions_at
from pamspec_query.queries.lapses import lapses
from pamspec_query.queries.statements import At


async def seen(
    context: Context, conn: Connection, scope_key: int, rights: Rights, request: Query, wanted: Plan
) -> Plan:
    """The plan within what the caller may see, without what has lapsed, and within the snapshot that it names."""
    wanted = replace(wanted, sight=context.seen(rights))
    if request.snapshot_id is None:
        return replace(wanted, lapsed=await lapses(conn, scope_key)) if wanted.hides_lapsed else wanted
    snapshot = await snapshots.snapshot(conn, scope_key, request.snapshot_id, wanted.sight)
    pinned = await snapshots.versions(conn, scope_key, snapshot)
    return replace(wanted, ledger_sequence=snapshot.position, pinned=pinned)


async def reached(
    context: Context,
    conn: Connection,
    scope_key: int,
    head: Head,
    request: Query,
    wanted: Plan,
    cursor: Cursor | None,
) -> tuple[Plan, list[tuple[str, int]], Paths | None]:
    """The plan over what a traversal reaches, the positions of the other scopes that it entered, and wanted paths."""
    assert request.traverse is not None
    if cursor is not None:
        check_cursor(cursor, head)
        position = cursor.position
    else:
        position = await first_position(conn, scope_key, head, wanted)
    ended = None if cursor is None else dict(cursor.elsewhere)
    home = Ground(request.scope_id, scope_key, position, wanted.sight)
    grounds, paths = await traverse(context, conn, home, request.traverse, wanted, ended)
    own = home.sequences if wanted.pinned is None else home.sequences & set(wanted.pinned)
    others = [(ground.scope_key, sequence) for ground in grounds[1:] for sequence in sorted(ground.sequences)]
    entered = [(ground.scope_id, ground.position) for ground in grounds[1:]] if cursor is None else cursor.elsewhere
    by = (*wanted.order, ordering.BY_SCOPE) if entered else wanted.order
    within = replace(wanted, pinned=sorted(own), elsewhere=others, order=by, bounds=Bounds())
    return within, list(entered), paths if request.traverse.paths else None


async def where(conn: Connection, scope_key: int, head: Head, wanted: Plan, cursor: Cursor | None) -> At:
    """Where the page reads."""
    if cursor is not None:
        check_cursor(cursor, head)
        try:
            after = ordering.read(wanted.order, cursor.after)
        except ValueError:
            raise InvalidRequest("The cursor does not fit the ordering; start again without a cursor.") from None
        return await bounded(conn, scope_key, At(cursor.position, cursor.position == head.last_seq, after), wanted)
    position = await first_position(conn, scope_key, head, wanted)
    return await bounded(conn, scope_key, At(position, position == head.last_seq, None), wanted)


async def first_position(conn: Connection, scope_key: int, head: Head, wanted: Plan) -> int:
    """The position of a first page."""
    if wanted.ledger_sequence is not None:
        check_reached(head, wanted.ledger_sequence)
        return wanted.ledger_sequence
    if wanted.recorded_at is not None:
        return await position_at(conn, scope_key, wanted.recorded_at, head.last_seq)
    return head.last_seq


async def bounded(conn: Connection, scope_key: int, at: At, wanted: Plan) -> At:
    """The same within the positions that the query's times and sequences allow."""
    if not (wanted.bounds.after or wanted.bounds.until):
        return at
    times = wanted.bounds.times
    known = dict(zip(times, await positions_at(conn, scope_key, times, at.position), strict=True)) if times else {}

    def position(bound: datetime | int) -> int:
        return bound if isinstance(bound, int) else known[bound]

    low = max([0, *map(position, wanted.bounds.after)])
    high = min([at.position, *map(position, wanted.bounds.until)])
    return replace(at, low=low, high=high)
