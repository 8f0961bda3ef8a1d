"""A write service in this process, called as a gateway calls it; whatever it answers is held against the contracts."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import asyncpg
import orjson
from jsonschema.protocols import Validator
from referencing import Registry
from referencing.jsonschema import SchemaRegistry

from pamspec_cli.servers.databases import Database
from pamspec_cli.servers.nats import NatsAddress
from pamspec_common import contracts, ledger
from pamspec_common.authorization.decisions import Subject
from pamspec_common.authorization.policies import default_text, parse
from pamspec_common.authorization.rights import Asker, Epochs, Rights
from pamspec_common.calls import Answer, Call
from pamspec_common.contracts.formats import referenced
from pamspec_common.internal import answer as run
from pamspec_common.principal import (
    RIGHT_ASSERT_ACTOR,
    RIGHT_AUDIT,
    Principal,
    TokenSigner,
    service_principal,
)
from pamspec_common.service import Service
from pamspec_write.app import build
from pamspec_write.settings import Settings

Document = dict[str, Any]

TENANT = "tenant:test"
KID, KEY = "k1", b"a key between services for tests"
PEPPER = "a pepper for tests"
ADMIN = frozenset({"admin"})
AGENT = Principal(TENANT, "agent:tester", "agent", roles=ADMIN)
OTHER = Principal(TENANT, "agent:other", "agent", roles=ADMIN)
BACKEND = Principal(TENANT, "service:backend", "service", frozenset({RIGHT_ASSERT_ACTOR}), roles=ADMIN)
AUDITOR = Principal(TENANT, "human:auditor", "human", frozenset({RIGHT_AUDIT}), roles=ADMIN)
SUBSCRIPTION = service_principal("subscription", TENANT)

PROVENANCE = {"activity": "test"}
_names = count(1)
_KEYS = "SELECT scope_key FROM core.scope WHERE scope_id = ANY($1::text[])"


@cache
def rights_with(roles: frozenset[str]) -> Rights:
    """The rights of these roles in a scope whose epochs never moved."""
    asker = Asker(TENANT, "agent:a", "agent", "agent:a", roles)
    return Rights(asker, Subject("agent:a", "agent", roles), parse(default_text()), Epochs(1, 1))


def write_settings(database: Database, bus: NatsAddress, **changes: Any) -> Settings:
    """Settings of a write service on this database and bus."""
    given: Document = {
        "database_url": database.role("write"),
        "nats_url": bus.url,
        "nats_nkey_seed": bus.service_seed,
        "token_keys": {KID: KEY},
        "key_pepper": PEPPER,
        "drain_s": 5.0,
        "denial_window_s": 3600.0,
    }
    return Settings(**(given | changes))


def claim(scope_id: str, content: Any = "a claim", **more: Any) -> Document:
    """A create request."""
    return {
        "scope_id": scope_id,
        "object_type": "claim",
        "canonical_content": content,
        "provenance": PROVENANCE,
        **more,
    }


def edge(source: Document, target: Document, label: str = "supports", **more: Any) -> Document:
    """A relate request between the objects of two answers, in the scope of the first."""
    return {
        "scope_id": source["scope_id"],
        "source_object_id": source["object_id"],
        "target_object_id": target["object_id"],
        "relationship_type": label,
        "directionality": "directed",
        "provenance": PROVENANCE,
        **more,
    }


@dataclass
class Entry:
    """A ledger row."""

    sequence: int
    event: Document
    raw: bytes
    entry_hash: bytes


@dataclass
class Writer:
    """A running write service, the scope of the test, and a superuser's connection to look behind it."""

    service: Service
    settings: Settings
    admin: asyncpg.Connection[asyncpg.Record]
    scope: str = ""
    signer: TokenSigner = field(default_factory=lambda: TokenSigner(KID, KEY))
    scopes: list[str] = field(default_factory=list)
    """The scopes that the test has made; scopes of other tests are none of its business."""

    async def call(
        self, operation: str, document: Document | bytes, *, key: str | None = None, by: Principal = AGENT
    ) -> Answer:
        """The answer of an operation, valid by its contract."""
        body = document if isinstance(document, bytes) else orjson.dumps(document)
        answer = await run(self.service.operations, Call(operation, self.signer.sign(by), body, key))
        check_answer(operation, answer)
        return answer

    async def ok(
        self, operation: str, document: Document, *, key: str | None = None, by: Principal = AGENT
    ) -> Document:
        """The body of an answer that must be a success."""
        answer = await self.call(operation, document, key=key, by=by)
        assert answer.status < 300, answer.body
        body: Document = json.loads(answer.body)
        return body

    async def refused(
        self, operation: str, document: Document | bytes, *, key: str | None = None, by: Principal = AGENT
    ) -> Document:
        """The error of an answer that must be a refusal."""
        answer = await self.call(operation, document, key=key, by=by)
        assert answer.status >= 400, answer.body
        error: Document = orjson.loads(answer.body)["error"]
        return error

    async def create(self, content: Any = "a claim", *, by: Principal = AGENT, **more: Any) -> Document:
        """A new claim of the test's scope."""
        return await self.ok("create", claim(self.scope, content, **more), by=by)

    async def update(self, of: Document, content: Any, **more: Any) -> Document:
        """The next version after that answer."""
        return await self.ok("update", self.change(of, canonical_content=content, provenance=PROVENANCE, **more))

    async def delete(self, of: Document) -> Document:
        """The tombstone after that answer."""
        return await self.ok("delete", self.change(of, policy_basis="test"))

    async def relate(self, source: Document, target: Document, label: str = "supports", **more: Any) -> Document:
        """A relationship between the objects of two answers."""
        return await self.ok("relate", edge(source, target, label, **more))

    def change(self, of: Document, **more: Any) -> Document:
        """A request about the object or relationship of an answer, with its version as the expected one."""
        member = "object_id" if "object_id" in of else "relationship_id"
        return {
            "scope_id": of["scope_id"],
            member: of[member],
            "expected_version_id": of["version_id"],
            **more,
        }

    async def new_scope(self, scope_id: str | None = None, *, kind: str = "workspace", by: Principal = AGENT) -> str:
        """Another scope."""
        scope_id = scope_id or f"scope:{next(_names)}"
        await self.ok("create_scope", {"scope_id": scope_id, "scope_kind": kind}, by=by)
        self.scopes.append(scope_id)
        return scope_id

    async def afresh(self) -> Writer:
        """The same service for another test, with a scope of its own."""
        writer = Writer(self.service, self.settings, self.admin, signer=self.signer)
        writer.scope = await writer.new_scope()
        return writer

    async def scope_key(self, scope_id: str = "", tenant_id: str = TENANT) -> int:
        """The internal key of a scope."""
        found: int = await self.admin.fetchval(
            "SELECT scope_key FROM core.scope WHERE tenant_id = $1 AND scope_id = $2", tenant_id, scope_id or self.scope
        )
        return found

    async def ledger(self, scope_id: str = "") -> list[Entry]:
        """A scope's ledger in order, every entry valid by its contract."""
        rows = await self.admin.fetch(
            "SELECT sequence, event, entry_hash FROM core.ledger WHERE scope_key = $1 ORDER BY sequence",
            await self.scope_key(scope_id),
        )
        entries = [Entry(row["sequence"], orjson.loads(row["event"]), row["event"], row["entry_hash"]) for row in rows]
        for entry in entries:
            contracts.check_event(entry.event)
            _check_draft("memory-event", entry.event)
        return entries

    async def count(self, table: str, where: str = "true") -> int:
        """How many rows the scopes of the test have in a table of the schema core or relay."""
        sql = f"SELECT count(*) FROM {table} WHERE scope_key IN ({_KEYS}) AND {where}"
        found: int = await self.admin.fetchval(sql, self.scopes)
        return found

    async def only(self, column: str, table: str, where: str = "true") -> Any:
        """The one value of that column of the test's scopes."""
        rows = await self.admin.fetch(
            f"SELECT {column} FROM {table} WHERE scope_key IN ({_KEYS}) AND {where}", self.scopes
        )
        assert len(rows) == 1
        return rows[0][0]

    async def check_scope(self, scope_id: str = "") -> None:
        """The scope keeps its invariants: gap-free, chained, in time order, all-or-none with versions and outbox."""
        key = await self.scope_key(scope_id)
        entries = await self.ledger(scope_id)
        assert [entry.sequence for entry in entries] == list(range(1, len(entries) + 1))
        head = await self.admin.fetchrow("SELECT * FROM core.scope_head WHERE scope_key = $1", key)
        ledger_id = await self.admin.fetchval("SELECT ledger_id FROM core.scope WHERE scope_key = $1", key)
        assert head is not None
        previous = ledger.genesis(ledger_id)
        for entry in entries:
            assert entry.event["sequence"] == entry.sequence
            previous = ledger.entry_hash(previous, entry.raw)
            assert entry.entry_hash == previous
        assert (head["last_seq"], head["last_hash"]) == (len(entries), previous)
        await self._check_versions(key, entries)
        await self._check_outbox(key, entries)

    async def _check_versions(self, key: int, entries: Sequence[Entry]) -> None:
        versions = await self.admin.fetch(
            "SELECT v.*, p.salt, p.content, p.private, s.from_seq, s.to_seq, s.committed_at FROM core.version v "
            "JOIN core.version_private p USING (scope_key, ledger_seq) "
            "JOIN core.version_span s ON s.scope_key = v.scope_key AND s.from_seq = v.ledger_seq "
            "WHERE v.scope_key = $1 ORDER BY v.ledger_seq",
            key,
        )
        assert len(versions) == await self.admin.fetchval("SELECT count(*) FROM core.version WHERE scope_key = $1", key)
        made_by = {entry.event.get("version_id"): entry for entry in reversed(entries) if _makes_version(entry.event)}
        assert {row["version_id"] for row in versions} == set(made_by)
        times = [(row["committed_at"], made_by[row["version_id"]].event["operation_id"]) for row in versions]
        assert [time for time, _ in times] == sorted(time for time, _ in times)
        assert len({time for time, _ in times}) == len(set(times)), "two operations share an instant"
        by_object: dict[str, list[asyncpg.Record]] = {}
        for row in versions:
            entry = made_by[row["version_id"]]
            assert entry.sequence == row["ledger_seq"]
            assert entry.event["payload"]["version_digest"] == ledger.version_digest(row["metadata"])
            stored = orjson.loads(row["metadata"])
            if row["salt"] is not None:
                for part in ("content", "private"):
                    if row[part] is not None:
                        assert stored[f"{part}_digest"] == ledger.keyed_digest(row["salt"], part, row[part])
            by_object.setdefault(row["object_id"], []).append(row)
        for history in by_object.values():
            assert [row["version_seq"] for row in history] == list(range(1, len(history) + 1))
            assert [row["to_seq"] for row in history[:-1]] == [row["from_seq"] for row in history[1:]]
            assert history[-1]["to_seq"] == 9223372036854775807

    async def _check_outbox(self, key: int, entries: Sequence[Entry]) -> None:
        rows = await self.admin.fetch("SELECT * FROM relay.outbox WHERE scope_key = $1 ORDER BY id", key)
        scope = await self.admin.fetchrow("SELECT * FROM core.scope WHERE scope_key = $1", key)
        assert scope is not None
        assert [(row["sequence"], row["message"], row["event_id"]) for row in rows] == [
            (entry.sequence, entry.raw, entry.event["event_id"]) for entry in entries
        ]
        for row, entry in zip(rows, entries, strict=True):
            tokens = f"{scope['partition']}.{scope['tenant_token']}.{scope['scope_token']}"
            assert row["subject"] == f"pamspec.ledger.{tokens}.{entry.event['event_type']}"
            assert (row["partition"], row["ledger_epoch"]) == (scope["partition"], 1)


