"""The rows of the lexical index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pamspec_common.analysis import Analyzed
from pamspec_common.postgres import Connection
from pamspec_indexing.queries.objects import Indexed

SELECT_DIGESTS_SQL = """
SELECT d.scope_key, d.doc, d.digest FROM unnest($1::bigint[], $2::bigint[]) AS r(scope_key, doc)
JOIN index_.lexical_document d ON d.scope_key = r.scope_key AND d.doc = r.doc"""

REMOVE_SQL = "SELECT index_.remove_lexical($1, $2)"

ADD_SQL = "SELECT index_.add_lexical($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"

SELECT_DOCUMENTS_SQL = """
SELECT d.scope_key, d.doc, d.language, d.length, d.terms, d.word_order, d.truncated
FROM unnest($1::bigint[], $2::bigint[]) AS r(scope_key, doc)
JOIN index_.lexical_document d ON d.scope_key = r.scope_key AND d.doc = r.doc"""

DRIFT_SQL = """
SELECT index_.lexical_drift($1) + (
  SELECT count(*) FROM index_.lexical_document d WHERE d.scope_key = $1 AND NOT EXISTS (
    SELECT FROM index_.indexed_object x WHERE x.scope_key = $1 AND x.doc = d.doc AND NOT x.removed))"""

REPAIR_SQL = "SELECT index_.lexical_repair($1)"

_CLEAR = """
DELETE FROM index_.{table} WHERE scope_key = $1 AND ctid = ANY (ARRAY(
  SELECT ctid FROM index_.{table} WHERE scope_key = $1 LIMIT $2))"""

TABLES = ("lexical_posting", "lexical_document", "lexical_term", "lexical_statistics")
CLEARING = tuple(_CLEAR.format(table=table) for table in TABLES)
MAX_TIMES = 32_767


class Held(NamedTuple):
    """What the row of an object says."""

    language: int
    length: int
    terms: frozenset[int]
    word_order: str
    truncated: bool

    @classmethod
    def of(cls, analyzed: Analyzed) -> Held:
        """What it has to say."""
        return cls(analyzed.language, analyzed.length, frozenset(analyzed.terms), analyzed.order, analyzed.truncated)


async def fetch_documents(conn: Connection, indexed: Sequence[Indexed]) -> dict[tuple[int, int], Held]:
    """The rows of these, by scope and doc."""
    rows = await conn.fetch(SELECT_DOCUMENTS_SQL, [one.head.scope_key for one in indexed], [one.doc for one in indexed])
    return {
        (row["scope_key"], row["doc"]): Held(
            row["language"], row["length"], frozenset(row["terms"]), row["word_order"], row["truncated"]
        )
        for row in rows
    }


async def drift(conn: Connection, scope_key: int) -> int:
    """Rows of a scope that nothing accounts for."""
    return int(await conn.fetchval(DRIFT_SQL, scope_key))


async def repair(conn: Connection, scope_key: int) -> None:
    """Let documents account for all rows of a scope; the statistics follow."""
    await conn.execute(REPAIR_SQL, scope_key)


async def fetch_digests(conn: Connection, indexed: Sequence[Indexed]) -> dict[tuple[int, int], bytes]:
    """The digests of what is indexed of these, by scope and doc."""
    rows = await conn.fetch(SELECT_DIGESTS_SQL, [one.head.scope_key for one in indexed], [one.doc for one in indexed])
    return {(row["scope_key"], row["doc"]): row["digest"] for row in rows}


async def remove(conn: Connection, indexed: Sequence[Indexed]) -> int:
    """Take these out with their postings and their part in the statistics; how many were there."""
    return int(await conn.fetchval(REMOVE_SQL, [one.head.scope_key for one in indexed], [one.doc for one in indexed]))


async def add(conn: Connection, indexed: Sequence[tuple[Indexed, Analyzed, bytes]]) -> None:
    """Put these in; none of them may be there."""
    places: list[int] = []
    terms: list[int] = []
    times: list[int] = []
    for place, (_, analyzed, _) in enumerate(indexed, 1):
        places += [place] * len(analyzed.terms)
        terms += analyzed.terms
        times += [min(count, MAX_TIMES) for count in analyzed.terms.values()]
    await conn.execute(
        ADD_SQL,
        [one.head.scope_key for one, _, _ in indexed],
        [one.doc for one, _, _ in indexed],
        [analyzed.language for _, analyzed, _ in indexed],
        [analyzed.length for _, analyzed, _ in indexed],
        [analyzed.order for _, analyzed, _ in indexed],
        [analyzed.truncated for _, analyzed, _ in indexed],
        [digest for _, _, digest in indexed],
        places,
        terms,
        times,
    )


async def clear(conn: Connection, scope_key: int, limit: int) -> bool:
    """Remove up to so many rows of a scope; whether some may be left. Statistics are exact again at the end alone."""
    for statement in CLEARING:
        done = await conn.execute(statement, scope_key, limit)
        if int(done.rpartition(" ")[2]) == limit:
            return True
    return False
