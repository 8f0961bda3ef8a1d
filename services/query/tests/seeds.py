"""Scopes and versions written straight into the tables, by the rules of the shared library.

They stand for what the write service stores, with every detail in the test's hands: states, times, kinds, erasures.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

import asyncpg

from pamspec_common.envelope import SPEC_VERSION
from pamspec_common.ids import mint, subject_token
from pamspec_common.instants import wire
from pamspec_common.ledger import entry_hash, genesis, keyed_digest, version_digest
from pamspec_common.strict_json import canonical, dumps, parse

if TYPE_CHECKING:
    Conn: TypeAlias = asyncpg.Connection[asyncpg.Record]
else:
    Conn = asyncpg.Connection

TENANT = "tenant:test"
START = datetime(2026, 3, 1, 9, 0, 0, tzinfo=UTC)
HEAD = 9223372036854775807
STATES = {
    "lifecycle_state": "active",
    "availability_state": "available",
    "retention_state": "retained",
    "validation_state": "corroborated",
}
TIMES = ("observed_at", "asserted_at", "valid_from", "valid_until")
ACTOR = {"actor_id": "agent:seed", "actor_kind": "agent"}
_scope_keys = itertools.count(1)


@dataclass
class Version:
    """A version as the tests look at it."""

    object_id: str
    version_id: str
    version_seq: int
    ledger_seq: int
    span: dict[str, Any]
    metadata: bytes
    salt: bytes | None
    content: bytes | None
    private: bytes | None


@dataclass
class Scope:
    """A scope in memory; `flush` writes what is new since the last one."""

    scope_id: str
    tenant_id: str = TENANT
    key: int = field(default_factory=lambda: next(_scope_keys))
    ledger_id: bytes = field(default_factory=lambda: os.urandom(16))
    epoch: int = 1
    now: datetime = START
    tick: timedelta = timedelta(milliseconds=1)
    last_seq: int = 0
    heads: dict[str, Version] = field(default_factory=dict)
    versions: list[Version] = field(default_factory=list)
    ledger: list[tuple[Any, ...]] = field(default_factory=list)
    _created: bool = False
    _flushed_versions: int = 0
    _flushed_ledger: int = 0
    _changed: list[Version] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.last_hash = genesis(self.ledger_id)

    def put(
        self,
        object_id: str | None = None,
        content: Any = None,
        *,
        raw: bytes | None = None,
        kind: str = "o",
        object_type: str = "observation",
        event_type: str | None = None,
        note: str | None = None,
        provenance: Mapping[str, Any] | None = None,
        actor: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        private: Mapping[str, Any] | None = None,
        payload: Mapping[str, Any] | None = None,
        **given: Any,
    ) -> Version:
        """The next version of an object: states and times are keywords; what is not given carries over."""
        object_id = object_id or mint("obj")
        before = self.heads.get(object_id)
        carried = STATES if before is None else {name: before.span[name] for name in STATES}
        states = {name: given.pop(name, value) for name, value in carried.items()}
        times = {name: given.pop(name, None if before is None else before.span[name]) for name in TIMES}
        schema_id = given.pop("schema_id", None)
        assert not given, f"unknown: {sorted(given)}"
        self.now += self.tick
        salt, who = os.urandom(32), dict(actor or ACTOR)
        told = _told(provenance or {}, who, wire(self.now))
        half = _half(told, who, note, private or {})
        deleted = states["availability_state"] == "deleted"
        body = None if deleted or kind == "d" else canonical(content) if raw is None else raw
        version_seq = 1 if before is None else before.version_seq + 1
        document = {
            **_document(kind, object_type, schema_id, states, times),
            _ID[kind]: object_id,
            "scope_id": self.scope_id,
            "sequence": version_seq,
            **_stamp(who, told, wire(self.now)),
            "private_digest": keyed_digest(salt, "private", half),
            **({} if body is None else {"content_digest": keyed_digest(salt, "content", body)}),
            **(metadata or {}),
        }
        span = {
            "to_seq": HEAD,
            "kind": kind,
            "object_type": object_type,
            "schema_id": schema_id,
            **states,
            **times,
            "actor_id": who["actor_id"],
            "provenance_id": told["provenance_id"],
            "committed_at": self.now,
            "created_by": who["actor_id"] if before is None else before.span["created_by"],
            "content": None if body is None else _projection(body),
            **{name: document.get(name) for name in EDGE_COLUMNS},
        }
        version_id, stored = str(document["version_id"]), dumps(document)
        made = Version(object_id, version_id, version_seq, self.last_seq + 1, span, stored, salt, body, half)
        self._follow(made, before)
        facts = _facts(made, states, payload or {})
        if deleted:
            self.erase(object_id, range(1, version_seq))
        name = event_type or _event(kind, deleted, before is None)
        self.event(
            name, payload=facts, subject_id=object_id, version_id=version_id, actor=_ids(who), id_member=_ID[kind]
        )
        return made

    def _follow(self, made: Version, before: Version | None) -> None:
        if before is not None:
            before.span["to_seq"] = made.ledger_seq
            self._changed.append(before)
        self.versions.append(made)
        self.heads[made.object_id] = made

    def erase(self, object_id: str, sequences: Iterable[int]) -> None:
        """Take the erasable halves and the projections of an object's versions away, as an erasure does."""
        gone = set(sequences)
        for version in self.versions:
            if version.object_id == object_id and version.version_seq in gone:
                version.salt = version.content = version.private = None
                version.span["content"] = None
                self._changed.append(version)

    def event(
        self,
        event_type: str,
        *,
        payload: Mapping[str, Any] | None = None,
        subject_id: str | None = None,
        version_id: str | None = None,
        actor: Mapping[str, Any] | None = None,
        id_member: str = "object_id",
    ) -> str:
        """The next ledger entry; its event_id."""
        self.last_seq += 1
        event_id = mint("evt")
        document: dict[str, Any] = {
            "event_id": event_id,
            "operation_id": mint("op"),
            "scope_id": self.scope_id,
            "event_type": event_type,
            "recorded_at": wire(self.now),
            "sequence": self.last_seq,
            "actor": dict(actor or ACTOR),
            "payload": dict(payload or {}),
        }
        if version_id is not None:
            document["version_id"] = version_id
        if subject_id is not None and not event_type.startswith(("subscription_", "delegation_")):
            document[id_member] = subject_id
        event = dumps(document)
        self.last_hash = entry_hash(self.last_hash, event)
        self.ledger.append((self.key, self.last_seq, event_id, event_type, subject_id, self.now, event, self.last_hash))
        return event_id

    async def flush(self, conn: Conn) -> None:
        """Write what is new, in one transaction."""
        async with conn.transaction():
            await self._write_scope(conn)
            for version in self._changed:
                await self._rewrite(conn, version)
            new = self.versions[self._flushed_versions :]
            await _copy(conn, "version", [self._version_row(v) for v in new])
            await _copy(conn, "version_private", [self._private_row(v) for v in new])
            await _copy(conn, "version_span", [self._span_row(v) for v in new])
            await _copy(conn, "ledger", self.ledger[self._flushed_ledger :])
            await conn.execute(
                "UPDATE core.scope_head SET revision = revision + 1, last_seq = $2, last_hash = $3, last_at = $4,"
                " ledger_epoch = $5 WHERE scope_key = $1",
                self.key,
                self.last_seq,
                self.last_hash,
                self.now,
                self.epoch,
            )
        self._flushed_versions, self._flushed_ledger = len(self.versions), len(self.ledger)
        self._changed.clear()

    async def _write_scope(self, conn: Conn) -> None:
        if self._created:
            return
        self._created = True
        await conn.execute("INSERT INTO core.tenant (tenant_id) VALUES ($1) ON CONFLICT DO NOTHING", self.tenant_id)
        await conn.execute(
            "INSERT INTO core.scope VALUES ($1, $2, $3, $4, $5, 0, $6, $7, $8)",
            self.key,
            self.tenant_id,
            self.scope_id,
            subject_token(self.tenant_id),
            subject_token(self.tenant_id, self.scope_id),
            dumps({"scope_id": self.scope_id, "scope_kind": "workspace"}),
            self.ledger_id,
            START,
        )
        await conn.execute(
            "INSERT INTO core.scope_head (scope_key, last_hash, last_at) VALUES ($1, $2, $3)",
            self.key,
            genesis(self.ledger_id),
            START,
        )

    async def _rewrite(self, conn: Conn, version: Version) -> None:
        await conn.execute(
            "UPDATE core.version_span SET to_seq = $3, content = $4 WHERE scope_key = $1 AND from_seq = $2",
            self.key,
            version.ledger_seq,
            version.span["to_seq"],
            version.span["content"],
        )
        await conn.execute(
            "UPDATE core.version_private SET salt = $3, content = $4, private = $5"
            " WHERE scope_key = $1 AND ledger_seq = $2",
            self.key,
            version.ledger_seq,
            version.salt,
            version.content,
            version.private,
        )

    def _version_row(self, v: Version) -> tuple[Any, ...]:
        kind = v.span["kind"].encode()
        return (self.key, v.ledger_seq, v.object_id, kind, v.version_seq, v.version_id, v.metadata)

    def _private_row(self, v: Version) -> tuple[Any, ...]:
        return (self.key, v.ledger_seq, b"operation-number", v.salt, v.content, v.private)

    def _span_row(self, v: Version) -> tuple[Any, ...]:
        span = {**v.span, "kind": v.span["kind"].encode()}
        ids = {"object_id": v.object_id, "version_seq": v.version_seq, "version_id": v.version_id}
        values = {"scope_key": self.key, "from_seq": v.ledger_seq, **ids, **span}
        return tuple(values[name] for name in SPAN_COLUMNS)


