"""A life full of secrets, every way to erase it, and every place where something of it could be left."""

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from pamspec_client import AsyncClient, Outcome
from pamspec_common import streams
from tests.integration.harness import Fleet

SECRETS = [f"SECRET-{number}-x" for number in range(16)]
CONTENT_SECRETS = SECRETS[:3]
_numbers = itertools.count(1)
ACTOR: Any = {"display_name": SECRETS[3], "attestation": {"manifest_digest": SECRETS[4], "signature": SECRETS[5]}}
PROVENANCE: Any = {
    "activity": SECRETS[6],
    "source_ref": SECRETS[7],
    "evidence_refs": [SECRETS[8]],
    "transformation_parent": SECRETS[9],
    "integrity_ref": SECRETS[10],
}
SIGNALS: Any = {"verification_method_id": SECRETS[11], "evidence_strength": 0.5}
INTEGRITY: Any = {"digest": SECRETS[12], "signature": SECRETS[13], "ledger_ref": SECRETS[14]}
PUBLIC: Any = {"activity": "kept"}


@dataclass
class Door:
    """The gateway over HTTP: answers as bytes, refusals too."""

    fleet: Fleet
    session: aiohttp.ClientSession
    scope: str

    async def __call__(self, operation: str, **document: Any) -> tuple[int, bytes]:
        """The status and the body of an operation in the test's scope."""
        url = f"{self.fleet['gateway'].url}/v1/{operation}"
        body = json.dumps({"scope_id": self.scope, **document})
        async with self.session.post(url, data=body, headers=self.fleet.headers) as answer:
            return answer.status, await answer.read()

    async def get(self, path: str, **headers: str) -> tuple[int, bytes, str | None]:
        """The status, the body and the entity tag of a convenience."""
        url = f"{self.fleet['gateway'].url}{path}"
        async with self.session.get(url, headers=self.fleet.headers | headers) as answer:
            return answer.status, await answer.read(), answer.headers.get("ETag")


@dataclass
class Life:
    """An object with secrets wherever a client can put any, and how it was written."""

    versions: list[Outcome]
    snapshot_id: str
    """Sealed after the last of them."""
    create: dict[str, Any]
    update: dict[str, Any]

    @property
    def object_id(self) -> str:
        """The object."""
        assert self.versions[0].object_id is not None
        return self.versions[0].object_id

    @property
    def head(self) -> Outcome:
        """Its newest version."""
        return self.versions[-1]


async def lived(client: AsyncClient, scope: str) -> Life:
    """Created with a source event, held up by a policy, updated, part of a batch."""
    actor: Any = {**await _own(client, scope), **ACTOR}
    create: Any = {
        "scope_id": scope,
        "object_type": "claim",
        "canonical_content": {"kept": "public", "deep": {"list": [SECRETS[0], "kept"]}, SECRETS[1]: 1},
        "provenance": PROVENANCE,
        "quality_signals": SIGNALS,
        "integrity": INTEGRITY,
        "actor": actor,
        "source_event": {"source": "mail", "id": f"{scope}-1"},
        "idempotency_key": f"{scope}-create",
    }
    versions = [await client.create(**create)]
    about: Any = {"scope_id": scope, "object_id": versions[0].object_id}
    versions.append(
        await client.transition(
            **about,
            expected_version_id=versions[-1].version_id,
            dimension="validation",
            target_state="corroborated",
            policy_basis=SECRETS[15],
            actor=actor,
        )
    )
    update: Any = {
        **about,
        "expected_version_id": versions[-1].version_id,
        "canonical_content": {"kept": "public", "deep": {"list": ["kept", SECRETS[2]]}, SECRETS[1]: "a\u0000b"},
        "provenance": PROVENANCE,
        "actor": actor,
        "idempotency_key": f"{scope}-update",
    }
    items: Any = [{"operation": "update", **update}]
    batch = await client.batch(scope_id=scope, items=items, idempotency_key=f"{scope}-batch")
    assert isinstance(batch.results[0], Outcome), batch.results[0]
    versions.append(batch.results[0])
    snapshot_id = f"snap:{scope}"
    await client.call("seal_snapshot", {"scope_id": scope, "snapshot_id": snapshot_id})
    return Life(versions, snapshot_id, create, update)


async def _own(client: AsyncClient, scope: str) -> dict[str, str]:
    made = await client.create(scope_id=scope, object_type="claim", canonical_content=0, provenance=PUBLIC)
    return {name: made.envelope.actor[name] for name in ("actor_id", "actor_kind")}


