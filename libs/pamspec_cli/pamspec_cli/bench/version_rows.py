"""Scopes with any number of objects or versions, written with COPY: for what is measured on much data.

The rows are what creates and updates store, with a content, ids and times that depend on the number of the object
alone, so that a scope of 1,000,000 objects has the same shares of everything as one of 10,000. The ledger's hashes are
not chained: nothing that is measured on these scopes reads them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg

from pamspec_cli.bench.bodies import TEXT
from pamspec_cli.bench.ledger_rows import HEAD_SQL, SCOPE_SQL
from pamspec_cli.development import ACTOR_ID, TENANT_ID
from pamspec_common.envelope import SPEC_VERSION
from pamspec_common.ids import subject_token
from pamspec_common.instants import wire
from pamspec_common.strict_json import dumps

START = datetime(2026, 1, 1, tzinfo=UTC)
TICK = timedelta(milliseconds=1)
HEAD = 9223372036854775807
_CHUNK = 20_000
LONG_OBJECT = "obj:bench-long"
_HASH = b"\0" * 32

COLUMNS = {
    "version": ("scope_key", "ledger_seq", "object_id", "kind", "version_seq", "version_id", "metadata"),
    "version_private": ("scope_key", "ledger_seq", "operation_hash", "salt", "content", "private"),
    "version_span": (
        *("scope_key", "from_seq", "to_seq", "object_id", "kind", "version_seq", "version_id", "object_type"),
        *("lifecycle_state", "availability_state", "retention_state", "validation_state", "actor_id", "provenance_id"),
        *("schema_id", "observed_at", "valid_from", "valid_until", "committed_at", "created_by", "content"),
    ),
    "ledger": ("scope_key", "sequence", "event_id", "event_type", "subject_id", "recorded_at", "event", "entry_hash"),
}
Rows = dict[str, tuple[Any, ...]]


def content(number: int) -> dict[str, Any]:
    """What an object says: members with a share of one in 5, 100 and 1,000, one of ten objects, and a unique one."""
    return {
        "speaker": f"speaker {number % 5}",
        "topic": f"topic {number * 7 % 100}",
        "place": {"harbour": f"berth {number * 11 % 1000}"},
        "tags": [f"tag {number * 13 % 1000}", "bench"],
        "party": f"party {number // 10}",
        "turn": number,
        "text": TEXT,
    }


def objects(scope_key: int, scope_id: str, number: int) -> Rows:
    """The rows of one object that was created and never changed."""
    at = START + TICK * (number + 1)
    return _rows(scope_key, scope_id, object_id(number), number + 1, number, 1, HEAD, at, content(number))


def object_id(number: int) -> str:
    """The id of an object by its number."""
    return f"obj:bench-{number:08d}"


def texts(of: Callable[[int], tuple[dict[str, Any], str]]) -> Callable[[int, str, int], Rows]:
    """The rows of objects with a content and a source each."""

    def rows(scope_key: int, scope_id: str, number: int) -> Rows:
        at = START + TICK * (number + 1)
        said, source_ref = of(number)
        name = object_id(number)
        return _rows(scope_key, scope_id, name, number + 1, number, 1, HEAD, at, said, source_ref)

    return rows


def versions(count: int) -> Callable[[int, str, int], Rows]:
    """The rows of the versions of one object, of which the last is the head."""

    def rows(scope_key: int, scope_id: str, number: int) -> Rows:
        at = START + TICK * (number + 1)
        until = HEAD if number + 1 == count else number + 2
        said = content(number)
        return _rows(scope_key, scope_id, LONG_OBJECT, number + 1, number, number + 1, until, at, said)

    return rows


def _rows(
    scope_key: int,
    scope_id: str,
    name: str,
    sequence: int,
    number: int,
    version_seq: int,
    until: int,
    at: datetime,
    said: dict[str, Any],
    source_ref: str | None = None,
) -> Rows:
    version_id, provenance_id, event_id = f"ver:b-{sequence:08d}", f"prov:b-{sequence:08d}", f"evt:b-{sequence:08d}"
    object_type = "claim" if number % 10 == 3 else "task" if number % 1000 == 7 else "observation"
    actor_id = ACTOR_ID if number % 50 else "agent:visitor"
    schema_id = "https://bench.example/schema" if number % 1000 == 11 else None
    states = {
        "lifecycle_state": "active",
        "availability_state": "available",
        "retention_state": "legal_hold" if number % 5000 == 17 else "retained",
        "validation_state": "corroborated" if number % 20 == 0 else "unverified",
    }
    observed = START + timedelta(minutes=number * 7919 % 1_000_000)
    valid_from = START + timedelta(minutes=number) if number % 2 else None
    valid_until = None if valid_from is None else valid_from + timedelta(minutes=30)
    said_at, actor = wire(at), {"actor_id": actor_id, "actor_kind": "agent"}
    left = {"provenance_id": provenance_id, "activity": "erased", "actor": actor, "recorded_at": said_at}
    times = {"observed_at": observed, "valid_from": valid_from, "valid_until": valid_until}
    metadata = dumps(
        {
            "spec_version": SPEC_VERSION,
            "object_id": name,
            "version_id": version_id,
            "scope_id": scope_id,
            "object_type": object_type,
            **({} if schema_id is None else {"schema_id": schema_id}),
            **states,
            **{name: wire(value) for name, value in times.items() if value is not None},
            "committed_at": said_at,
            "recorded_at": said_at,
            "sequence": version_seq,
            "actor": actor,
            "provenance": left,
        }
    )
    body = dumps(said)
    source = {} if source_ref is None else {"source_ref": source_ref}
    private = dumps({"provenance": {**left, "activity": "bench", **source}})
    made = "object_created" if version_seq == 1 else "object_updated"
    event = dumps({"event_id": event_id, "event_type": made, "sequence": sequence, "payload": {}})
    return {
        "version": (scope_key, sequence, name, b"o", version_seq, version_id, metadata),
        "version_private": (scope_key, sequence, b"bench", _HASH, body, private),
        "version_span": (
            *(scope_key, sequence, until, name, b"o", version_seq, version_id, object_type),
            *(*states.values(), actor_id, provenance_id),
            *(schema_id, observed, valid_from, valid_until, at, actor_id, body.decode()),
        ),
        "ledger": (scope_key, sequence, event_id, made, name, at, event, _HASH),
    }


async def fill(database_url: str, scope_id: str, count: int, row: Callable[[int, str, int], Rows]) -> int:
    """A new scope with `count` versions; its key. The tables are analyzed as the server's own upkeep would."""
    connections = {table: await asyncpg.connect(database_url) for table in COLUMNS}
    first = next(iter(connections.values()))
    try:
        document = dumps({"scope_id": scope_id, "scope_kind": "bench"})
        tokens = subject_token(TENANT_ID), subject_token(TENANT_ID, scope_id)
        key: int = await first.fetchval(SCOPE_SQL, TENANT_ID, scope_id, *tokens, document, os.urandom(16))
        for rows in _chunks(count, lambda number: row(key, scope_id, number)):
            await asyncio.gather(*(_copy(connections[table], table, [one[table] for one in rows]) for table in COLUMNS))
        await first.execute(HEAD_SQL, key, count, _HASH, START + TICK * count)
        await first.execute("VACUUM (ANALYZE) core.version, core.version_private, core.version_span, core.ledger")
    finally:
        await asyncio.gather(*(connection.close() for connection in connections.values()))
    return key


async def _copy(connection: asyncpg.Connection[asyncpg.Record], table: str, rows: list[tuple[Any, ...]]) -> None:
    await connection.copy_records_to_table(table, schema_name="core", columns=COLUMNS[table], records=rows)


def _chunks(count: int, row: Callable[[int], Rows]) -> Iterator[list[Rows]]:
    for start in range(0, count, _CHUNK):
        yield [row(number) for number in range(start, min(count, start + _CHUNK))]
