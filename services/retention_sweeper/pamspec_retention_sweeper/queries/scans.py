"""The scans of an erasure's surfaces: each answers whether something is left, and never what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pamspec_common.postgres import Connection
from pamspec_retention_sweeper.queries.erasures import Erasure

CANONICAL_SQL = "SELECT n, contents, privates, records FROM retention.canonical_remains($1, $2, $3, $4, $5)"
REMOVE_CANONICAL_SQL = "SELECT retention.remove_canonical($1, $2, $3, $4)"
BESIDE_SQL = "SELECT n, place FROM retention.needles_beside($1, $2, $3, $4, $5, $6)"
BOOKS_SQL = "SELECT n, place FROM retention.needles_in_books($1, $2, $3)"
UNPUBLISHED_SQL = "SELECT retention.unpublished($1)"
INDEXES_SQL = "SELECT index_id, sequence, deployed FROM retention.index_positions($1)"
DERIVED_SQL = "SELECT object_id, place FROM retention.derived_remains($1, $2, $3)"
REMOVE_DERIVED_SQL = "SELECT retention.remove_derived($1, $2, $3)"
POSTINGS_SQL = "SELECT object_id FROM retention.postings_remain($1, $2, $3)"
REMOVE_POSTINGS_SQL = "SELECT retention.remove_postings($1, $2, $3)"
STANDBYS_SQL = "SELECT found, behind, unseen, here::text FROM retention.standbys($1::text::pg_lsn)"
PAGES_SQL = """
SELECT k.position FROM unnest($2::bigint[]) AS k (position)
WHERE EXISTS (SELECT FROM core.page_bytes($1, k.position) b WHERE b.rewritten_at IS NULL)
"""


class Remains(NamedTuple):
    """How many of an erasure's versions still have values of each kind."""

    contents: int
    privates: int
    records: int


class Indexes(NamedTuple):
    """How far the indexes of a scope are."""

    deployed: bool
    lexical: int | None
    vector: int | None
    """Of the index by vector that is the least far; None where there is none."""


class Standbys(NamedTuple):
    """The standbys of the server."""

    found: int
    behind: int
    unseen: int
    here: str
    """Up to where this server has written."""


async def canonical(conn: Connection, scope_key: int, group: Sequence[Erasure]) -> dict[int, Remains]:
    """By the number of the erasure in the group, what its versions have left."""
    rows = await conn.fetch(CANONICAL_SQL, scope_key, *_spans(group))
    return {row["n"]: Remains(row["contents"], row["privates"], row["records"]) for row in rows}


async def remove_canonical(conn: Connection, scope_key: int, group: Sequence[Erasure]) -> None:
    """Erase again what these erasures named."""
    _, ids, firsts, lasts = _spans(group)
    await conn.execute(REMOVE_CANONICAL_SQL, scope_key, ids, firsts, lasts)


async def needles(
    conn: Connection, scope_key: int, group: Sequence[Erasure], texts: Sequence[tuple[int, str]]
) -> set[tuple[int, str]]:
    """The erasures, by their number in the group, and the surfaces in which one of their needles stands."""
    if not texts:
        return set()
    owners, sought = [owner for owner, _ in texts], [text for _, text in texts]
    ids, positions = [one.subject_id for one in group], [one.position for one in group]
    beside = await conn.fetch(BESIDE_SQL, scope_key, list(range(len(group))), ids, positions, owners, sought)
    books = await conn.fetch(BOOKS_SQL, scope_key, owners, sought)
    return {(row["n"], row["place"]) for row in (*beside, *books)}


async def unpublished(conn: Connection, scope_key: int) -> int | None:
    """The first entry of the scope that still waits for the bus; None where none does."""
    found: int | None = await conn.fetchval(UNPUBLISHED_SQL, scope_key)
    return found


async def indexes(conn: Connection, scope_key: int) -> Indexes:
    """How far the indexes of the scope are."""
    rows = await conn.fetch(INDEXES_SQL, scope_key)
    known = {row["index_id"]: row["sequence"] for row in rows}
    vectors = [known[name] or 0 for name in known if name.startswith("index:vector")]
    return Indexes(any(row["deployed"] for row in rows), known.get("index:lexical"), min(vectors, default=None))


async def derived(conn: Connection, scope_key: int, group: Sequence[Erasure]) -> set[tuple[str, str]]:
    """The objects that a derived table still knows in a state before their erasure, and the table."""
    ids, positions = [one.subject_id for one in group], [one.position for one in group]
    rows = await conn.fetch(DERIVED_SQL, scope_key, ids, positions)
    return {(row["object_id"], row["place"]) for row in rows}


async def remove_derived(conn: Connection, scope_key: int, ids: Sequence[str], place: str) -> None:
    """Take the rows of removed objects from a derived table."""
    await conn.execute(REMOVE_DERIVED_SQL, scope_key, ids, place)


async def postings(conn: Connection, scope_key: int, terms: Sequence[tuple[str, int]]) -> set[str]:
    """The removed objects that still have a posting of one of these terms (object, term); it is taken away."""
    if not terms:
        return set()
    ids, numbers = [name for name, _ in terms], [number for _, number in terms]
    found = {row["object_id"] for row in await conn.fetch(POSTINGS_SQL, scope_key, ids, numbers)}
    if found:
        await conn.execute(REMOVE_POSTINGS_SQL, scope_key, ids, numbers)
    return found


async def standbys(conn: Connection, mark: str | None) -> Standbys:
    """The standbys, measured at a mark; without one at the beginning."""
    row = await conn.fetchrow(STANDBYS_SQL, mark or "0/0")
    assert row is not None
    return Standbys(*row)


async def pages_owed(conn: Connection, scope_key: int, positions: Sequence[int]) -> set[int]:
    """Of erasures at these positions those that removed something from a file that was not written anew since."""
    return {row["position"] for row in await conn.fetch(PAGES_SQL, scope_key, positions)}


def _spans(group: Sequence[Erasure]) -> tuple[list[int], list[str], list[int], list[int]]:
    """A row for each range of versions: the number of its erasure, its object, first and last."""
    rows = [
        (n, one.subject_id or "", first, last)
        for n, one in enumerate(group)
        for first, last in zip(one.erased_from, one.erased_to, strict=True)
    ]
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], [], []]
    return columns[0], columns[1], columns[2], columns[3]
