"""Reads by id, as the query service notes them: they put idleness off and bring back what had expired by it."""

from __future__ import annotations

from datetime import timedelta

import orjson

from pamspec_common.calls import Call
from pamspec_common.internal import answer as run
from pamspec_query.app import build
from pamspec_query.settings import Settings
from services.retention_sweeper.tests.test_sweeping import garden
from services.retention_sweeper.tests.world import World, until
from services.write.tests.writer import AGENT, KEY, KID, Document


async def test_a_read_is_noted_and_brings_back_what_had_expired(world: World) -> None:
    here = await garden(world)
    await here.govern(idle_seconds=3_600)
    other = await garden(world)
    await other.govern(ttl_seconds=10**9)
    made, elsewhere = await here.writer.create("read"), await other.writer.create("in a scope that does not ask")
    key = await here.writer.scope_key()
    given = {"database_url": world.database.role("query"), "token_keys": {KID: KEY}, "reads_noted_s": 0.05}
    reader = build(Settings.model_validate(given), world.peer)
    await reader.start()

    async def read(of: Document) -> None:
        document = orjson.dumps({"scope_id": of["scope_id"], "object_id": of["object_id"]})
        answer = await run(reader.operations, Call("read", here.writer.signer.sign(AGENT), document))
        assert answer.status == 200, answer.body

    async def reads_of(*ids: str) -> list[Document]:
        document = orjson.dumps({"scope_id": made["scope_id"], "object_ids": ids})
        answer = await run(reader.operations, Call("list_reads", here.writer.signer.sign(AGENT), document))
        assert answer.status == 200, answer.body
        found: list[Document] = orjson.loads(answer.body)["reads"]
        return found

    async def noted() -> bool:
        rows = await here.writer.admin.fetch("SELECT scope_key, object_id FROM retention.access")
        return (key, made["object_id"]) in {tuple(row) for row in rows}

    try:
        async with world.sweeping(timedelta(hours=2)):
            await here.reaches(made, retention_state="expired")
            await here.looked_at()
        # Clocks that run two hours ahead would find it idle again at once.
        async with world.sweeping():
            await read(made)
            await read(elsewhere)
            await until(noted)
            await here.reaches(made, retention_state="retained")
            await here.looked_at()
        told = await reads_of(made["object_id"])
        assert [(one["object_id"], one["reads"]) for one in told] == [(made["object_id"], 1)]
        for _ in range(3):
            await read(made)

        async def counted() -> bool:
            return bool((await reads_of(made["object_id"], "obj:none"))[0]["reads"] == 4)

        await until(counted)
    finally:
        await reader.stop()
    rows = await here.writer.admin.fetch("SELECT object_id FROM retention.access")
    assert elsewhere["object_id"] not in {row["object_id"] for row in rows}
