"""Candidates of a ranked query: what the indexes of a scope hold, joined with canonical rows before anything is ranked.

Invariant: a candidate counts only when the version that the index knows is the one that is current where the query
reads, and when it meets every filter and may be seen. So an index that lags, or holds what was erased since, shows
nothing: neither the item nor that there was one (PAMSPEC P150).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString

import asyncpg

from pamspec_common.analysis import Sought
from pamspec_common.postgres import Connection
from pamspec_common.strict_json import parse
from pamspec_query.documents import Mode
from pamspec_query.model.lookups import Lookup
from pamspec_query.model.plan import Plan
from pamspec_query.model.ranking import Candidate, Neighbours
from pamspec_query.queries.heads import Stored
from pamspec_query.queries.predicates import PRIVATE, Arguments, all_of
from pamspec_query.queries.search import few
from pamspec_query.queries.statements import KEY_NAMES, At, Statement, Within, branches_at, key_columns, matching

MAX_ONLY = 20_000
"""A filter that keeps no more than that is put before the candidates: then all of what it keeps is scored."""
_LISTS: tuple[LiteralString, ...] = ("l0", "l1", "l2")
_SCORES: tuple[LiteralString, ...] = ("s0", "s1", "s2")
_PLACES: tuple[LiteralString, ...] = ("r0", "r1", "r2")
_LOOSE: tuple[LiteralString, ...] = ("a0", "a1", "a2")

WATERMARKS_SQL = """
SELECT h.scope_key, h.last_at, i.index_id,
       CASE WHEN w.ledger_epoch = h.ledger_epoch THEN w.sequence ELSE 0 END AS sequence
FROM core.scope_head h
CROSS JOIN unnest($2::text[]) i (index_id)
LEFT JOIN index_.watermark w ON w.scope_key = h.scope_key AND w.index_id = CASE
  WHEN starts_with(i.index_id, 'index:vector:') AND NOT EXISTS (
    SELECT FROM index_.scope_space p
    WHERE p.scope_key = h.scope_key AND 'index:vector:' || p.embedding_space_id = i.index_id)
  THEN 'index:lexical' ELSE i.index_id END
