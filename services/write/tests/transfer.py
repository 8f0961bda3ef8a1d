"""Exports and imports as a gateway passes them, between the two services on one database."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from pamspec_common.asgi import Message
from pamspec_common.calls import Answer, Call
from pamspec_common.internal import answer as run
from pamspec_common.principal import PRINCIPAL_HEADER, Principal
from pamspec_common.service import Service
from services.write.tests.writer import ADMIN, AGENT, Document, Writer, check_answer

TABLES = {
    "version": "ledger_seq",
    "version_private": "ledger_seq",
    "version_span": "from_seq",
    "ledger": "sequence",
    "source_event": "source_hash",
    "scope_policy": "policy_version",
    "snapshot": "snapshot_id",
    "content_schema": "schema_id",
    "legal_hold": "hold_id",
    "held_object": "hold_id, object_id",
}
"""What makes a scope, and the order of its rows."""


@dataclass
class Store:
    """A write service and a query service on one database."""

    writer: Writer
    query: Service
    other: Principal = field(default_factory=lambda: Principal("tenant:second", "agent:importer", "agent", roles=ADMIN))
    """Somebody in another tenant, where a scope of the same name may be."""

    async def export(self, scope_id: str, *, by: Principal = AGENT, **more: Any) -> bytes:
        """The file of a scope."""
        status, body = await self.stream(self.query, "/v1/export", orjson.dumps({"scope_id": scope_id, **more}), by=by)
        assert status == 200, body
        assert body.splitlines()[-1].startswith(b'{"kind":"end"'), body.splitlines()[-1]
        return body

    async def import_(
        self,
        body: bytes | Iterable[bytes | None],
        query: str = "",
        *,
        by: Principal | None = None,
        key: str | None = None,
    ) -> Answer:
        """The answer to a file; refusals and answers keep their contracts."""
        headers = [] if key is None else [(b"idempotency-key", key.encode())]
        service = self.writer.service
        taken = await self.answered(service, "/v1/import", body, query, by=by or self.other, headers=headers)
        check_answer("import", taken)
        return taken

    async def imported(self, body: bytes, query: str = "", *, by: Principal | None = None) -> Document:
        """The answer to a file that must be taken."""
        answer = await self.import_(body, query, by=by)
        assert answer.status == 200, answer.body
        document: Document = orjson.loads(answer.body)
        return document

    async def refused(self, body: bytes, query: str = "", *, by: Principal | None = None) -> Document:
        """The error of a file that must not be taken."""
        answer = await self.import_(body, query, by=by)
        assert answer.status >= 400, answer.body
        error: Document = orjson.loads(answer.body)["error"]
        return error

    async def ask(self, operation: str, *, by: Principal | None = None, **document: Any) -> Document:
        """The answer of a read operation."""
        call = Call(operation, self.writer.signer.sign(by or self.other), orjson.dumps(document))
        found = await run(self.query.operations, call)
        answer: Document = orjson.loads(found.body)
        return answer

    async def rows(self, scope_id: str, tenant_id: str) -> dict[str, list[tuple[Any, ...]]]:
        """Everything that the tables have of a scope, but for its key."""
        key = await self.writer.scope_key(scope_id, tenant_id)
        found: dict[str, list[tuple[Any, ...]]] = {}
        for table, order in TABLES.items():
            rows = await self.writer.admin.fetch(
                f"SELECT * FROM core.{table} WHERE scope_key = $1 ORDER BY {order}", key
            )
            left_out = {"scope_key", "tenant_id", "done_seq", "leased_until"}
            found[table] = [tuple(value for name, value in row.items() if name not in left_out) for row in rows]
        return found

    async def traces(self) -> dict[str, int]:
        """How many rows each table has in all: after a refusal as many as before."""
        found: dict[str, int] = {}
        for table in (*TABLES, "scope", "scope_head", "operation_record", "scope_import"):
            found[table] = await self.writer.admin.fetchval(f"SELECT count(*) FROM core.{table}")
        found["outbox"] = await self.writer.admin.fetchval("SELECT count(*) FROM relay.outbox")
        return found

    async def stream(self, service: Service, path: str, body: bytes, *, by: Principal) -> tuple[int, bytes]:
        """Status and body of an answer."""
        answer = await self.answered(service, path, body, "", by=by)
        return answer.status, answer.body

    async def answered(
        self,
        service: Service,
        path: str,
        body: bytes | Iterable[bytes | None],
        query: str,
        *,
        by: Principal,
        headers: Iterable[tuple[bytes, bytes]] = (),
    ) -> Answer:
        """The answer to a request whose body comes in these pieces; None among them stands for a client that leaves."""
        pieces: Iterator[bytes | None] = iter([body] if isinstance(body, bytes) else body)
        ended = False
        sent: list[Message] = []

        async def receive() -> Message:
            nonlocal ended
            if ended:
                await asyncio.Event().wait()
            piece = next(pieces, b"")
            if piece is None:
                return {"type": "http.disconnect"}
            ended = not piece
            return {"type": "http.request", "body": piece, "more_body": not ended}

        async def send(message: Message) -> None:
            sent.append(message)

        token = self.writer.signer.sign(by).encode()
        scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "query_string": query.encode(),
            "headers": [(PRINCIPAL_HEADER, token), *headers],
        }
        assert service.app is not None
        await service.app(scope, receive, send)
        names = {name.decode().title(): value.decode() for name, value in sent[0].get("headers", ())}
        return Answer(sent[0]["status"], b"".join(one.get("body", b"") for one in sent[1:]), names)


def without_manifest(body: bytes) -> bytes:
    """All that two exports of the same state have in common."""
    return body.partition(b"\n")[2]


def rebuilt(lines: list[bytes]) -> bytes:
    """A file of these lines, whose end adds up again: what somebody writes who edits a file with care."""
    end = orjson.loads(lines[-1])
    covered = b"".join(line + b"\n" for line in lines[1:-1])
    end["digest"] = "sha256:" + hashlib.sha256(covered).hexdigest()
    return lines[0] + b"\n" + covered + orjson.dumps(end) + b"\n"
