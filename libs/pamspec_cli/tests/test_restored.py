"""A backup, what came after it, a disaster, and the way back: what was kept is there, what was erased is not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio

from libs.pamspec_cli.tests.up_process import Up, own_up, pamspec
from pamspec_cli.commands.verify import database_url
from pamspec_cli.data import DataDirectory
from pamspec_cli.restoring.model import Subject, Version, command
from pamspec_client import (
    AsyncClient,
    InvalidRequest,
    ObjectDeleted,
    ObjectNotFound,
    ObjectRedacted,
    ScopeNotFound,
)
from pamspec_client.documents import Provenance
from pamspec_common.erasure_log import Erased

SCOPE = "workspace:restored"
PROVENANCE: Provenance = {"activity": "test"}
WAITING_SQL = """
SELECT (SELECT count(*) FROM core.erasure WHERE logged_at IS NULL)
  + (SELECT count(*) FROM core.scope_deletion WHERE logged_at IS NULL) + (SELECT count(*) FROM relay.outbox)
"""


def client(up: Up) -> AsyncClient:
    return AsyncClient(up.gateway, api_key=up.lines["key"])


async def made(memory: AsyncClient, object_id: str, content: object, scope_id: str = SCOPE) -> str:
    one = await memory.create(
        scope_id=scope_id, object_type="claim", object_id=object_id, canonical_content=content, provenance=PROVENANCE
    )
    return one.version_id


async def database(up: Up) -> asyncpg.Connection[asyncpg.Record]:
    code, out, err = await pamspec("status", up.data, "--json")
    assert code == 0, out + err
    return await asyncpg.connect(database_url(DataDirectory(up.data)))


async def until_logged(up: Up) -> None:
    """Nothing waits for the bus or for the erasure log."""
    connection = await database(up)
    async with asyncio.timeout(60):
        while await connection.fetchval(WAITING_SQL):
            await asyncio.sleep(0.05)
    await connection.close()


@dataclass
class Restored:
    """A service that runs on a backup, after erasures that came later."""

    up: Up
    versions: dict[str, str]
    sequence: int
    subscription: str


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def restored(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Restored]:
    """Backed up, erased in every way, lost, restored; for the tests of this module in their order."""
    backup = tmp_path_factory.mktemp("backups") / "first"
    async with own_up() as up:
        yield await way_back(up, backup)


async def way_back(up: Up, backup: Path) -> Restored:
    """The whole way."""
    await up.start()
    versions: dict[str, str] = {}
    async with client(up) as memory:
        for scope in (SCOPE, "workspace:whole"):
            await memory.create_scope(scope_id=scope, scope_kind="workspace")
        for name in ("kept", "deleted", "cut", "past"):
            versions[name] = await made(memory, f"obj:{name}", {"text": f"needle-{name}-one", "more": "stays"})
        first = versions["past"]
        changed = await memory.update(
            scope_id=SCOPE,
            object_id="obj:past",
            expected_version_id=first,
            canonical_content={"text": "harmless"},
            provenance=PROVENANCE,
        )
        await made(memory, "obj:whole", "needle-of-a-scope", "workspace:whole")
        opened = await memory.subscribe(scope_id=SCOPE, after_sequence=0)
        await until_logged(up)
        code, out, err = await pamspec("backup", up.data, "--to", str(backup))
        assert (code, "verified" in out) == (0, True), out + err
        await memory.delete(
            scope_id=SCOPE, object_id="obj:deleted", expected_version_id=versions["deleted"], policy_basis="asked"
        )
        await memory.redact(
            scope_id=SCOPE,
            object_id="obj:cut",
            expected_version_id=versions["cut"],
            redaction_target={"paths": ["/text"]},
            policy_basis="asked",
        )
        await memory.redact(
            scope_id=SCOPE,
            object_id="obj:past",
            expected_version_id=changed.version_id,
            redaction_target={"whole": True},
            version_ids=[first],
            policy_basis="asked",
        )
        await memory.call("delete_scope", {"scope_id": "workspace:whole", "policy_basis": "asked"})
        await made(memory, "obj:later", "came after the backup")
        await memory.create_scope(scope_id="workspace:later", scope_kind="workspace")
        await made(memory, "obj:1", "came after the backup", "workspace:later")
        events = await memory.poll(subscription_id=opened.subscription_id, wait_ms=5000)
        await until_logged(up)
    assert await up.stop() == 0
    code, out, err = await pamspec("backup", up.data, "--restore", str(backup))
    assert code == 0, out + err
    code, _, err = await pamspec("up", up.data)
    assert (code, "nothing may serve yet" in err) == (1, True), err
    code, out, err = await pamspec("restored", up.data, "--dry-run")
    assert (code, "3 erasures" in out) == (0, True), out + err
    code, out, err = await pamspec("restored", up.data)
    assert (code, "erased again: 3 objects and relationships, 1 scopes" in out) == (0, True), out + err
    await up.start()
    return Restored(up, versions, events.next_after_sequence, opened.subscription_id)


@pytest_asyncio.fixture(loop_scope="session")
async def memory(restored: Restored) -> AsyncIterator[AsyncClient]:
    async with client(restored.up) as one:
        yield one


async def test_what_was_erased_after_the_backup_stays_erased(restored: Restored, memory: AsyncClient) -> None:
    """In answers and in the tables; what nobody erased is there; what came after the backup is lost."""
    kept = await memory.read(scope_id=SCOPE, object_id="obj:kept")
    assert kept.content == {"text": "needle-kept-one", "more": "stays"}
    with pytest.raises(ObjectDeleted):
        await memory.read(scope_id=SCOPE, object_id="obj:deleted")
    with pytest.raises(ObjectRedacted):
        await memory.read(scope_id=SCOPE, object_id="obj:cut")
    assert (await memory.read(scope_id=SCOPE, object_id="obj:past")).content == {"text": "harmless"}
    with pytest.raises(ObjectRedacted):
        await memory.read(scope_id=SCOPE, object_id="obj:past", version_id=restored.versions["past"])
    with pytest.raises(ObjectNotFound):
        await memory.read(scope_id=SCOPE, object_id="obj:later")
    for scope in ("workspace:whole", "workspace:later"):
        with pytest.raises(ScopeNotFound):
            await memory.get_scope(scope_id=scope)
    connection = await database(restored.up)
    sql = "SELECT count(*) FROM core.version_private WHERE position(convert_to($1, 'UTF8') IN content) > 0"
    for needle, count in (("needle-kept", 1), ("needle-deleted", 0), ("needle-cut", 0), ("needle-past", 0)):
        assert await connection.fetchval(sql, needle) == count, needle
    async with asyncio.timeout(60):
        while await connection.fetchval(sql, "needle-of-a-scope"):
            await asyncio.sleep(0.05)
    await connection.close()


async def test_ledgers_bus_and_followers_go_on_in_a_new_epoch(restored: Restored, memory: AsyncClient) -> None:
    """Everything verifies; a follower is told where to resume; nothing that it is given then contradicts the ledger."""
    with pytest.raises(InvalidRequest) as refused:
        await memory.poll(
            subscription_id=restored.subscription, after_sequence=restored.sequence, ledger_epoch=1, wait_ms=0
        )
    told = refused.value.details
    assert (told["reason"], told["ledger_epoch"]) == ("position_outdated", 2)
    again = await memory.poll(
        subscription_id=restored.subscription, after_sequence=told["resume_after"], ledger_epoch=2, wait_ms=5000
    )
    assert {event.event_type for event in again.events} >= {"object_deleted", "object_redacted"}
    await made(memory, "obj:later", "another one, under a name that the lost history had too")
    await memory.create_scope(scope_id="workspace:later", scope_kind="workspace")
    await made(memory, "obj:1", "anew", "workspace:later")
    await until_logged(restored.up)
    async with asyncio.timeout(60):
        while True:
            code, out, err = await pamspec("verify", restored.up.data)
            if "no anchor that could be compared" not in out:
                break
            await asyncio.sleep(0.2)
    assert (code, "all as it was committed" in out) == (0, True), out + err
    code, out, err = await pamspec("status", restored.up.data, "--json")
    assert "halted" not in out
    assert code == 0, out + err


async def test_a_backup_of_the_new_history_is_not_erased_by_the_old_one(
    restored: Restored, memory: AsyncClient, tmp_path: Path
) -> None:
    """What was written under the same ids after a restore is of another history, also when that is restored in turn.

    And what a hold of the time of the backup keeps is erased once it is released.
    """
    up = restored.up
    await memory.create(
        scope_id=SCOPE, object_id="obj:held", object_type="decision", canonical_content="held", provenance=PROVENANCE
    )
    hold = await memory.place_hold(scope_id=SCOPE, object_type="decision", policy_basis="a matter")
    await until_it_is(memory, "legal_hold")
    past = await memory.read(scope_id=SCOPE, object_id="obj:past")
    await memory.update(
        scope_id=SCOPE,
        object_id="obj:past",
        expected_version_id=past.version_id,
        canonical_content={"text": "of the new history"},
        provenance=PROVENANCE,
    )
    await until_logged(up)
    second = tmp_path / "second"
    code, out, err = await pamspec("backup", up.data, "--to", str(second))
    assert code == 0, out + err
    await release_and_delete(memory, hold.hold_id)
    await until_logged(up)
    assert await up.stop() == 0
    code, out, err = await pamspec("backup", up.data, "--restore", str(second))
    assert code == 0, out + err
    code, out, err = await pamspec("restored", up.data)
    assert (code, "erased again: 0 objects and relationships, 0 scopes" in out) == (1, True), out + err
    assert "NOT erased again: 1 (legal_hold)" in out
    await up.start()
    async with client(up) as again:
        assert (await again.read(scope_id=SCOPE, object_id="obj:past")).content == {"text": "of the new history"}
        assert (await again.read(scope_id=SCOPE, object_id="obj:held")).content == "held"
        await again.release_hold(scope_id=SCOPE, hold_id=hold.hold_id, policy_basis="settled")
        await until_it_is(again, "retained")
    assert await up.stop() == 0
    code, out, err = await pamspec("restored", up.data)
    assert (code, "erased again: 1 objects and relationships, 0 scopes" in out) == (0, True), out + err
    await up.start()
    async with client(up) as again:
        with pytest.raises(ObjectDeleted):
            await again.read(scope_id=SCOPE, object_id="obj:held")


async def until_it_is(memory: AsyncClient, retention_state: str) -> str:
    """The job of holds has moved what is held; its version then."""
    async with asyncio.timeout(60):
        while True:
            held = await memory.read(scope_id=SCOPE, object_id="obj:held")
            if held.retention_state == retention_state:
                return held.version_id
            await asyncio.sleep(0.05)


async def release_and_delete(memory: AsyncClient, hold_id: str) -> None:
    await memory.release_hold(scope_id=SCOPE, hold_id=hold_id, policy_basis="settled")
    version_id = await until_it_is(memory, "retained")
    await memory.delete(scope_id=SCOPE, object_id="obj:held", expected_version_id=version_id, policy_basis="asked")


async def test_a_running_service_and_a_directory_without_backup_are_refused(up: Up, tmp_path: Path) -> None:
    await up.start()
    code, _, err = await pamspec("restored", up.data)
    assert (code, "in use by process" in err) == (2, True)
    code, _, err = await pamspec("backup", up.data, "--restore", str(tmp_path))
    assert (code, "is no backup" in err) == (2, True)
    (tmp_path / "something").touch()
    code, _, err = await pamspec("backup", up.data, "--to", str(tmp_path))
    assert (code, "is not empty" in err) == (2, True)
    assert await up.stop() == 0


def erased(kind: str, *ranges: tuple[int, int], number: int = 1) -> Erased:
    return Erased(f"erasure:{number}", kind, 9, list(ranges), "2026-01-01T00:00:00.000000Z", object_id="obj:1")


def subject(*left: int, current: int = 4, deleted: bool = False) -> Subject:
    return Subject(f"ver:{current}", deleted, [Version(f"ver:{n}", n, n == current) for n in left])


def test_what_is_done_again() -> None:
    """A deletion as a deletion; what took the current version as a whole; past versions by their names."""
    again = command([erased("delete", (1, 4)), erased("redact", (1, 2), number=2)], subject(1, 2, 3, 4), 2)
    assert again is not None
    assert (again["operation"], again["expected_version_id"]) == ("delete", "ver:4")
    again = command([erased("redact", (1, 2), (4, 5))], subject(1, 2, 3, 4), 2)
    assert again is not None
    assert (again["operation"], again["redaction_target"], "version_ids" in again) == ("redact", {"whole": True}, False)
    again = command([erased("redact", (1, 2))], subject(2, 3, 4), 2)
    assert again is not None
    assert again["version_ids"] == ["ver:2"]
    assert command([erased("redact", (1, 2))], subject(3, 4), 2) is None
    assert command([erased("delete", (1, 4))], subject(deleted=True), 2) is None
    assert command([erased("delete", (1, 4))], None, 2) is None
