"""The vector search finds what an exact comparison finds: the bench at a small size."""

import asyncpg

from pamspec_cli.bench.vectors import FILTERED, RECALL, Clusters, plant, search, some
from pamspec_cli.servers.databases import Database

COUNT = 3000


async def test_the_index_finds_what_is_nearest_with_and_without_a_filter(database: Database) -> None:
    clusters = Clusters.made(COUNT)
    conn = await asyncpg.connect(database.dsn)
    await plant(conn, clusters)
    everything = await search(conn, clusters)
    assert everything.recall >= RECALL
    assert everything.approximate == len(clusters.asked)
    assert (await search(conn, clusters, exactly=True)).recall == 1.0
    half = await search(conn, clusters, some(COUNT, 0.5))
    assert half.recall >= FILTERED
    assert half.approximate == len(clusters.asked)
    few = await search(conn, clusters, some(COUNT, 0.01))
    assert (few.recall, few.approximate) == (1.0, 0)
    await conn.close()
