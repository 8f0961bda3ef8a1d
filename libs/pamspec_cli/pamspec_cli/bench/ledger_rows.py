"""Ledgers of any length, written with COPY: for what is measured on much data.

The chain is real, so a verification of these scopes passes as far as the ledger goes; the events name versions that do
not exist.
"""

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg

from pamspec_cli.development import ACTOR_ID, ACTOR_KIND, TENANT_ID
from pamspec_common.bus import ledger_subject
from pamspec_common.ids import mint, subject_token
from pamspec_common.instants import wire
from pamspec_common.ledger import entry_hash, genesis
from pamspec_common.strict_json import dumps

EVENT_TYPE = "object_created"
_START = datetime(2026, 1, 1, tzinfo=UTC)
_CHUNK = 20_000

SCOPE_SQL = """
INSERT INTO core.scope
  (scope_key, tenant_id, scope_id, tenant_token, scope_token, partition, document, ledger_id, created_at)
VALUES (nextval('core.scope_key'), $1, $2, $3, $4, 0, $5, $6, clock_timestamp()) RETURNING scope_key
"""
HEAD_SQL = "INSERT INTO core.scope_head (scope_key, last_seq, last_hash, last_at) VALUES ($1, $2, $3, $4)"
LEDGER_COLUMNS = (
    "scope_key",
    "sequence",
    "event_id",
    "event_type",
    "subject_id",
    "recorded_at",
    "event",
    "entry_hash",
)
OUTBOX_COLUMNS = ("partition", "scope_key", "sequence", "event_id", "ledger_epoch", "subject", "message")


class Ledger:
    """The entries of one scope, in order."""

    def __init__(self, scope_id: str, scope_key: int, ledger_id: bytes) -> None:
        self.scope_id, self.scope_key = scope_id, scope_key
        self.last_seq, self.last_hash, self.last_at = 0, genesis(ledger_id), _START
        self._tokens = subject_token(TENANT_ID), subject_token(TENANT_ID, scope_id)

    def entry(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The next entry: its row of the ledger and its row of the outbox."""
        self.last_seq += 1
        self.last_at += timedelta(milliseconds=1)
        event_id, object_id = mint("evt"), mint("obj")
        event = dumps(
            {
                "actor": {"actor_id": ACTOR_ID, "actor_kind": ACTOR_KIND},
                "event_id": event_id,
                "event_type": EVENT_TYPE,
                "object_id": object_id,
                "operation_id": mint("op"),
                "payload": {
                    "availability_state": "available",
                    "created": True,
                    "lifecycle_state": "active",
                    "object_type": "observation",
                    "retention_state": "retained",
                    "validation_state": "unverified",
                    "version_digest": "sha256:" + self.last_hash.hex(),
                    "version_sequence": 1,
                },
                "recorded_at": wire(self.last_at),
                "scope_id": self.scope_id,
                "sequence": self.last_seq,
                "version_id": mint("ver"),
            }
        )
        self.last_hash = entry_hash(self.last_hash, event)
        subject = ledger_subject(0, *self._tokens, EVENT_TYPE)
        ledger = (
            self.scope_key,
            self.last_seq,
            event_id,
            EVENT_TYPE,
            object_id,
            self.last_at,
            event,
            self.last_hash,
        )
        return ledger, (0, self.scope_key, self.last_seq, event_id, 1, subject, event)


async def fill(database_url: str, scope_ids: list[str], entries: int, *, outbox: bool = False) -> dict[str, int]:
    """New scopes with `entries` ledger entries in all, by turns; with `outbox` they also wait for the relay.

    The keys of the scopes by their ids. The tables are vacuumed, as the server's own upkeep leaves a table of some age:
    what was copied in a moment ago would be marked by its first readers.
    """
    connection = await asyncpg.connect(database_url)
    try:
        ledgers = [await _scope(connection, scope_id) for scope_id in scope_ids]
        for rows in _chunks(ledgers, entries):
            await connection.copy_records_to_table(
                "ledger", schema_name="core", columns=LEDGER_COLUMNS, records=[ledger for ledger, _ in rows]
            )
            if outbox:
                await connection.copy_records_to_table(
                    "outbox", schema_name="relay", columns=OUTBOX_COLUMNS, records=[waiting for _, waiting in rows]
                )
        for made in ledgers:
            await connection.execute(HEAD_SQL, made.scope_key, made.last_seq, made.last_hash, made.last_at)
        await connection.execute("VACUUM (ANALYZE) core.ledger, relay.outbox")
    finally:
        await connection.close()
    return {made.scope_id: made.scope_key for made in ledgers}


async def _scope(connection: "asyncpg.Connection[asyncpg.Record]", scope_id: str) -> Ledger:
    ledger_id = os.urandom(16)
    tokens = subject_token(TENANT_ID), subject_token(TENANT_ID, scope_id)
    document = dumps({"scope_id": scope_id, "scope_kind": "bench"})
    key = await connection.fetchval(SCOPE_SQL, TENANT_ID, scope_id, *tokens, document, ledger_id)
    return Ledger(scope_id, key, ledger_id)


def _chunks(ledgers: list[Ledger], entries: int) -> Iterator[list[tuple[tuple[Any, ...], tuple[Any, ...]]]]:
    done = 0
    while done < entries:
        count = min(_CHUNK, entries - done)
        yield [ledgers[(done + number) % len(ledgers)].entry() for number in range(count)]
        done += count