def _makes_version(event: Document) -> bool:
    return "version_digest" in event.get("payload", {}) and event["event_type"] not in (
        "tool_invoked",
        "tool_completed",
    )


async def started(database: Database, settings: Settings) -> Writer:
    """A running service with a tenant and a scope."""
    admin = await asyncpg.connect(database.dsn)
    await admin.execute("INSERT INTO core.tenant (tenant_id) VALUES ($1) ON CONFLICT DO NOTHING", TENANT)
    service = build(settings)
    await service.start()
    writer = Writer(service, settings, admin)
    writer.scope = await writer.new_scope()
    return writer


async def stopped(writer: Writer) -> None:
    """The service has stopped, and so has the look behind it."""
    await writer.service.stop()
    await writer.admin.close()


def check_answer(operation: str, answer: Answer) -> None:
    """An answer keeps its contract: an error the envelope of errors, a success the operation's schema."""
    document = json.loads(answer.body)
    if answer.status >= 400:
        contracts.check("error", document)
        code = contracts.errors()[document["error"]["code"]]
        assert answer.status == code.status or str(answer.status) in {str(status) for status in code.also}, answer
        if answer.status in (429, 503):
            assert int(answer.headers["Retry-After"]) >= 1
        return
    error = next(contracts.answer_validator(operation).iter_errors(document), None)
    assert error is None, f"{operation}: {error}"
    if "snapshot" in document:
        _check_draft("evaluation-snapshot", document["snapshot"])
    for envelope in _envelopes(document):
        kinds = {"relationship_id": "relationship", "delegation_id": "delegation"}
        schema = next((kind for member, kind in kinds.items() if member in envelope), "memory-object")
        contracts.check(schema, envelope)
        _check_draft(schema, envelope)


