"""query: structured and temporal retrieval within one scope (PAMSPEC P120-P123, P147-P157)."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import orjson

from pamspec_common.calls import Answer
from pamspec_common.envelope import envelope_bytes, project
from pamspec_common.errors import EmbeddingSpaceMismatch, InvalidRequest, NotOffered
from pamspec_common.postgres import Connection
from pamspec_common.strict_json import dumps
from pamspec_query.documents import Query
from pamspec_query.handlers.context import Context, check_cursor
from pamspec_query.handlers.traverse import Ground, traverse
from pamspec_query.model import ordering
from pamspec_query.model.bounds import Bounds
from pamspec_query.model.cursors import Cursor
from pamspec_query.model.paths import Paths
from pamspec_query.model.plan import Plan, plan
from pamspec_query.model.positions import Head, check_reached, headers
from pamspec_query.model.states import HINT
from pamspec_query.queries import snapshots
from pamspec_query.queries.heads import position_at, positions_at
from pamspec_query.queries.search import Count, Item, count, fetch_page, matches_without_default
from pamspec_query.queries.statements import At


async def query(context: Context, request: Query) -> Answer:
    """A page of what matches, in the order asked for; equal state and request give equal bytes (P156, S17).

    The first page fixes the position; later pages read the same one, whatever is written meanwhile.
    """
    wanted = plan(request)
    _refuse_ranked(wanted)
    text = None if request.pagination is None else request.pagination.cursor
    cursor = None if text is None else context.read_cursor(text)
    async with context.moment(request, wanted.narrowing()) as (conn, scope_key, head, rights):
        wanted = replace(wanted, sight=context.seen(rights))
        if request.snapshot_id is not None:
            snapshot = await snapshots.snapshot(conn, scope_key, request.snapshot_id, wanted.sight)
            pinned = await snapshots.versions(conn, scope_key, snapshot)
            wanted = replace(wanted, ledger_sequence=snapshot.position, pinned=pinned)
        elsewhere: list[tuple[str, int]] = []
        paths = None
        if request.traverse is not None:
            wanted, elsewhere, paths = await _reached(context, conn, scope_key, head, request, wanted, cursor)
        at = await _where(conn, scope_key, head, wanted, cursor)
        page = await fetch_page(conn, scope_key, wanted, at, context.page_bytes)
        counted = await _count(conn, scope_key, wanted, at, cursor)
        hidden = not page.items and cursor is None and wanted.states.defaulted
        hint = hidden and await _hint(context, conn, scope_key, wanted, at)
    next_cursor = None
    if page.more:
        after = ordering.written(wanted.order, page.items[-1].keys)
        carried = None if counted is None else (counted.value, counted.exact)
        next_cursor = context.write_cursor(Cursor(head.ledger_epoch, at.position, after, carried, tuple(elsewhere)))
    shown = [_shown(wanted, item, paths) for item in page.items]
    return Answer(200, _body(shown, next_cursor, hint, counted), headers(at.position, head.ledger_epoch))


def _refuse_ranked(wanted: Plan) -> None:
    """The ranked kinds need an index that does not exist yet."""
    if wanted.ranked is None:
        return
    if wanted.ranked.embedding_space_id is not None:
        raise EmbeddingSpaceMismatch("No such embedding space exists here; register it first.")
    raise NotOffered("Ranked retrieval is not offered yet; send the kind structured.", field="query.kind")


async def _reached(
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
        position = await _position(conn, scope_key, head, wanted)
    ended = None if cursor is None else dict(cursor.elsewhere)
    home = Ground(request.scope_id, scope_key, position, wanted.sight)
    grounds, paths = await traverse(context, conn, home, request.traverse, wanted, ended)
    own = home.sequences if wanted.pinned is None else home.sequences & set(wanted.pinned)
    others = [(ground.scope_key, sequence) for ground in grounds[1:] for sequence in sorted(ground.sequences)]
    entered = [(ground.scope_id, ground.position) for ground in grounds[1:]] if cursor is None else cursor.elsewhere
    by = (*wanted.order, ordering.BY_SCOPE) if entered else wanted.order
    reached = replace(wanted, pinned=sorted(own), elsewhere=others, order=by, bounds=Bounds())
    return reached, list(entered), paths if request.traverse.paths else None


async def _count(conn: Connection, scope_key: int, wanted: Plan, at: At, cursor: Cursor | None) -> Count | None:
    """The count of the first page, which its cursors carry on."""
    if wanted.count is None:
        return None
    if cursor is not None and cursor.count is not None:
        return Count(*cursor.count)
    return await count(conn, scope_key, wanted, at, wanted.count == "exact")


async def _hint(context: Context, conn: Connection, scope_key: int, wanted: Plan, at: At) -> bool:
    settings = context.store.settings
    return await matches_without_default(conn, scope_key, wanted, at, settings.hint_window, settings.hint_timeout_ms)


async def _where(conn: Connection, scope_key: int, head: Head, wanted: Plan, cursor: Cursor | None) -> At:
    """Where the page reads."""
    if cursor is not None:
        check_cursor(cursor, head)
        try:
            after = ordering.read(wanted.order, cursor.after)
        except ValueError:
            raise InvalidRequest("The cursor does not fit the ordering; start again without a cursor.") from None
        return await _bounded(conn, scope_key, At(cursor.position, cursor.position == head.last_seq, after), wanted)
    position = await _position(conn, scope_key, head, wanted)
    return await _bounded(conn, scope_key, At(position, position == head.last_seq, None), wanted)


async def _position(conn: Connection, scope_key: int, head: Head, wanted: Plan) -> int:
    """The position of a first page."""
    if wanted.ledger_sequence is not None:
        check_reached(head, wanted.ledger_sequence)
        return wanted.ledger_sequence
    if wanted.recorded_at is not None:
        return await position_at(conn, scope_key, wanted.recorded_at, head.last_seq)
    return head.last_seq


async def _bounded(conn: Connection, scope_key: int, at: At, wanted: Plan) -> At:
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


def _shown(wanted: Plan, item: Item, paths: Paths | None) -> bytes:
    """One item, members in the order of their names."""
    stored = item.stored
    if wanted.fields is None:
        shown = b'"envelope":' + envelope_bytes(stored.metadata, stored.content, stored.private)
    else:
        shown = b'"projection":' + project(stored.metadata, stored.content, stored.private, wanted.fields)
    if paths is None:
        return b"{" + shown + b"}"
    known = orjson.loads(stored.metadata)
    path = paths.to((known["scope_id"], known.get("object_id") or known["relationship_id"]))
    member = b'"path":' + dumps(path)
    return b"{" + (shown + b"," + member if wanted.fields is None else member + b"," + shown) + b"}"


def _body(items: list[bytes], next_cursor: str | None, hint: bool, counted: Count | None) -> bytes:
    """The answer's bytes, members in the order of their names."""
    number = b"" if counted is None else b'"count":' + dumps({"exact": counted.exact, "value": counted.value}) + b","
    told = b'"hint":' + dumps(HINT) + b"," if hint else b""
    return b"{" + number + told + b'"items":[' + b",".join(items) + b'],"next_cursor":' + dumps(next_cursor) + b"}"
