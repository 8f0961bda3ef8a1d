"""query of the kinds semantic and hybrid: candidates, one order, and a page of it (PAMSPEC P120-P123, P148-P157).

Invariant: what the caller may not see, what the filters leave out and what an index holds of older versions is gone
before anything is ranked, counted or cut. The first page ranks; its cursors carry the rest of the order, so later pages
neither skip nor repeat whatever is written meanwhile, and leave out what was erased since.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from math import ceil
from typing import Any

from pamspec_common.analysis import sought
from pamspec_common.calls import Answer
from pamspec_common.embedding_spaces import check_vector
from pamspec_common.strict_json import dumps
from pamspec_query.documents import Query
from pamspec_query.finding import RerankFailed
from pamspec_query.handlers.answering import page_body, shown
from pamspec_query.handlers.context import Context, Moment, check_cursor
from pamspec_query.handlers.placing import bounded, first_position, reached, seen, where
from pamspec_query.handlers.traverse import Ground, traverse
from pamspec_query.model import carried
from pamspec_query.model.cursors import Cursor
from pamspec_query.model.disclosure import FILTERS, GRAPH, Listed, disclosed, filters_applied, index_ids
from pamspec_query.model.plan import Plan
from pamspec_query.model.positions import Head, headers, lagging
from pamspec_query.model.ranked import Ranked
from pamspec_query.model.ranking import PARAMETERS, Rules, Standing, ranked, reranked
from pamspec_query.model.texts import text_of
from pamspec_query.queries import candidates as store
from pamspec_query.queries.candidates import Depth, Found, Near, Reached, Source, Words
from pamspec_query.queries.search import Count
from pamspec_query.queries.spaces import space
from pamspec_query.queries.statements import At

OVERFETCH = 1.25
"""So many times the depth is asked of an index at first, since filters leave some out."""
_GROWTH, _MOST = 5, 10_000
_LEFT, _MARGIN = 0.05, 1.5
"""Where the filters leave at least that share of what an index names, so many times what is needed is asked for: that
is less work than to find and to score all that they leave.
"""
_POSTINGS = 40_000
"""Where the words of a query have no more postings than that, the lexical index leaves nothing out."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """One order over a scope at one position, and what the answer says of the indexes behind it."""

    order: Sequence[Standing]
    index: Mapping[str, Any]
    count: Count | None = None


async def ranked_query(context: Context, request: Query, wanted: Plan) -> Answer:
    """A page of what is most like what is looked for; equal index state and request give equal bytes (P156)."""
    text = None if request.pagination is None else request.pagination.cursor
    if text is None:
        return await _first_page(context, request, wanted)
    cursor = context.read_cursor(text)
    order, read = carried.read(cursor.after)
    placed = replace(wanted, ledger_sequence=cursor.position) if request.snapshot_id is not None else wanted
    index = {**read, FILTERS: filters_applied(placed, request)}
    counted = None if cursor.count is None else Count(*cursor.count)
    async with context.moment(request, wanted.narrowing()) as moment:
        check_cursor(cursor, moment.head)
        return await _page(context, moment, wanted, cursor.position, Ranking(order, index, counted), hint=False)


async def _first_page(context: Context, request: Query, wanted: Plan) -> Answer:
    looked = wanted.ranked
    assert looked is not None
    await _reach(context, request, looked)
    vector = looked.vector
    if looked.needs_embedding:
        vector = await _embedded(context, request, looked)
    async with context.moment(request, wanted.narrowing()) as moment:
        wanted = await seen(context, moment.conn, moment.scope_key, moment.rights, request, wanted)
        sources, wanted = await _sources(context, moment, request, wanted, vector)
        at = await where(moment.conn, moment.scope_key, moment.head, wanted, None)
        ranking = await _ranking(moment, request, wanted, at, sources)
        if not looked.rerank:
            hint = not ranking.order and wanted.states.defaulted and await _hidden(moment, wanted, at, sources)
            return await _page(context, moment, wanted, at.position, ranking, hint=hint)
        depth = context.store.settings.rerank_depth
        sequences = [one.sequence for one in ranking.order[:depth]]
        best = await store.fetch_standing(
            moment.conn, moment.scope_key, wanted, at, sequences, depth, context.page_bytes
        )
    ranking = await _reranked(context, looked, ranking, [text_of(stored.content) for _, stored in best])
    async with context.moment(request, wanted.narrowing()) as moment:
        return await _page(context, moment, wanted, at.position, ranking, hint=False)


async def _reach(context: Context, request: Query, looked: Ranked) -> None:
    """Wait until the scope and every index of the query have reached the floor (K1-K3)."""
    if request.min_sequence is None:
        return
    scope_key = await context.scope_key(request.scope_id)

    async def permit(head: Head) -> object:
        return await context.rights(scope_key, head)

    ids = [index_id for index_id in index_ids(looked).values() if index_id != GRAPH]
    await context.store.floors.reach(
        scope_key, request.min_sequence, request.wait_ms, request.ledger_epoch, permit, tuple(ids)
    )


async def _embedded(context: Context, request: Query, looked: Ranked) -> Sequence[float]:
    """The vector of the text, made while no connection is held, once the caller is known to be let in."""
    assert looked.embedding_space_id is not None
    assert looked.text is not None
    async with context.moment(request) as moment:
        known = await space(moment.conn, context.principal.tenant_id, looked.embedding_space_id)
    who = (context.principal.tenant_id, request.scope_id)
    vector = await context.finding.vector(*who, looked.embedding_space_id, looked.text)
    check_vector(known, vector, "query.text")
    return vector


async def _sources(
    context: Context, moment: Moment, request: Query, wanted: Plan, vector: Sequence[float] | None
) -> tuple[list[Source], Plan]:
    """What names candidates, by mode, and the plan within what a traversal leaves."""
    looked = wanted.ranked
    assert looked is not None
    sources: list[Source] = []
    for mode in looked.modes:
        if mode == "lexical":
            sources.append(Words(sought(looked.text or ""), flat=not wanted.sight.everything))
        elif mode == "vector":
            assert vector is not None
            space_id = looked.embedding_space_id or ""
            check_vector(await space(moment.conn, context.principal.tenant_id, space_id), vector, "query.vector")
            sources.append(Near(space_id, vector, looked.exact))
        else:
            sources.append(await _neighbours(context, moment, request, wanted))
    if request.traverse is None or "graph" in looked.modes:
        return sources, wanted
    within, _, _ = await reached(context, moment.conn, moment.scope_key, moment.head, request, wanted, None)
    return sources, replace(wanted, pinned=within.pinned, bounds=within.bounds)


async def _neighbours(context: Context, moment: Moment, request: Query, wanted: Plan) -> Reached:
    """What a traversal reaches in the query's own scope, by how many hops away it is."""
    assert request.traverse is not None
    position = await first_position(moment.conn, moment.scope_key, moment.head, wanted)
    home = Ground(request.scope_id, moment.scope_key, position, wanted.sight)
    _, paths = await traverse(context, moment.conn, home, request.traverse, wanted, None)
    ways = {object_id: paths.to((request.scope_id, object_id)) for object_id in sorted(home.seen)}
    near = {object_id: 1 / len(way["steps"]) for object_id, way in ways.items() if way is not None}
    return Reached(list(near), list(near.values()))


