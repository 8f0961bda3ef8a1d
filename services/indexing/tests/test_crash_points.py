"""The connection dies before and after every statement of the consumer and of a job: the end is that of a calm run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

import asyncpg
import orjson
import pytest
import pytest_asyncio

from pamspec_cli.servers.databases import Database
from pamspec_cli.servers.nats import NatsAddress
from pamspec_common.calls import Answer, Call
from pamspec_common.consuming import intake
from pamspec_common.consuming import queries as consuming
from pamspec_common.consuming.intake import PASSING, Intake
from pamspec_common.peers import LocalPeer
from pamspec_common.postgres import Pool, close_pool, connection, create_pool, scoped
from pamspec_common.principal import TokenSigner
from pamspec_common.service import Part, Service
from pamspec_indexing.handlers.building import Building
from pamspec_indexing.handlers.entries import Indexing
from pamspec_indexing.handlers.lexical import Lexical
from pamspec_indexing.model import LEXICAL
from pamspec_indexing.queries import jobs
from pamspec_indexing.settings import Settings
from pamspec_indexing.store import Store
from services.indexing.tests.test_jobs import ROWS_SQL
from services.indexing.tests.world import OBJECTS_SQL
from services.write.tests.test_crash_points import Killer, killer
from services.write.tests.writer import KEY, KID, PROVENANCE, Writer, started, stopped, write_settings

__all__ = ["killer"]

TABLES = (
    "inbox", "parked", "indexed_object", "watermark", "job", "unready",
    "lexical_posting", "lexical_document", "lexical_term", "lexical_statistics",
)  # fmt: skip
Snapshot = list[tuple[object, ...]]


class Told:
    """In the place of the write service: what it was asked to record, each operation once."""

    def __init__(self) -> None:
        self.events: dict[str, str] = {}
        service = Service("write", {"record_event": self._record}, self._ready, self._idle, self._idle)
        self.peer = LocalPeer(service)

    async def _record(self, call: Call) -> Answer:
        document = orjson.loads(call.body)
        self.events[document["operation_id"]] = document["event_type"]
        return Answer(200, b"{}")

    async def _ready(self) -> list[Part]:
        return []

    async def _idle(self) -> None:
        return


@dataclass
class Bench:
    """A scope with a history, of which nothing is written any more, and what indexes it."""

    key: int
    killer: Killer
    pool: Pool
    store: Store
    admin: asyncpg.Connection[asyncpg.Record]
    told: Told = field(default_factory=Told)

    async def take_in(self) -> None:
        """Everything that the ledger holds, from wherever the inbox is."""
        async with connection(self.pool, 30_000) as conn:
            worker = Intake(conn, Indexing([Lexical()]), "indexing")
            while places := await consuming.fetch_behind(conn, 0, 10):
                await worker.behind(places)

    async def ask(self) -> None:
        """A rebuild is asked for."""
        async with self.store.scoped([self.key]) as conn:
            assert await jobs.request(conn, self.key, LEXICAL, "rebuild", "op:rebuild") is not None

    async def rebuild(self) -> None:
        """Whatever jobs there are, to their end."""
        building = Building(self.store, self.told.peer, TokenSigner(KID, KEY), [Lexical()], 1.0)
        while await building.step():
            continue

    async def wipe(self) -> None:
        """As before the first entry."""
        for table in TABLES:
            await self.admin.execute(f"DELETE FROM index_.{table}")

    async def rows(self) -> Snapshot:
        """All that is indexed, but for numbers that are given and times."""
        async with scoped(self.admin, [self.key]):
            found = [tuple(row) for row in await self.admin.fetch(ROWS_SQL, self.key)]
            found += [tuple(row) for row in await self.admin.fetch(OBJECTS_SQL, self.key)]
            for sql in (
                "SELECT last_seq, ledger_epoch FROM index_.inbox",
                "SELECT index_id, ledger_epoch, sequence FROM index_.watermark",
                "SELECT sequence, reason FROM index_.parked",
                "SELECT kind, open, told, done, watermark FROM index_.job",
            ):
                found += [tuple(row) for row in await self.admin.fetch(sql)]
        return found

    async def crash(self, run: Callable[[], Awaitable[None]], at: int, *, after: bool) -> bool:
        """Run until the statement of that number; whether there was one."""
        self.killer.arm(at, after=after)
        with suppress(*PASSING):
            await run()
        reached = len(self.killer.seen) > at
        self.killer.arm(-1, after=False)
        return reached


async def live(writer: Writer) -> None:
    """Something of every kind of change."""
    made = [await writer.create({"n": f"marigold and tulip number {n}"}) for n in range(4)]
    made[0] = await writer.update(made[0], "a lily instead")
    moved = writer.change(made[1], dimension="lifecycle", target_state="archived", policy_basis="test")
    await writer.ok("transition", moved)
    basis = {"policy_basis": "test", "provenance": PROVENANCE}
    await writer.ok("redact", writer.change(made[2], redaction_target={"paths": ["/n"]}, **basis))
    await writer.relate(made[0], made[3])
    await writer.delete(made[3])


@pytest_asyncio.fixture(loop_scope="session")
async def bench(
    database: Database, nats: NatsAddress, killer: Killer, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Bench]:
    """Three entries in a transaction, so that there are several."""
    monkeypatch.setattr(intake, "_PAGE", 3)
    writer = await started(database, write_settings(database, nats))
    writer.scope = await writer.new_scope()
    await live(writer)
    key = await writer.scope_key()
    await stopped(writer)
    settings = Settings.model_validate({"database_url": database.role("indexing"), "token_keys": {KID: KEY}})
    pool = await create_pool(settings, "crash", planner={"search_path": "index_"})
    store = Store(settings)
    await store.open()
    admin = await asyncpg.connect(database.dsn)
    yield Bench(key, killer, pool, store, admin)
    await admin.close()
    await store.close()
    await close_pool(pool)


@pytest.mark.parametrize("after", [False, True])
async def test_taking_in_ends_the_same_wherever_it_was_killed(bench: Bench, after: bool) -> None:
    await bench.take_in()
    calm = await bench.rows()
    at = 0
    await bench.wipe()
    while await bench.crash(bench.take_in, at, after=after):
        await bench.take_in()
        assert await bench.rows() == calm, (at, after)
        await bench.wipe()
        at += 1
    assert at > 20, "every statement of several transactions"


@pytest.mark.parametrize("after", [False, True])
async def test_a_rebuild_ends_the_same_wherever_it_was_killed(bench: Bench, after: bool) -> None:
    """Whatever the rows were before; the ledger is told of it under one operation."""
    await bench.take_in()
    await bench.ask()
    await bench.rebuild()
    calm = await bench.rows()
    at = 0
    while True:
        await bench.admin.execute("UPDATE index_.lexical_document SET word_order = ' meddled '")
        await bench.ask()
        bench.told.events.clear()
        reached = await bench.crash(bench.rebuild, at, after=after)
        await bench.rebuild()
        assert await bench.rows() == calm, (at, after)
        assert list(bench.told.events.values()) == ["index_rebuilt"]
        if not reached:
            break
        at += 1
    assert at > 15