WHERE h.scope_key = ANY ($1::bigint[])
"""

NEIGHBOURS_SQL = "SELECT doc, later, distance FROM index_.neighbours($1, $2::bigint[], $3)"


@dataclass(frozen=True, slots=True)
class Words:
    """The list of what holds some of the words of a text."""

    sought: Sought
    flat: bool = False
    """Whether every word weighs the same, and lengths nothing: for callers who see a part of the scope."""
    mode: Mode = "lexical"


@dataclass(frozen=True, slots=True)
class Near:
    """The list of what lies near a vector in its space."""

    space_id: str
    vector: Sequence[float]
    exact: bool
    mode: Mode = "vector"


@dataclass(frozen=True, slots=True)
class Reached:
    """The list of what a traversal has reached: the nearer, the better."""

    object_ids: Sequence[str]
    scores: Sequence[float]
    mode: Mode = "graph"


Source = Words | Near | Reached


@dataclass(frozen=True, slots=True)
class Found:
    """The candidates of all lists, and how many each list named before the filters."""

    candidates: list[Candidate]
    named: Mapping[str, int]

    kept: Mapping[str, int]
    """How many of each list the filters left, also of those that were cut off behind the depth."""
    docs: Mapping[int, int]
    """The sequence of each doc."""
    loose: Collection[str]
    """The lists that their index found by approximation."""


async def watermarks(
    conn: Connection, scope_keys: Sequence[int], index_ids: Sequence[str]
) -> dict[int, tuple[datetime, dict[str, int]]]:
    """By scope: when its last entry was recorded, and up to where each of the indexes is complete; 0 for none.

    A space that a scope has no vectors of is as far as whatever takes the scope's entries in: nothing of it is missing.
    """
    found: dict[int, tuple[datetime, dict[str, int]]] = {}
    for row in await conn.fetch(WATERMARKS_SQL, scope_keys, index_ids):
        _, known = found.setdefault(row["scope_key"], (row["last_at"], dict.fromkeys(index_ids, 0)))
        if row["index_id"] is not None:
            known[row["index_id"]] = row["sequence"]
    return found


@dataclass(frozen=True, slots=True)
class Depth:
    """How much is asked of the indexes."""

    asked: int
    """So many candidates of each."""
    kept: int
    """So many of each list are kept after the filters."""
    whole: bool = False
    """All that holds a word, instead of the best."""
    only: Sequence[int] | None = None
    """What holds a word, or is near a vector, is looked for among these docs alone, one by one."""


async def candidates(
    conn: Connection, scope_key: int, plan: Plan, at: At, sources: Sequence[Source], depth: Depth, quality: bool
) -> Found:
    """The best candidates of each source that the filters leave."""
    statement = candidates_statement(scope_key, plan, at, sources, depth, quality)
    *rows, sizes = await conn.fetch(statement.sql, *statement.arguments)
    modes = [source.mode for source in sources]
    return Found(
        [_candidate(row, modes, len(plan.order), depth.kept) for row in rows],
        {mode: int(sizes[name]) for mode, name in zip(modes, _SCORES, strict=False)},
        {mode: int(sizes[name]) for mode, name in zip(modes, _PLACES, strict=False)},
        {row["doc"]: row["from_seq"] for row in rows if row["doc"] is not None},
        {mode for mode, name in zip(modes, _LOOSE, strict=False) if sizes[name]},
    )


async def neighbours(conn: Connection, scope_key: int, found: Found, reach: int) -> list[Neighbours]:
    """Which candidates stand near one another in a source session."""
    if reach < 1 or not found.docs:
        return []
    rows = await conn.fetch(NEIGHBOURS_SQL, scope_key, list(found.docs), reach)
    return [Neighbours(found.docs[row["doc"]], found.docs[row["later"]], row["distance"]) for row in rows]


async def matching_docs(conn: Connection, scope_key: int, plan: Plan, at: At) -> list[int] | None:
    """The docs of all that the filters leave, when they are no more than MAX_ONLY."""
    within = await _within(conn, scope_key, plan.lookup, plan, at)
    statement = docs_statement(scope_key, plan, at, within)
    rows = await conn.fetch(statement.sql, *statement.arguments)
    return None if len(rows) > MAX_ONLY else sorted(row[0] for row in rows)


async def _within(conn: Connection, scope_key: int, lookup: Lookup | None, plan: Plan, at: At) -> Within | None:
    if lookup is None or plan.pinned is not None:
        return None
    return await few(conn, scope_key, lookup, at)


def candidates_statement(
    scope_key: int, plan: Plan, at: At, sources: Sequence[Source], depth: Depth, quality: bool
) -> Statement:
    """One statement for all lists: each candidate once, with its score in each, and a last row with the lists' sizes.

    In that row `s0` has how many the first list named and `r0` how many of them the filters left.
    """
    arguments = Arguments()
    scope = arguments.add(scope_key, "bigint")
    lists: list[LiteralString] = []
    parts: list[LiteralString] = []
    for index, source in enumerate(sources):
        lists.append(_LISTS[index] + " AS MATERIALIZED (" + _named(source, scope, at, depth, arguments) + ")")
        ones: list[LiteralString] = [
            ("score" if other == index else "NULL::float8") + " AS " + _SCORES[other] for other in range(len(sources))
        ]
        parts.append("SELECT seq, doc, " + ", ".join(ones) + " FROM " + _LISTS[index])
    numbers = range(len(sources))
    where = all_of([*matching(scope, plan, at, arguments), _current(plan, scope, at, arguments)])
    kept = arguments.add(depth.kept, "bigint")
    places: LiteralString = ", ".join([
        "CASE WHEN " + _SCORES[n] + " IS NOT NULL THEN row_number() OVER (ORDER BY " + _SCORES[n]
        + " DESC NULLS LAST, from_seq DESC) END AS " + _PLACES[n] for n in numbers
    ])  # fmt: skip
    near: LiteralString = " OR ".join([_PLACES[n] + " <= " + kept for n in numbers])
    sizes: LiteralString = ", ".join(["(SELECT count(*) FROM " + _LISTS[n] + ")::float8" for n in numbers])
    loose: LiteralString = ", ".join(["(SELECT bool_or(loose) FROM " + _LISTS[n] + ")" for n in numbers])
    unsaid: LiteralString = ", ".join(["false AS " + _LOOSE[n] for n in numbers])
    left: LiteralString = ", ".join(["(SELECT count(" + _SCORES[n] + ") FROM found)" for n in numbers])
    names: LiteralString = ", ".join([*_SCORES[: len(sources)], *_PLACES[: len(sources)]])
    keys: LiteralString = ", ".join(KEY_NAMES[: len(plan.order)])
    nothing: LiteralString = ", ".join(["NULL" for _ in plan.order])
    signals: LiteralString = _QUALITY if quality else "NULL::text"
    private: LiteralString = "s.private, " if quality else ""
    return Statement(
        "WITH " + ", ".join(lists) + ", f AS MATERIALIZED (SELECT seq, max(doc) AS doc, "
        + ", ".join(["max(" + name + ") AS " + name for name in _SCORES[: len(sources)]]) + " FROM ("
        + " UNION ALL ".join(parts) + ") u GROUP BY seq), found AS MATERIALIZED (SELECT f.doc, "
        + ", ".join(["f." + name for name in _SCORES[: len(sources)]]) + ", s.committed_at, " + private
        + key_columns(plan.order) + " FROM f CROSS JOIN LATERAL (" + _row_of("f.seq", scope, where)
        + ") s), best AS MATERIALIZED (SELECT * FROM (SELECT found.*, " + places + " FROM found) b WHERE " + near + ")"
        " SELECT s.from_seq, s.doc, " + names + ", " + unsaid + ", s.committed_at, " + signals + " AS quality, " + keys
        + " FROM best s UNION ALL SELECT NULL, NULL, " + sizes + ", " + left + ", " + loose + ", NULL, NULL, " + nothing
        + " ORDER BY 1 NULLS LAST",
        arguments.values,
    )  # fmt: skip


def docs_statement(scope_key: int, plan: Plan, at: At, within: Within | None) -> Statement:
    """The docs of the rows that a query matches, one more than MAX_ONLY at most."""
    arguments = Arguments()
    scope = arguments.add(scope_key, "bigint")
    asked = matching(scope, plan, at, arguments)
    start: LiteralString = (
        "SELECT i.doc FROM core.version_span s CROSS JOIN LATERAL (SELECT x.doc FROM index_.indexed_object x"
        " WHERE x.scope_key = " + scope + " AND x.object_id = s.object_id AND x.sequence = s.from_seq"
        " AND NOT x.removed OFFSET 0) i WHERE "
    )  # fmt: skip
    found: LiteralString = " UNION ALL ".join(
        [start + all_of([*asked, *conditions]) for conditions in branches_at(plan, scope, at, within, arguments)]
    )
    return Statement(found + " LIMIT " + arguments.add(MAX_ONLY + 1, "bigint"), arguments.values)


def page_statement(
    scope_key: int, plan: Plan, at: At, sequences: Sequence[int], rows: int, max_bytes: int
) -> Statement:
    """The first rows of these versions, in their order, that are still there and may still be seen, within a weight."""
    arguments = Arguments()
    scope = arguments.add(scope_key, "bigint")
    places = arguments.add(list(sequences), "bigint[]")
    where = all_of([*matching(scope, plan, at, arguments), _current(plan, scope, at, arguments)])
    content: LiteralString = "p.content"
    if plan.fields is not None and "canonical_content" not in plan.fields:
        content = "NULL::bytea"
    bound = arguments.add(max_bytes, "bigint")
    limit = arguments.add(rows, "bigint")
    return Statement(
        "WITH page AS MATERIALIZED (SELECT r.n, s.from_seq FROM unnest(" + places + ") WITH ORDINALITY r (seq, n)"
        " CROSS JOIN LATERAL (" + _row_of("r.seq", scope, where) + ") s ORDER BY r.n LIMIT " + limit
        + "), weighed AS (SELECT page.n, page.from_seq, v.metadata, "
        + content + " AS content, p.private, sum(octet_length(v.metadata) + coalesce(octet_length(" + content + "), 0)"
        " + coalesce(octet_length(p.private), 0) + 16) OVER (ORDER BY page.n) AS bytes FROM page"
        " CROSS JOIN LATERAL (SELECT v.metadata FROM core.version v"
        " WHERE v.scope_key = " + scope + " AND v.ledger_seq = page.from_seq OFFSET 0) v"
        " CROSS JOIN LATERAL (SELECT p.content, p.private FROM core.version_value p"
        " WHERE p.scope_key = " + scope + " AND p.ledger_seq = page.from_seq OFFSET 0) p)"
        " SELECT * FROM weighed WHERE bytes <= " + bound + " OR n = (SELECT min(n) FROM weighed) ORDER BY n",
        arguments.values,
    )  # fmt: skip


async def fetch_standing(
    conn: Connection, scope_key: int, plan: Plan, at: At, sequences: Sequence[int], rows: int, max_bytes: int
) -> list[tuple[int, Stored]]:
    """The first of these versions, in their order, with their sequences."""
    statement = page_statement(scope_key, plan, at, sequences, rows, max_bytes)
    return [
        (row["from_seq"], Stored(row["metadata"], row["content"], row["private"]))
        for row in await conn.fetch(statement.sql, *statement.arguments)
    ]


def _named(source: Source, scope: LiteralString, at: At, depth: Depth, arguments: Arguments) -> LiteralString:
    """What a list names: versions by their sequence in the ledger, each with its score there."""
    if isinstance(source, Reached):
        ids = arguments.add(list(source.object_ids), "text[]")
        scores = arguments.add(list(source.scores), "float8[]")
        current: LiteralString = (
            "SELECT v.ledger_seq AS from_seq FROM core.version v WHERE v.scope_key = " + scope
            + " AND v.object_id = r.object_id AND v.ledger_seq + 0 <= " + arguments.add(at.position, "bigint")
            + " ORDER BY v.version_seq DESC LIMIT 1"
        )  # fmt: skip
        return (
            "SELECT s.from_seq AS seq, i.doc, r.score, false AS loose"
            " FROM unnest(" + ids + ", " + scores + ") r (object_id, score)"
            " CROSS JOIN LATERAL (" + current + ") s"
            " LEFT JOIN LATERAL (SELECT x.doc FROM index_.indexed_object x WHERE x.scope_key = " + scope
            + " AND x.object_id = r.object_id AND x.sequence = s.from_seq OFFSET 0) i ON true"
        )  # fmt: skip
    if isinstance(source, Words):
        asked = arguments.add(None if depth.whole else depth.asked, "integer")
        terms = arguments.add(source.sought.terms, "bigint[]")
        words = arguments.add(source.sought.words, "integer[]")
        languages = arguments.add(source.sought.languages, "integer[]")
        phrases = arguments.add(source.sought.phrases, "text[]")
        weights: list[LiteralString] = ["b => 0", "flat => true"] if source.flat else []
        call: LiteralString = ", ".join([scope, terms, words, languages, phrases, asked, *weights])
        if depth.only is not None:
            call = call + ", among => " + arguments.add(depth.only, "bigint[]")
        return "SELECT c.sequence AS seq, c.doc, c.score, false AS loose FROM index_.lexical_candidates(" + call + ") c"
    asked = arguments.add(depth.asked, "integer")
    only = arguments.add(depth.only, "bigint[]")
    space = arguments.add(source.space_id, "text")
    vector = arguments.add(list(source.vector), "real[]")
    exact = arguments.add(source.exact, "boolean")
    call = ", ".join([scope, space, vector, asked, exact, only])
    return (
        "SELECT i.sequence AS seq, c.doc, c.score, c.approximate AS loose FROM index_.vector_candidates(" + call + ") c"
        " CROSS JOIN LATERAL (SELECT x.sequence FROM index_.indexed_object x WHERE x.scope_key = " + scope
        + " AND x.doc = c.doc OFFSET 0) i"
    )  # fmt: skip


def _row_of(sequence: LiteralString, scope: LiteralString, where: LiteralString) -> LiteralString:
    """The row of a version that was named, if it meets the conditions: always looked up by its key.

    Without the two walls the planner guesses how many are named, and reads the scope from end to end to join them.
    """
    return (
        "SELECT s.* FROM (SELECT * FROM core.version_span v WHERE v.scope_key = " + scope
        + " AND v.from_seq = " + sequence + " OFFSET 0) s WHERE " + where + " OFFSET 0"
    )  # fmt: skip


def _current(plan: Plan, scope: LiteralString, at: At, arguments: Arguments) -> LiteralString:
    """That a row was current at the position, as a page has it."""
    ways = [all_of(conditions) for conditions in branches_at(plan, scope, at, None, arguments)]
    return ways[0] if len(ways) == 1 else "((" + ") OR (".join(ways) + "))"


_QUALITY: LiteralString = "(" + PRIVATE + " -> 'quality_signals')::text"


def _candidate(row: asyncpg.Record, modes: Sequence[str], keys: int, kept: int) -> Candidate:
    """A candidate with its scores in the lists in which it stands within the depth."""
    scores = {
        mode: row[name]
        for mode, name, place in zip(modes, _SCORES, _PLACES, strict=False)
        if row[name] is not None and row[place] <= kept
    }
    quality: Any = None if row["quality"] is None else parse(row["quality"].encode())
    return Candidate(
        sequence=row["from_seq"],
        keys=[row[f"k{index}"] for index in range(keys)],
        scores=scores,
        committed_at=row["committed_at"],
        quality=quality if isinstance(quality, dict) else None,
    )
