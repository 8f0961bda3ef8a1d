"""Everything that takes several steps goes on while the processes that carry it out are killed, one after the other."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pamspec_client import AsyncClient, ClientError, ServiceUnavailable
from tests.integration.checks import drained, whole
from tests.integration.harness import Fleet, until
from tests.integration.load import items, make_scopes, notes

NOTES = 240
HELD = 600
STEP = 12
"""How much of each kind of work is done between two kills."""
PACE_S = 1.0
"""Between two imports; a twentieth of it between others: there is work at every kill, and not too much at the end."""
P: Any = {"activity": "told"}


@dataclass
class Work:
    """What clients do meanwhile, and what they were answered."""

    client: AsyncClient
    scope_id: str
    static: str
    """A scope that nobody writes."""
    path: Path
    """An export of it."""
    scratch: list[tuple[str, str]]
    held: str = ""
    stopping: bool = False
    done: Counter[str] = field(default_factory=Counter)
    promoted: dict[str, tuple[str, str]] = field(default_factory=dict)
    sealed: dict[str, str] = field(default_factory=dict)
    imported: list[str] = field(default_factory=list)
    _turns: itertools.count[int] = field(default_factory=itertools.count)

    async def promote(self) -> None:
        """Each note of working memory once; a retry is answered with the first outcome."""
        while not self.stopping and self.scratch:
            object_id, version_id = self.scratch.pop()
            made = await self.client.promote(
                scope_id=self.scope_id, source_object_id=object_id, expected_version_id=version_id,
                target_object_type="claim", target_canonical_content={"from": object_id}, provenance=P,
            )  # fmt: skip
            self.promoted[object_id] = (made.object.object_id or "", made.relationship_id)
            self.done["promote"] += 1
            await asyncio.sleep(PACE_S / 20)

    async def seal(self) -> None:
        """Snapshots, one after the other."""
        while not self.stopping:
            made = await self.client.seal_snapshot(
                scope_id=self.scope_id, snapshot_id=f"snap:kills-{next(self._turns)}"
            )
            self.sealed[made.snapshot.snapshot_id] = made.snapshot.digest or ""
            self.done["seal"] += 1
            await asyncio.sleep(PACE_S / 20)

    async def walk(self) -> None:
        """Pages of what nobody writes: every walk sees every object once, whichever process answers its pages."""
        query: Any = {"kind": "structured", "trust": "all"}
        while not self.stopping:
            seen: list[str] = []
            async for item in self.client.query_items(scope_id=self.static, query=query, page_size=25):
                seen.append(item.envelope.object_id or "")
            assert (len(seen), len(set(seen))) == (NOTES, NOTES)
            self.done["walk"] += STEP

    async def import_copies(self) -> None:
        """The same file under ever new names; whoever loses the answer sends it again."""
        while not self.stopping:
            name = f"copy:kills-{next(self._turns)}"
            while True:
                try:
                    taken = await self.client.import_(self.path, remap={"scope_id": name})
                except (ServiceUnavailable, ClientError):
                    await asyncio.sleep(0.1)
                    continue
                assert taken.entries == NOTES
                break
            self.imported.append(name)
            self.done["import"] += STEP
            await asyncio.sleep(PACE_S)


@pytest.mark.timeout(600)
async def test_work_of_several_steps_survives_every_kill(fleet: Fleet, tmp_path: Path) -> None:
    """Promote, seal, import, walk and a hold's job, while query, write, relay and PostgreSQL are killed in turn."""
    client = fleet.client()
    scope_id, static = await make_scopes(client, "kills", 2)
    await client.batch(scope_id=static, items=items(notes([static], "static"), NOTES))
    path = tmp_path / "static.ndjson"
    path.write_bytes(b"".join([piece async for piece in client.export(scope_id=static)]))
    made = await _create(client, scope_id, "working_memory", {"task_ref": "task:t", "content": 1}, 400)
    await _create(client, scope_id, "decision", 1, HELD)
    work = Work(client, scope_id, static, path, made)
    running = [
        asyncio.create_task(one)
        for one in (work.promote(), work.promote(), work.seal(), work.walk(), work.import_copies())
    ]
    for victim in ("query", "relay", "postgres", "write", "write"):
        await _progress(work, running)
        if victim == "write" and not work.held:
            placed = await client.place_hold(scope_id=scope_id, object_type="decision", policy_basis="matter 7")
            work.held = placed.hold_id
            await until(lambda: _holding(fleet, work), 90, "the job has begun", every_s=0.01)
        if victim == "postgres":
            fleet.postgres.process.kill()
            await fleet.postgres.start()
        else:
            fleet.kill(victim)
            await fleet[victim].start()
    await _progress(work, running)
    work.stopping = True
    async with asyncio.timeout(90):
        await asyncio.gather(*running)
    await until(lambda: _settled(work), 90, "the hold is settled", every_s=0.2)
    await drained(fleet, 90)
    await _everything_once(fleet, work)
    await whole(fleet, [scope_id, static, *work.imported[-3:]], within_s=90)


