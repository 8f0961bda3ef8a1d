"""The tables of the schema index_, as the database has them: what each holds, how it lies, who sees it, what an erasure
leaves.
"""

from __future__ import annotations

import pytest

from services.indexing.tests.test_lexical import create
from services.indexing.tests.test_vectors import put, space, until
from services.indexing.tests.world import Garden

DERIVED = {"lexical_document", "lexical_posting", "lexical_term", "vectors"}
"""What is made of content, and what of it may become large."""
SUMS = {"lexical_statistics"}
"""Sums over content: a row for each language."""
BOOKS = {
    "inbox", "parked", "lease", "member", "indexed_object", "watermark", "job", "unready", "cleared", "scope_space",
    "embedding_queue", "embedding_untold",
}  # fmt: skip
"""Names, positions and states: nothing of content, but for the number of a session, which goes with its object."""
OPEN = {"inbox", "parked", "lease", "member", "job", "unready", "cleared", "embedding_queue", "embedding_untold"}
"""Books that the service's own role alone reads, across scopes, to find its work."""

TABLES_SQL = """
SELECT c.relname::text AS name, c.relispartition AS part, c.relrowsecurity AND c.relforcerowsecurity AS walled,
       p.partstrat::text AS strategy, parent.relname::text AS parent,
       (SELECT array_agg(a.attname::text ORDER BY place) FROM pg_index i
        CROSS JOIN unnest(i.indkey::smallint[]) WITH ORDINALITY AS k(attnum, place)
        JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum
        WHERE i.indrelid = c.oid AND i.indisprimary AND place <= i.indnkeyatts) AS key,
       (SELECT array_agg(a.attname::text) FROM unnest(p.partattrs::smallint[]) AS k(attnum)
        JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum) AS by,
       array(SELECT rolname::text FROM pg_roles r WHERE rolname LIKE 'pamspec\\_%'
             AND has_table_privilege(r.oid, c.oid, 'SELECT') ORDER BY 1) AS readers,
       EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'scope_key') AS of_scopes
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_partitioned_table p ON p.partrelid = c.oid
LEFT JOIN pg_inherits h ON h.inhrelid = c.oid LEFT JOIN pg_class parent ON parent.oid = h.inhparent
WHERE n.nspname = 'index_' AND c.relkind IN ('r', 'p') ORDER BY 1"""


async def test_each_table_lies_and_is_walled_as_what_it_holds_demands(garden: Garden) -> None:
    """A table that is new to the schema has to say here what it holds."""
    found = {row["name"]: row for row in await garden.writer.admin.fetch(TABLES_SQL)}
    whole = {name for name, row in found.items() if not row["part"]}
    assert whole - {"schema_migration"} == DERIVED | SUMS | BOOKS
    for name in DERIVED:
        row = found[name]
        assert (row["strategy"], row["by"], row["key"][0]) == ("h", ["scope_key"], "scope_key"), name
        parts = [one for one in found.values() if one["parent"] == name]
        assert len(parts) == 8, name
        for one in (row, *parts):
            assert one["walled"], f"{one['name']}: rows of scopes that nobody named are seen"
            assert one["key"][0] == "scope_key"
    for name in SUMS:
        assert (found[name]["walled"], found[name]["key"][0]) == (True, "scope_key")
    for name in BOOKS:
        row = found[name]
        assert row["walled"] or name in OPEN, f"{name}: walled, or read by its own service alone"
        assert not row["of_scopes"] or row["key"][0] == "scope_key", name


async def test_books_that_are_open_are_for_their_service_and_what_proves_erasures(garden: Garden) -> None:
    """The roles that read across scopes are named; none of them is that of a door."""
    for row in await garden.writer.admin.fetch(TABLES_SQL):
        if row["name"] in OPEN:
            assert not {"pamspec_query", "pamspec_gateway", "pamspec_subscription"} & set(row["readers"]), row["name"]


@pytest.mark.parametrize("way", ["object", "scope"])
async def test_an_erasure_leaves_nothing_made_of_content_in_any_table(garden: Garden, way: str) -> None:
    """Of an object in every table that knows it by its number; of a scope in every table that knows its key."""
    space_id = await space(garden)
    sibling, made = await create(garden, "marigold and tulip"), await create(garden, "lavender")
    await garden.settled()
    for one in (sibling, made):
        await put(garden, space_id, (one, [1.0, 0.0, 0.0]))
    admin = garden.writer.admin
    known = {row["name"] for row in await admin.fetch(TABLES_SQL) if not row["part"]} & (DERIVED | SUMS)
    doc = await admin.fetchval(
        "SELECT doc FROM index_.indexed_object WHERE scope_key = $1 AND object_id = $2", garden.key, made["object_id"]
    )

    async def counted() -> dict[str, int]:
        sql = "SELECT count(*) FROM index_.{} WHERE scope_key = $1"
        return {name: await admin.fetchval(sql.format(name), garden.key) for name in sorted(known)}

    async def of_doc() -> list[int]:
        sql = "SELECT count(*) FROM index_.{} WHERE scope_key = $1 AND doc = $2"
        tables = ("lexical_document", "lexical_posting", "vectors")
        return [await admin.fetchval(sql.format(name), garden.key, doc) for name in tables]

    assert all((await counted()).values())
    assert all(await of_doc())
    if way == "object":
        await garden.writer.delete(made)
        await garden.settled()
        assert await of_doc() == [0, 0, 0]
        assert (await counted())["lexical_term"] == 2, "the words of the sibling"
        assert (await counted())["vectors"] == 1
        return
    await garden.writer.ok("delete_scope", {"scope_id": garden.writer.scope, "policy_basis": "test"})
    await garden.until_cleared()

    async def gone() -> bool:
        return not any((await counted()).values())

    await until(gone)
    # Positions stay: entries come after a deletion too, and erasures go by how far the indexes are.
    kept = {"cleared", "inbox", "lease", "member", "watermark"}
    for name in sorted(BOOKS - kept):
        assert not await admin.fetchval(f"SELECT count(*) FROM index_.{name} WHERE scope_key = $1", garden.key), name