EDGE_COLUMNS = ("source_object_id", "target_object_id", "target_scope_id", "directionality")
SPAN_COLUMNS = [
    *("scope_key", "from_seq", "to_seq", "object_id", "kind", "version_seq", "version_id", "object_type", "schema_id"),
    *("lifecycle_state", "availability_state", "retention_state", "validation_state", "actor_id", "provenance_id"),
    *("observed_at", "asserted_at", "valid_from", "valid_until", "committed_at", "created_by", "content"),
    *EDGE_COLUMNS,
]
_ID = {"o": "object_id", "r": "relationship_id", "d": "delegation_id"}
_EDGE = {"source_object_id": "obj:source", "target_object_id": "obj:target", "directionality": "directed"}
_TYPE = {"o": "object_type", "r": "relationship_type"}


def _ids(who: Mapping[str, Any]) -> dict[str, Any]:
    return {name: who[name] for name in who if name not in ("display_name", "attestation")}


def _told(provenance: Mapping[str, Any], who: Mapping[str, Any], at: str) -> dict[str, Any]:
    return {"provenance_id": mint("prov"), "activity": "seeded", **provenance, "actor": who, "recorded_at": at}


def _half(told: Mapping[str, Any], who: Mapping[str, Any], note: str | None, private: Mapping[str, Any]) -> bytes:
    half = {"provenance": told, **private}
    if who != _ids(who):
        half["actor"] = who
    if note is not None:
        half["note"] = {"policy_basis": note}
    return dumps(half)