async def everywhere(door: Door, life: Life) -> dict[str, bytes]:
    """What every door that shows content answers about the object and its scope, by the door's name."""
    about = {"object_id": life.object_id}
    asked: list[tuple[str, str, dict[str, Any]]] = [
        ("read", "read", about),
        ("read fields", "read", {**about, "fields": ["canonical_content", "provenance", "actor", "quality_signals"]}),
        ("history", "inspect_history", {**about, "pagination": {"limit": 1000}}),
        ("ledger", "inspect_history", {"after_sequence": 0, "pagination": {"limit": 1000}}),
        ("again create", "create", life.create),
        ("again update", "update", life.update),
        (
            "again batch",
            "batch",
            {"items": [{"operation": "update", **life.update}], "idempotency_key": f"{door.scope}-batch"},
        ),
        ("source", "create", {**life.create, "idempotency_key": "other"}),
        ("snapshot", "read", {**about, "snapshot_id": life.snapshot_id}),
        ("snapshot query", "query", {"query": {"kind": "structured", "trust": "all"}, "snapshot_id": life.snapshot_id}),
        ("snapshot history", "inspect_history", {**about, "snapshot_id": life.snapshot_id}),
        ("export", "export", {}),
        ("verify", "verify_ledger", {}),
    ]
    for number, version in enumerate(life.versions):
        at = {"ledger_sequence": version.ledger_sequence}
        asked.append((f"version {number}", "read", {**about, "version_id": version.version_id}))
        asked.append((f"as of {number}", "read", {**about, "as_of": at}))
        asked.append(
            (f"as of time {number}", "read", {**about, "as_of": {"recorded_at": version.envelope.recorded_at}})
        )
        everything = {"kind": "structured", "trust": "all", "filters": dict.fromkeys(_STATES, "any"), "as_of": at}
        asked.append((f"query as of {number}", "query", {"query": everything}))
        asked.append((f"operation {number}", "get_operation", {"operation_id": version.operation_id}))
    for state in ("available", "partially_redacted", "redacted", "deleted", "any"):
        states = state if state == "any" else [state]
        filters = {"availability_state": states, "validation_state": "any", "lifecycle_state": "any"}
        asked.append((f"query {state}", "query", {"query": {"kind": "structured", "filters": filters}}))
        temporal = {"kind": "temporal", "temporal_basis": "recorded_at", "range": {"from": "2020-01-01T00:00:00Z"}}
        asked.append((f"temporal {state}", "query", {"query": {**temporal, "filters": filters}}))
    found = {name: (await door(operation, **document))[1] for name, operation, document in asked}
    path = f"/v1/objects?scope_id={door.scope}&object_id={life.object_id}"
    found["convenience"] = (await door.get(path))[1]
    found["subscription"] = await _polled(door)
    return found


_STATES = ("lifecycle_state", "availability_state", "retention_state", "validation_state")


async def _polled(door: Door) -> bytes:
    """All events of the scope from the beginning, with their content."""
    status, body = await door("subscribe", after_sequence=0, include_content=True)
    assert status == 201, body
    name = json.loads(body)["subscription_id"]
    status, events = await door("poll", subscription_id=name, max=1000)
    assert status == 200, events
    await door("unsubscribe", subscription_id=name)
    return events


FOUND_SQL = """
SELECT x FROM unnest($1::text[]) x WHERE EXISTS (
  SELECT FROM {} t WHERE strpos(t::text, x) > 0 OR strpos(t::text, encode(convert_to(x, 'UTF8'), 'hex')) > 0)
"""
TABLES_SQL = """
SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'm') AND n.nspname <> 'information_schema' AND n.nspname <> 'pg_toast'
"""


async def in_tables(fleet: Fleet, *texts: str) -> dict[str, list[str]]:
    """By text the tables of every schema, the system's own with its statistics included, that hold it in any column."""
    found: dict[str, list[str]] = {}
    async with fleet.database() as connection:
        for (name,) in await connection.fetch(TABLES_SQL):
            for (text,) in await connection.fetch(FOUND_SQL.format(name), texts):
                found.setdefault(text, []).append(name)
    return found


async def in_stream(fleet: Fleet, texts: Sequence[str]) -> list[str]:
    """Those of the texts that stand in a message of any of our streams, in its subject or in its headers."""
    found: set[str] = set()
    async with fleet.bus() as client:
        for info in await client.jetstream().streams_info():
            assert info.config.name is not None
            held = await streams.inspect(client, info.config.name)
            assert held is not None
            async for page in streams.read(client, held, 0):
                for message in page:
                    seen = b"%s %s" % (str((message.subject, message.headers)).encode(), message.data)
                    found.update(text for text in texts if text.encode() in seen)
    return sorted(found)


def in_files(fleet: Fleet, texts: Sequence[str]) -> list[str]:
    """Files of the deployment that hold one of the texts: logs, streams, caches; not the pages of PostgreSQL."""
    found = []
    for path in fleet.directory.rglob("*"):
        inside = path.relative_to(fleet.directory).parts
        pages = inside[0] == "postgres" and not path.name.endswith(".log")
        if path.is_file() and not pages:
            data = path.read_bytes()
            found += [f"{path.name}: {text}" for text in texts if text.encode() in data]
    return found


async def erased(client: AsyncClient, life: Life, how: str) -> Outcome:
    """Erase the object's secrets in one of the ways that there are."""
    head = life.head
    about: Any = {"scope_id": head.scope_id, "object_id": head.object_id, "policy_basis": "asked"}
    if how == "delete":
        return await client.delete(**about, expected_version_id=head.version_id)
    if how == "redact":
        target: Any = {"whole": True}
        return await client.redact(**about, expected_version_id=head.version_id, redaction_target=target)
    if how == "transition":
        return await client.transition(
            **about, expected_version_id=head.version_id, dimension="availability", target_state="redacted"
        )
    if how == "atomic batch":
        item: Any = {**about, "expected_version_id": head.version_id, "redaction_target": {"whole": True}}
        items: Any = [{"operation": "redact", **item}]
        batch = await client.batch(scope_id=head.scope_id, items=items, atomic=True)
        assert isinstance(batch.results[0], Outcome), batch.results[0]
        return batch.results[0]
    paths: Any = {"paths": ["/deep/list/1", f"/{SECRETS[1]}"]}
    if how == "paths":
        return await client.redact(
            **about, expected_version_id=head.version_id, redaction_target=paths, provenance=PUBLIC
        )
    assert how == "chosen versions"
    ids = [version.version_id for version in life.versions]
    return await client.redact(
        **about, expected_version_id=head.version_id, redaction_target=paths, version_ids=ids, provenance=PUBLIC
    )
