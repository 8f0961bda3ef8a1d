"""The connection dies before and after every statement of every kind of write: all of it is there, or nothing (B22)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import asyncpg
import pytest
import pytest_asyncio
from asyncpg.pool import PoolConnectionProxy

from pamspec_cli.servers.databases import Database
from pamspec_cli.servers.nats import NatsAddress
from pamspec_write.queries import deletion, tenants
from pamspec_write.queries.delegations import UNTOLD_SQL
from pamspec_write.queries.holds import HOLDS_DUE_SQL
from pamspec_write.queries.outbox import OUTBOX_DEPTH_SQL
from services.write.tests.writer import PROVENANCE, Document, Writer, claim, edge, started, stopped, write_settings

BACKGROUND = (OUTBOX_DEPTH_SQL, HOLDS_DUE_SQL, UNTOLD_SQL, tenants.OFFBOARDING_SQL, deletion.DUE_SQL)
"""What the service asks by itself, whatever a test does."""
STATEMENTS = ("execute", "fetch", "fetchrow", "fetchval")


class Killer:
    """Counts the statements of the service, and ends its backend around the one that a test names."""

    def __init__(self, database: Database) -> None:
        self._dsn, self._database = database.dsn, database.name
        self.seen: list[str] = []
        self.at = -1
        self.after = False

    def arm(self, at: int, *, after: bool) -> None:
        """Kill around the statement of that number, counted from now."""
        self.seen, self.at, self.after = [], at, after

    async def around(self, run: Callable[..., Any], proxy: Any, query: str, *args: Any, **more: Any) -> Any:
        """Run a statement, with the backend ended before or after it when its number is up."""
        if query in BACKGROUND or proxy._con._params.database != self._database:
            return await run(proxy, query, *args, **more)
        number = len(self.seen)
        self.seen.append(query)
        if number == self.at and not self.after:
            await self._end(proxy)
        result = await run(proxy, query, *args, **more)
        if number == self.at and self.after:
            await self._end(proxy)
            raise asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")
        return result

    async def _end(self, proxy: Any) -> None:
        admin = await asyncpg.connect(self._dsn)
        assert await admin.fetchval("SELECT pg_terminate_backend($1, 5000)", proxy.get_server_pid())
        await admin.close()


@pytest.fixture
def killer(database: Database, monkeypatch: pytest.MonkeyPatch) -> Killer:
    """Around every statement of this test's database; other services of this process may be at work on theirs."""
    killer = Killer(database)

    def wrapped(run: Callable[..., Any]) -> Callable[..., Any]:
        async def statement(proxy: Any, query: str, *args: Any, **more: Any) -> Any:
            return await killer.around(run, proxy, query, *args, **more)

        return statement

    for name in STATEMENTS:
        monkeypatch.setattr(PoolConnectionProxy, name, wrapped(getattr(PoolConnectionProxy, name)))
    return killer


@pytest_asyncio.fixture(loop_scope="session")
async def once(database: Database, write_bus: NatsAddress) -> Any:
    """A service that tries a commit a single time, so that a lost one is left to its client."""
    writer = await started(database, write_settings(database, write_bus, commit_attempts=1))
    yield writer
    await stopped(writer)


async def _request(writer: Writer, kind: str) -> tuple[str, Document]:
    """A request of that kind, about an object of its own."""
    made = await writer.create({"text": "SECRET"})
    memory = await writer.create({"task_ref": "task:1", "content": 1}, object_type="working_memory")
    update = writer.change(made, canonical_content="next", provenance=PROVENANCE)
    delete = writer.change(made, policy_basis="asked")
    redact = {**delete, "redaction_target": {"whole": True}}
    create = claim(writer.scope, "new", source_event={"source": "s", "id": made["object_id"]})
    items = [{"operation": "create", **create}, {"operation": "delete", **delete}]
    requests: dict[str, Document] = {
        "create": create,
        "update": update,
        "transition": writer.change(made, dimension="lifecycle", target_state="archived", policy_basis="p"),
        "delete": delete,
        "relate": edge(made, made),
        "redact": redact,
        "paths redact": {**redact, "redaction_target": {"paths": ["/text"]}, "version_ids": [made["version_id"]]},
        "promote": {
            "scope_id": writer.scope,
            "source_object_id": memory["object_id"],
            "expected_version_id": memory["version_id"],
            "target_object_type": "decision",
            "target_canonical_content": "decided",
            "provenance": PROVENANCE,
        },
        "update_scope": {
            "scope_id": writer.scope,
            "policy": {"object_types": {"deny": ["com.example.none"]}},
            "expected_policy_version": await writer.count("core.scope_policy"),
            "policy_basis": "p",
        },
        "place_hold": {"scope_id": writer.scope, "object_type": "com.example.none", "policy_basis": "p"},
        "register_schema": {
            "scope_id": writer.scope,
            "schema_id": f"https://schemas.example.com/{made['object_id']}",
            "schema": {"type": "object"},
        },
        "atomic batch": {"scope_id": writer.scope, "atomic": True, "items": items},
        "batch": {"scope_id": writer.scope, "items": [items[0], {"operation": "update", **update}]},
    }
    return kind.rpartition(" ")[2], requests[kind]