def _document(
    kind: str, object_type: str, schema_id: str | None, states: Mapping[str, str], times: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "spec_version": SPEC_VERSION,
        "version_id": mint("ver"),
        **({_TYPE[kind]: object_type} if kind in _TYPE else {}),
        **({} if schema_id is None else {"schema_id": schema_id}),
        **states,
        **{name: wire(value) for name, value in times.items() if value is not None},
        **(_EDGE if kind == "r" else {}),
    }


def _stamp(who: Mapping[str, Any], told: Mapping[str, Any], at: str) -> dict[str, Any]:
    """The service's own part of a version, with the provenance that an erasure leaves."""
    left = {"provenance_id": told["provenance_id"], "actor": _ids(who), "activity": "erased", "recorded_at": at}
    return {"committed_at": at, "recorded_at": at, "actor": _ids(who), "provenance": left}


def _facts(made: Version, states: Mapping[str, str], payload: Mapping[str, Any]) -> dict[str, Any]:
    kind = made.span["kind"]
    facts = {**states, "version_digest": version_digest(made.metadata), "version_sequence": made.version_seq}
    facts |= {_TYPE[kind]: made.span["object_type"]} if kind in _TYPE else {}
    facts |= {name: _EDGE[name] for name in _EDGE if name != "directionality"} if kind == "r" else {}
    facts |= payload
    if states["availability_state"] == "deleted":
        facts["erased"] = [{"from_sequence": 1, "to_sequence": made.version_seq - 1}]
    return facts


def _event(kind: str, deleted: bool, first: bool) -> str:
    if deleted:
        return "object_deleted"
    if kind == "d":
        return "delegation_granted" if first else "delegation_revoked"
    noun = "object" if kind == "o" else "relationship"
    return f"{noun}_created" if first else f"{noun}_updated"


def _projection(content: bytes) -> str | None:
    """The jsonb text of a content; strings that hold a NUL are left out with their names."""
    if b"\\u0000" not in content:
        return content.decode()
    return canonical(_without_nul(parse(content))).decode()


def _without_nul(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_nul(v) for k, v in value.items() if "\0" not in k and not _is_nul(v)}
    if isinstance(value, list):
        return [None if _is_nul(v) else _without_nul(v) for v in value]
    return None if _is_nul(value) else value


def _is_nul(value: Any) -> bool:
    return isinstance(value, str) and "\0" in value


async def _copy(conn: Conn, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
    if rows:
        columns = SPAN_COLUMNS if table == "version_span" else None
        await conn.copy_records_to_table(table, records=rows, schema_name="core", columns=columns)
