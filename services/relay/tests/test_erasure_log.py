"""The erasure log: what was erased is told outside PostgreSQL, whatever is away or gone meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import nats.errors
from nats.aio.client import Client

from pamspec_cli.servers.nats import EmbeddedNats
from pamspec_common import contracts
from pamspec_common.erasure_log import STREAM, ErasureFiles, ErasureStream, LogEntry
from pamspec_common.streams import StreamRefused
from pamspec_common.strict_json import loads
from services.relay.tests.conftest import StartRelay
from services.relay.tests.ledger_rows import TENANT, Ledger, Scope, until

INSERT_SQL = """
INSERT INTO core.erasure (scope_key, erasure_id, tenant_id, kind, subject_kind, subject_id, operation_id, actor_id,
  position, erased_from, erased_to)
SELECT $1::bigint, 'erasure:' || $1::bigint || '-' || n, $2, $3::"char", $4::"char",
  CASE WHEN $4::"char" IS NOT NULL THEN 'subject:' || n END, 'op:' || n, 'actor:a', n, '{1,5}', '{3,5}'
FROM generate_series($5::integer, $6::integer) n
"""
DELETE_SCOPE_SQL = """
INSERT INTO core.scope_deletion (scope_key, actor_id, operation_id, policy_basis)
VALUES ($1, 'actor:a', 'op:d', 'asked')
"""
WAITING_SQL = """
SELECT (SELECT count(*) FROM core.erasure WHERE logged_at IS NULL)
  + (SELECT count(*) FROM core.scope_deletion WHERE logged_at IS NULL)
"""


async def erase(ledger: Ledger, scope: Scope, numbers: range, kind: str = "d", subject: str | None = "o") -> None:
    kinds = (kind.encode(), None if subject is None else subject.encode())
    await ledger.conn.execute(INSERT_SQL, scope.scope_key, TENANT, *kinds, numbers.start, numbers.stop - 1)


async def until_logged(ledger: Ledger) -> None:
    async def none_waits() -> bool:
        return not await ledger.conn.fetchval(WAITING_SQL)

    await until(none_waits, 30.0, 0.02)


async def logged(client: Client) -> list[LogEntry]:
    return [entry async for entry in ErasureStream(client).entries()]


def ids(entries: Sequence[LogEntry]) -> list[str]:
    return [one.erasure_id for entry in entries for one in entry.erasures]


async def test_erasures_are_logged_by_ids_on_the_bus_and_in_files(
    ledger: Ledger, client: Client, start_relay: StartRelay, tmp_path: Path
) -> None:
    """Each once, in the form of the contract; what erases nothing itself is only noted."""
    first, second, gone = await ledger.add_scopes(3)
    await erase(ledger, first, range(1, 701))
    await erase(ledger, second, range(1, 3), "r", "r")
    await erase(ledger, second, range(3, 4), "f", None)
    await ledger.conn.execute(DELETE_SCOPE_SQL, gone.scope_key)
    await start_relay(erasure_log_ms=20, checkpoint_dir=tmp_path)
    await until_logged(ledger)
    entries = await logged(client)
    assert sorted(ids(entries)) == sorted(
        [f"erasure:{first.scope_key}-{n}" for n in range(1, 701)]
        + [f"erasure:{second.scope_key}-{n}" for n in range(1, 3)]
    )
    (of_second,) = [entry for entry in entries if entry.scope_id == second.scope_id]
    one = of_second.erasures[0]
    assert (one.kind, one.relationship_id, one.object_id, one.erased) == ("redact", "subject:1", None, [(1, 3), (5, 5)])
    (deleted,) = [entry for entry in entries if entry.scope_deleted_at is not None]
    assert (deleted.tenant_id, deleted.scope_id, deleted.erasures) == (TENANT, gone.scope_id, [])
    ledger_id = await ledger.conn.fetchval("SELECT ledger_id FROM core.scope WHERE scope_key = $1", gone.scope_key)
    assert deleted.ledger_id == ledger_id.hex()
    assert list(ErasureFiles(tmp_path).entries()) == entries
    for entry in entries:
        contracts.check("erasure-log", loads(entry.document()))


async def test_what_comes_while_the_bus_is_away_is_logged_afterwards(
    ledger: Ledger, client: Client, start_relay: StartRelay, nats_process: EmbeddedNats
) -> None:
    (scope,) = await ledger.add_scopes(1)
    service = await start_relay(erasure_log_ms=20)
    await erase(ledger, scope, range(1, 3))
    await until_logged(ledger)
    await nats_process.stop()
    await erase(ledger, scope, range(3, 6))
    assert await ledger.conn.fetchval(WAITING_SQL) == 3
    await nats_process.start()
    await until_logged(ledger)
    assert set(ids(await logged(client))) == {f"erasure:{scope.scope_key}-{n}" for n in range(1, 6)}
    (part,) = [part for part in await service.readiness() if part.name == "erasure_log"]
    assert part.ok
    assert not part.essential


async def test_a_log_that_was_lost_is_written_again(ledger: Ledger, client: Client, start_relay: StartRelay) -> None:
    (scope,) = await ledger.add_scopes(1)
    await erase(ledger, scope, range(1, 4))
    await start_relay(erasure_log_ms=20)
    await until_logged(ledger)
    await client.request(f"$JS.API.STREAM.DELETE.{STREAM}", b"")
    await until(lambda: holds_three(client), 30.0, 0.05)


async def test_a_log_that_somebody_else_made_anew_is_written_again(
    ledger: Ledger, client: Client, start_relay: StartRelay
) -> None:
    """As by a relay that was killed right after it made the stream."""
    (scope,) = await ledger.add_scopes(1)
    await erase(ledger, scope, range(1, 4))
    relay = await start_relay(erasure_log_ms=20)
    await until_logged(ledger)
    await relay.stop()
    await client.request(f"$JS.API.STREAM.DELETE.{STREAM}", b"")
    await ErasureStream(client).ensure()
    await start_relay(erasure_log_ms=20)
    await until(lambda: holds_three(client), 30.0, 0.05)


async def holds_three(client: Client) -> bool:
    try:
        return len(set(ids(await logged(client)))) == 3
    except (nats.errors.Error, StreamRefused):
        return False


async def test_a_full_disk_beside_the_bus_is_no_flood_on_it(
    ledger: Ledger, client: Client, start_relay: StartRelay, tmp_path: Path
) -> None:
    """What the bus took is told there again, but ever more seldom; and nothing counts as logged."""
    directory = tmp_path / "files"
    directory.touch()
    (scope,) = await ledger.add_scopes(1)
    await erase(ledger, scope, range(1, 4))
    service = await start_relay(erasure_log_ms=20, checkpoint_dir=directory)

    async def told() -> bool:
        (part,) = [part for part in await service.readiness() if part.name == "erasure_log"]
        return not part.ok

    await until(told, 30.0, 0.05)
    assert await ledger.conn.fetchval(WAITING_SQL) == 3
    directory.unlink()
    await until_logged(ledger)
    assert len(ids(list(ErasureFiles(directory).entries()))) == 3
    assert len(await logged(client)) < 12, "each pause is twice the one before"


async def test_two_relays_share_the_work(ledger: Ledger, client: Client, start_relay: StartRelay) -> None:
    scopes = await ledger.add_scopes(20)
    await asyncio.gather(start_relay(erasure_log_ms=10), start_relay(erasure_log_ms=10))
    for scope in scopes:
        await erase(ledger, scope, range(1, 51))
    await until_logged(ledger)
    found = ids(await logged(client))
    assert len(found) == len(set(found)) == 1000
    assert contracts.streams().streams["erasures"].name == STREAM