def _envelopes(document: Document) -> list[Document]:
    found = [document["envelope"]] if "envelope" in document else []
    if "object" in document:
        found += _envelopes(document["object"])
    for result in document.get("results", ()):
        found += _envelopes(result)
    return found


def _check_draft(name: str, document: Document) -> None:
    """Valid by the draft's own schema too, where PAMSPEC_SPEC names the folder that holds it."""
    by = _draft().get(name)
    if by is not None:
        error = next(by.iter_errors(document), None)
        assert error is None, f"the draft's {name}: {error}"


@cache
def _draft() -> dict[str, Validator]:
    folder = os.environ.get("PAMSPEC_SPEC")
    if folder is None:
        return {}
    schemas = {path.name: json.loads(path.read_text()) for path in Path(folder).glob("schemas/*.schema.json")}
    assert schemas, f"PAMSPEC_SPEC names {folder}, where there are no schemas"
    empty: SchemaRegistry = Registry()
    registry = empty.with_resources((schema["$id"], referenced(schema)) for schema in schemas.values())
    return {
        name.removesuffix(".schema.json"): contracts.validator_of({"$ref": schema["$id"]}, registry)
        for name, schema in schemas.items()
    }


def move(writer: Writer, of: Document, dimension: str, target: str) -> Document:
    """A transition after that answer."""
    return writer.change(of, dimension=dimension, target_state=target, policy_basis="test")
