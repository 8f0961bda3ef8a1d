"""Grantors, delegates and grants for the tests of delegation."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

from pamspec_common.principal import Principal
from services.write.tests.test_rights import bind
from services.write.tests.writer import PROVENANCE, TENANT, Document, Writer, claim

STRANGERS = Principal("tenant:of-strangers", "agent:stranger", "agent", roles=frozenset({"admin"}))
LONG_AGO, LATER, FAR = "2001-01-01T00:00:00Z", "2098-01-01T00:00:00Z", "2099-01-01T00:00:00Z"


def actor(principal: Principal) -> Document:
    """The actor that a principal is."""
    return {"actor_id": principal.actor_id, "actor_kind": principal.actor_kind}


def agent(name: str) -> Principal:
    """A principal without any right of its own, which no other test knows."""
    return Principal(TENANT, f"agent:{name}-{secrets.token_hex(6)}", "agent")


@dataclass
class Delegating:
    """A scope with somebody who may grant there, and somebody to whom it is granted."""

    writer: Writer
    grantor: Principal
    delegate: Principal

    @property
    def scope(self) -> str:
        """The scope of the test."""
        return self.writer.scope

    def document(self, to: Principal | None = None, **members: Any) -> Document:
        """A grant request; a member that is None is left out."""
        document = {
            "scope_id": self.scope,
            "delegated_actor": actor(to or self.delegate),
            "granted_operations": ["read", "create", "update"],
            "policy_basis": "policy:handoff",
            "not_before": LONG_AGO,
            "not_after": FAR,
            "provenance": {"activity": "handed over"},
            **members,
        }
        return {name: value for name, value in document.items() if value is not None}

    async def grant(self, by: Principal | None = None, to: Principal | None = None, **members: Any) -> Document:
        """The answer of a grant that must succeed."""
        return await self.writer.ok("grant_delegation", self.document(to, **members), by=by or self.grantor)

    async def refused_grant(self, by: Principal | None = None, to: Principal | None = None, **members: Any) -> Document:
        """The error of a grant that must be refused."""
        return await self.writer.refused("grant_delegation", self.document(to, **members), by=by or self.grantor)

    async def revoke(self, granted: Document, by: Principal | None = None, **members: Any) -> Document:
        """The answer of a revocation that must succeed."""
        document = {"delegation_id": granted["delegation_id"], "policy_basis": "over", **members}
        return await self.writer.ok("revoke_delegation", document, by=by or self.grantor)

    def creating(self, granted: Document, **members: Any) -> Document:
        """A create under a grant."""
        members = {"delegation_id": granted["delegation_id"], **members}
        return claim(members.pop("scope_id", self.scope), **members)

    async def create(self, granted: Document, by: Principal | None = None, **members: Any) -> Document:
        """The answer of a create under a grant that must succeed."""
        return await self.writer.ok("create", self.creating(granted, **members), by=by or self.delegate)

    async def denied(self, granted: Document, by: Principal | None = None, **members: Any) -> str:
        """The reason for which a create under a grant is refused."""
        error = await self.writer.refused("create", self.creating(granted, **members), by=by or self.delegate)
        assert error["code"] == "access_denied", error
        return str(error["details"]["reason"])

    def updating(self, granted: Document, made: Document, **members: Any) -> Document:
        """An update under a grant."""
        members = {"canonical_content": "b", "provenance": PROVENANCE, **members}
        return self.writer.change(made, delegation_id=granted["delegation_id"], **members)

    def checking(self, granted: Document, operation: str = "create", **members: Any) -> Document:
        """A check of a grant."""
        return {"delegation_id": granted["delegation_id"], "operation": operation, **members}

    async def check(self, granted: Document, by: Principal | None = None, **members: Any) -> Document:
        """The answer of a check that must succeed."""
        return await self.writer.ok("check_delegation", self.checking(granted, **members), by=by or self.delegate)

    async def unchecked(self, granted: Document, by: Principal | None = None, **members: Any) -> str:
        """The reason of a check that denies."""
        request = self.checking(granted, **members)
        error = await self.writer.refused("check_delegation", request, by=by or self.delegate)
        assert error["code"] == "access_denied", error
        return str(error["details"]["reason"])

    async def events(self, kind: str = "delegation_", scope: str = "") -> list[Document]:
        """The entries of that kind in a scope's ledger."""
        return [entry.event for entry in await self.writer.ledger(scope) if entry.event["event_type"].startswith(kind)]


async def delegating(writer: Writer, role: str = "contributor") -> Delegating:
    """A grantor with a role in the writer's scope, bound to it for this test."""
    found = Delegating(writer, agent("grantor"), agent("delegate"))
    await bind(writer, found.grantor.actor_id, role, writer.scope)
    return found