async def _ranking(moment: Moment, request: Query, wanted: Plan, at: At, sources: Sequence[Source]) -> Ranking:
    looked = wanted.ranked
    assert looked is not None
    ids = index_ids(looked)
    marks = await store.watermarks(moment.conn, [moment.scope_key], list(ids.values()))
    last_at, known = marks[moment.scope_key]
    known = {**known, **({GRAPH: at.position} if "graph" in looked.modes else {})}
    _check_floor(request, moment.head, known)
    found, depth = await _found(moment, wanted, at, sources)
    beside = await store.neighbours(moment.conn, moment.scope_key, found, PARAMETERS.context_reach)
    order = ranked(found.candidates, looked.modes, _rules(wanted, looked, last_at), beside)
    lists = [_listed(source, ids, known, found, depth, moment.head) for source in sources]
    whole = all(one.complete for one in lists) and len(order) == len(found.candidates)
    index = disclosed(wanted, looked, lists, request, past=not at.is_head)
    return Ranking(order, index, Count(len(order), whole) if wanted.count else None)


def _listed(
    source: Source, ids: Mapping[str, str], known: Mapping[str, int], found: Found, depth: Depth, head: Head
) -> Listed:
    """What the answer says of a list."""
    mode = source.mode
    ends, approximate = found.named[mode] >= depth.asked, mode in found.loose
    if isinstance(source, Words):
        ends = ends and not depth.whole
        approximate = not depth.whole and len(source.sought.terms) * head.last_seq > _POSTINGS
    complete = not ends and not approximate and found.kept[mode] <= depth.kept
    return Listed(mode, ids[mode], known[ids[mode]], approximate, complete)


def _check_floor(request: Query, head: Head, known: Mapping[str, int]) -> None:
    """A floor is never satisfied by a lower watermark (K2), also when an index was dropped since it was waited for."""
    floor = request.min_sequence
    if floor is not None and any(mark < floor for index_id, mark in known.items() if index_id != GRAPH):
        raise lagging(head, floor, known)


def _rules(wanted: Plan, looked: Ranked, last_at: datetime) -> Rules:
    descending = [key.descending for key in wanted.order]
    return Rules(looked.profile, descending, looked.by_semantic_score, looked.explain, last_at)


