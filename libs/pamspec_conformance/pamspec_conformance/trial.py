"""What a case works with: scopes of its own, operations that must succeed or be refused, and judgements.

Invariant: an answer that says "not offered" ends the case as not yet, whatever the case expected of it; so a refusal
that a case waits for is never mistaken for one of something that is missing.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from typing import Any

from pamspec_conformance import shapes
from pamspec_conformance.binding import Binding, Facilities, RawHttp, Refusal, Reply
from pamspec_conformance.case import Case, Deviation, NotYet

PROVENANCE = {"activity": "conformance"}


class Made(dict[str, Any]):
    """The answer of a write, with the positions that travelled beside it."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.document if isinstance(reply.document, Mapping) else {})
        self.reply = reply


class Trial:
    """One run of one case."""

    def __init__(self, case: Case, binding: Binding, facilities: Facilities) -> None:
        self.case = case
        self.binding = binding
        self.facilities = facilities
        self._scope: asyncio.Task[str] | None = None
        self._keys = 0

    async def scope(self) -> str:
        """The scope of this trial, made at the first use."""
        if self._scope is None:
            self._scope = asyncio.create_task(self.new_scope())
        return await self._scope

    async def new_scope(self, **members: Any) -> str:
        """A further scope."""
        scope_id = f"workspace:conformance-{secrets.token_hex(8)}"
        await self.ok("create_scope", **{"scope_id": scope_id, "scope_kind": "workspace", **members})
        return scope_id

    def key(self) -> str:
        """An idempotency key that nobody used before."""
        self._keys += 1
        return f"key:{secrets.token_hex(8)}-{self._keys}"

    async def send(
        self, operation: str, /, *, key: str | None = None, by: Binding | None = None, **members: Any
    ) -> Reply:
        """The answer as it comes, in the trial's scope unless another is named; NotYet when it is not offered."""
        document = dict(members)
        if "scope_id" not in document and operation not in ("poll", "ack", "reset", "unsubscribe"):
            document["scope_id"] = await self.scope()
        reply = await (by or self.binding).call(operation, document, idempotency_key=key)
        self.offered(reply, operation)
        return reply

    def offered(self, reply: Reply, what: str) -> Reply:
        """The reply; NotYet when it says that this is not offered."""
        if reply.not_offered:
            said = reply.refusal.message if reply.refusal else f"status {reply.status}"
            raise NotYet(f"{what}: {said}")
        return reply

    async def ok(self, operation: str, /, *, key: str | None = None, by: Binding | None = None, **members: Any) -> Made:
        """The answer of an operation that must succeed."""
        reply = await self.send(operation, key=key, by=by, **members)
        if reply.refusal is not None:
            raise Deviation(f"{operation} was refused with {reply.refusal.code}: {reply.refusal.message}")
        if not isinstance(reply.document, Mapping):
            raise Deviation(f"{operation} answered no JSON object (status {reply.status})")
        return Made(reply)

    async def refused(
        self, codes: str, operation: str, /, *, key: str | None = None, by: Binding | None = None, **members: Any
    ) -> Refusal:
        """The refusal of an operation that must be refused with this code (or one of several, split by spaces)."""
        reply = await self.send(operation, key=key, by=by, **members)
        return self.refusal(reply, codes, operation)

    def refusal(self, reply: Reply, codes: str, operation: str) -> Refusal:
        """The refusal in a reply, of one of these codes, in the closed error envelope."""
        if reply.refusal is None:
            raise Deviation(f"{operation} succeeded where {codes} was due")
        self.shape(shapes.error_faults(reply.document), f"the error of {operation}")
        if reply.refusal.code not in codes.split():
            raise Deviation(f"{operation} was refused with {reply.refusal.code} where {codes} was due")
        return reply.refusal

    def check(self, holds: object, deviation: str) -> None:
        """A Deviation with this sentence unless it holds."""
        if not holds:
            raise Deviation(deviation)

    def same(self, found: Any, due: Any, what: str) -> None:
        """A Deviation unless the two are equal; values are cut so that a report stays readable."""
        if found != due or type(found) is not type(due):
            raise Deviation(f"{what}: {_cut(found)} where {_cut(due)} was due")

    def shape(self, faults: list[str], what: str) -> None:
        """A Deviation with the first fault of a document's form."""
        if faults:
            raise Deviation(f"{what}: {faults[0]}")

    @property
    def http(self) -> RawHttp:
        """Single HTTP requests; only for cases that need them."""
        assert self.facilities.http is not None
        return self.facilities.http

    @property
    def stranger(self) -> Binding:
        """A principal of another tenant; only for cases that need one."""
        assert self.facilities.stranger is not None
        return self.facilities.stranger

    async def claim(self, content: Any = None, **members: Any) -> Made:
        """A new claim, trusted from the start, so that every query's default shows it."""
        document = {
            "object_type": "claim",
            "canonical_content": {"statement": "a claim"} if content is None else content,
            "provenance": PROVENANCE,
            "validation_state": "corroborated",
        }
        return await self.ok("create", **{**document, **members})

    async def update(self, of: Mapping[str, Any], content: Any, **members: Any) -> Made:
        """The next version with this content."""
        document = {**self.on(of), "canonical_content": content, "provenance": PROVENANCE}
        return await self.ok("update", **{**document, **members})

    async def transition(self, of: Mapping[str, Any], dimension: str, target: str, **members: Any) -> Made:
        """The next version with another state."""
        return await self.ok("transition", **{**self.on(of), **self.to(dimension, target), **members})

    async def delete(self, of: Mapping[str, Any], **members: Any) -> Made:
        """The tombstone."""
        return await self.ok("delete", **{**self.on(of), "policy_basis": "conformance", **members})

    async def seal(self, **members: Any) -> Made:
        """The descriptor of a new snapshot."""
        sealed = await self.ok("seal_snapshot", **members)
        descriptor = sealed.get("snapshot")
        if isinstance(descriptor, Mapping):
            sealed.update(descriptor)
        return sealed

    @staticmethod
    def on(of: Mapping[str, Any]) -> dict[str, Any]:
        """The members that name the current version of what an answer tells of."""
        subject = "relationship_id" if "relationship_id" in of["envelope"] else "object_id"
        return {"scope_id": of["scope_id"], subject: of[subject], "expected_version_id": of["version_id"]}

    @staticmethod
    def to(dimension: str, target: str) -> dict[str, Any]:
        """The members of a transition."""
        return {"dimension": dimension, "target_state": target, "policy_basis": "conformance"}

    async def read(self, object_id: str, **members: Any) -> dict[str, Any]:
        """The envelope of a read."""
        envelope = (await self.ok("read", object_id=object_id, **members)).get("envelope")
        if not isinstance(envelope, dict):
            raise Deviation("read answered no envelope")
        return envelope

    async def history(self, object_id: str | None = None, **members: Any) -> Made:
        """All versions and events of an object, or of the whole scope."""
        about: dict[str, Any] = {"object_id": object_id} if object_id else {"after_sequence": 0}
        page = {"pagination": {"limit": 1000}}
        return await self.ok("inspect_history", **{**page, **about, **members})

    async def events(self, object_id: str | None = None, **members: Any) -> list[dict[str, Any]]:
        """The ledger's events of an object, or of the scope."""
        found: list[dict[str, Any]] = (await self.history(object_id, **members))["events"]
        return found

    async def found(self, expression: Mapping[str, Any] | None = None, **members: Any) -> list[str]:
        """The object ids of a query's first page."""
        query = {"kind": "structured", **(expression or {})}
        answer = await self.ok("query", query=query, **members)
        return [item["envelope"]["object_id"] for item in answer["items"]]


def _cut(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:197] + "..."