# What each kind of write adds: versions, ledger entries, outbox rows, records, source events, erased contents, rules.
GROWN = {
    "create": [1, 1, 1, 1, 1, 0, 0],
    "update": [1, 1, 1, 1, 0, 0, 0],
    "transition": [1, 1, 1, 1, 0, 0, 0],
    "delete": [1, 1, 1, 1, 0, 2, 0],
    "relate": [1, 1, 1, 1, 0, 0, 0],
    "redact": [1, 1, 1, 1, 0, 2, 0],
    "paths redact": [1, 1, 1, 1, 0, 1, 0],
    "promote": [3, 4, 4, 1, 0, 0, 0],
    "atomic batch": [2, 2, 2, 3, 1, 2, 0],
    "batch": [2, 2, 2, 3, 1, 0, 0],
    "update_scope": [0, 0, 0, 1, 0, 0, 1],
    "place_hold": [0, 0, 0, 1, 0, 0, 1],
    "register_schema": [0, 0, 0, 1, 0, 0, 1],
}
ROWS_SQL = """
SELECT ARRAY[(SELECT count(*) FROM core.version), (SELECT count(*) FROM core.ledger),
  (SELECT count(*) FROM relay.outbox), (SELECT count(*) FROM core.operation_record),
  (SELECT count(*) FROM core.source_event), (SELECT count(*) FROM core.version_private WHERE content IS NULL),
  (SELECT count(*) FROM core.scope_policy) + (SELECT count(*) FROM core.legal_hold)
  + (SELECT count(*) FROM core.content_schema)]
"""


async def _grown(writer: Writer, before: list[int]) -> list[int]:
    now = await writer.admin.fetchval(ROWS_SQL)
    return [there - here for here, there in zip(before, now, strict=True)]


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        ("create", False),
        ("update", True),
        ("transition", True),
        ("relate", True),
        ("promote", True),
        ("promote", False),
        ("delete", True),
        ("redact", True),
        ("update_scope", True),
        ("place_hold", True),
        ("register_schema", False),
        ("paths redact", False),
        ("atomic batch", False),
        ("batch", True),
    ],
)
async def test_the_service_finishes_what_a_dead_connection_began(
    writer: Writer, killer: Killer, kind: str, named: bool
) -> None:
    """With and without a key: the client hears of one success, and there is one."""
    for _ in range(2):  # the second finds rules to read, where the first made the scope's first
        operation, document = await _request(writer, kind)
        killer.arm(-1, after=False)
        await writer.ok(operation, document)
    steps = len(killer.seen)
    assert killer.seen[-1] == "COMMIT"
    for step, after in itertools.product(range(steps), (False, True)):
        operation, document = await _request(writer, kind)
        before = await writer.admin.fetchval(ROWS_SQL)
        killer.arm(step, after=after)
        answer = await writer.call(operation, document, key=f"{step}/{after}" if named else None)
        killer.arm(-1, after=False)
        assert answer.status in (200, 201), (step, after, answer.body)
        assert "Idempotency-Replayed" not in answer.headers
        assert await _grown(writer, before) == GROWN[kind], (step, after)
    await writer.check_scope()


@pytest.mark.parametrize("kind", ["create", "paths redact", "atomic batch"])
async def test_without_another_try_it_is_all_or_nothing_and_the_key_tells(
    once: Writer, killer: Killer, kind: str
) -> None:
    writer = once
    step, after = 0, False
    while True:
        operation, document = await _request(writer, kind)
        before = await writer.admin.fetchval(ROWS_SQL)
        key = f"{step}/{after}"
        killer.arm(step, after=after)
        answer = await writer.call(operation, document, key=key)
        statements = killer.seen
        killer.arm(-1, after=False)
        if step >= len(statements):
            assert (answer.status < 300, statements[-1]) == (True, "COMMIT")
            break
        assert answer.status == 503, (step, after, answer.body)
        committed = statements[step] == "COMMIT" and after
        assert await _grown(writer, before) == (GROWN[kind] if committed else [0] * len(GROWN[kind])), (step, after)
        again = await writer.call(operation, document, key=key)
        assert again.status in (200, 201)
        assert ("Idempotency-Replayed" in again.headers) == committed
        assert await _grown(writer, before) == GROWN[kind]
        step, after = (step + 1, False) if after else (step, True)
    await writer.check_scope()


async def test_creating_a_scope_is_all_or_nothing(writer: Writer, killer: Killer) -> None:
    step, after, done = 0, False, False
    while not done:
        scope_id = f"scope:step-{step}-{after}"
        killer.arm(step, after=after)
        answer = await writer.call("create_scope", {"scope_id": scope_id})
        done = step >= len(killer.seen)
        killer.arm(-1, after=False)
        assert answer.status == 200 if done else answer.status in (200, 503)
        assert (await writer.call("create_scope", {"scope_id": scope_id})).status == 200
        await writer.ok("create", claim(scope_id))
        step, after = (step + 1, False) if after else (step, True)
    assert await writer.count("core.scope") == await writer.count("core.scope_head")