async def _found(moment: Moment, wanted: Plan, at: At, sources: Sequence[Source]) -> tuple[Found, Depth]:
    """Candidates that the filters leave, and how much was asked of the indexes.

    Where the filters leave too few of what an index names first, it is asked for as many as should do; where they leave
    but a small share, all that they leave is scored instead; where that is too much, the indexes are asked for more.
    """
    assert wanted.ranked is not None
    quality = wanted.ranked.profile.quality > 0
    around = (moment.conn, moment.scope_key, wanted, at)
    whole = wanted.ranked.exact or _flat(sources)
    depth = Depth(int(PARAMETERS.depth * OVERFETCH), PARAMETERS.depth, whole=whole)
    if wanted.pinned is None:
        found = await store.candidates(*around, sources, depth, quality)
        if not _short(found, depth):
            return found, depth
        enough = _enough(found, depth)
        if enough is not None:
            more = replace(depth, asked=enough)
            found = await store.candidates(*around, sources, more, quality)
            if not _short(found, more):
                return found, more
    docs = await store.matching_docs(*around)
    if docs is not None:
        depth = replace(depth, asked=depth.kept + 1, whole=True, only=docs)
        return await store.candidates(*around, sources, depth, quality), depth
    while depth.asked < _MOST:
        depth = replace(depth, asked=depth.asked * _GROWTH, whole=True)
        found = await store.candidates(*around, sources, depth, quality)
        if not _short(found, depth):
            break
    return found, depth


def _flat(sources: Sequence[Source]) -> bool:
    """Whether words weigh the same, so that a limit on them would keep any, also what may not be seen."""
    return any(isinstance(source, Words) and source.flat for source in sources)


def _short(found: Found, depth: Depth) -> bool:
    """Whether a list that names more was left with less than is fused."""
    return any(
        named >= depth.asked and found.kept[mode] < depth.kept
        for mode, named in found.named.items()
        if not (mode == "lexical" and depth.whole)
    )


def _enough(found: Found, depth: Depth) -> int | None:
    """How many to ask for so that each list should be left with what is fused; None where that is too many."""
    wanted = depth.asked
    for mode, named in found.named.items():
        kept = found.kept[mode]
        if named < depth.asked or kept >= depth.kept:
            continue
        if mode == "graph" or kept < named * _LEFT:
            return None
        wanted = max(wanted, ceil(depth.kept * named / kept * _MARGIN))
    return wanted


async def _hidden(moment: Moment, wanted: Plan, at: At, sources: Sequence[Source]) -> bool:
    """Whether the default states alone leave nothing."""
    states = replace(wanted.states, passing=wanted.states.named)
    lifted = replace(wanted, states=states)
    depth = Depth(PARAMETERS.depth, 1, whole=_flat(sources))
    found = await store.candidates(moment.conn, moment.scope_key, lifted, at, sources, depth, False)
    return bool(found.candidates)


async def _reranked(context: Context, looked: Ranked, ranking: Ranking, texts: Sequence[str]) -> Ranking:
    """The order after a reranker's opinion on the best; the same order and the reason where there is none."""
    reranker = context.finding.reranker
    told: dict[str, Any] = {"applied": False}
    order = ranking.order
    if looked.text is None:
        told["reason"] = "no_text"
    elif context.grant is not None:
        told["reason"] = "delegated"
    elif reranker is None:
        told["reason"] = "not_configured"
    else:
        told["model"] = reranker.model
        try:
            scores = await reranker.scores(looked.text, texts) if texts else []
            order, told["applied"] = reranked(order, scores), True
        except TimeoutError:
            told["reason"] = "too_slow"
        except RerankFailed:
            told["reason"] = "failed"
    return replace(ranking, order=order, index={**ranking.index, "rerank": told})


async def _page(
    context: Context, moment: Moment, wanted: Plan, position: int, ranking: Ranking, *, hint: bool
) -> Answer:
    """The first items of an order, as they were at its position and may be seen now."""
    conn, head = moment.conn, moment.head
    wanted = replace(wanted, sight=context.seen(moment.rights), pinned=None)
    at = await bounded(conn, moment.scope_key, At(position, position == head.last_seq, None), wanted)
    sequences = [one.sequence for one in ranking.order]
    rows = await store.fetch_standing(
        conn, moment.scope_key, wanted, at, sequences, wanted.limit + 1, context.page_bytes
    )
    standing = {one.sequence: one for one in ranking.order}
    items = [shown(wanted.fields, stored, _beside(standing[sequence])) for sequence, stored in rows[: wanted.limit]]
    left = _left(ranking.order, [sequence for sequence, _ in rows], wanted.limit)
    next_cursor = None
    if left:
        count = ranking.count
        told = None if count is None else (count.value, count.exact)
        beside = {name: said for name, said in ranking.index.items() if name != FILTERS}
        next_cursor = context.write_cursor(Cursor(head.ledger_epoch, position, carried.written(left, beside), told))
    body = page_body(items, next_cursor, hint, ranking.count, dumps(ranking.index))
    return Answer(200, body, headers(position, head.ledger_epoch))


def _left(order: Sequence[Standing], shown_now: Sequence[int], limit: int) -> Sequence[Standing]:
    """What of an order comes after a page; nothing where the page showed all that is still there."""
    if not shown_now:
        return []
    last = shown_now[:limit][-1]
    place = next(index for index, one in enumerate(order) if one.sequence == last)
    return order[place + 1 :]


def _beside(standing: Standing) -> dict[str, bytes]:
    """What stands beside an item, by its name."""
    found = {"score": dumps(standing.score)}
    if standing.semantic_score is not None:
        found["semantic_score"] = dumps(standing.semantic_score)
    if standing.explanation is not None:
        found["explanation"] = dumps(standing.explanation)
    return found