async def _create(client: AsyncClient, scope_id: str, kind: str, content: Any, count: int) -> list[tuple[str, str]]:
    made: list[tuple[str, str]] = []
    for _ in range(count // 200):
        one: Any = {"operation": "create", "object_type": kind, "canonical_content": content, "provenance": P}
        results: Any = (await client.batch(scope_id=scope_id, items=[one] * 200)).results
        made += [(result.object_id, result.version_id) for result in results]
    return made


async def _progress(work: Work, running: list[asyncio.Task[None]]) -> None:
    """Returns when some more of each kind is done; raises what a worker was refused with."""
    kinds = ("promote", "seal", "walk", "import")
    wanted = {kind: work.done[kind] + STEP for kind in kinds}

    async def further() -> bool:
        for task in running:
            if task.done() and not work.stopping:
                task.result()
        return all(work.done[kind] >= wanted[kind] or (kind == "promote" and not work.scratch) for kind in kinds)

    await until(further, 90, "every kind of work goes on")


async def _holding(fleet: Fleet, work: Work) -> bool:
    """Whether the job has put something on hold: it takes 500 objects a second, so it is in the middle of it."""
    async with fleet.database() as database:
        return bool(
            await database.fetchval("SELECT EXISTS (SELECT FROM core.held_object WHERE hold_id = $1)", work.held)
        )


async def _settled(work: Work) -> bool:
    page = await work.client.list_holds(scope_id=work.scope_id)
    return [hold.settled for hold in page.holds if hold.hold_id == work.held] == [True]


async def _everything_once(fleet: Fleet, work: Work) -> None:
    """Promotions made one object and one edge and closed their source; the hold bites; snapshots are what they were."""
    client = work.client
    for source, (target, relationship) in work.promoted.items():
        closed = await client.read(scope_id=work.scope_id, object_id=source)
        assert (closed.lifecycle_state, closed.sequence) == ("superseded", 2)
        assert (await client.read(scope_id=work.scope_id, object_id=target)).content == {"from": source}
        assert (await client.read(scope_id=work.scope_id, relationship_id=relationship)).sequence == 1
    query: Any = {"kind": "structured", "trust": "all", "where": {"field": "object_type", "op": "eq", "value": "claim"}}
    claims = [item async for item in client.query_items(scope_id=work.scope_id, query=query, page_size=500)]
    assert len(claims) == len(work.promoted)
    for snapshot_id, digest in work.sealed.items():
        assert (await client.get_snapshot(snapshot_id)).digest == digest
    async with fleet.database() as database:
        states = await database.fetch(
            "SELECT retention_state, version_seq, count(*) FROM core.object_head JOIN core.scope USING (scope_key) "
            "WHERE scope_id = $1 AND object_type = 'decision' GROUP BY 1, 2",
            work.scope_id,
        )
    assert [tuple(row) for row in states] == [("legal_hold", 2, HELD)]
