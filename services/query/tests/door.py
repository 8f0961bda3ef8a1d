"""The query service as its peers call it, every answer checked against its contract."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import orjson
from pydantic import SecretBytes, SecretStr

from pamspec_cli.servers.databases import Database
from pamspec_common.calls import Answer, Call
from pamspec_common.contracts import answer_validator, check, operations
from pamspec_common.internal import answer
from pamspec_common.principal import Principal, TokenSigner
from pamspec_common.service import Service
from pamspec_query.app import build
from pamspec_query.settings import Settings
from services.query.tests.seeds import TENANT, Conn

__all__ = ["KEY", "Conn", "Door", "limited", "settings"]

KEY = b"k" * 32


class Door:
    """Calls operations as a principal, and checks every answer against its contract."""

    def __init__(self, service: Service, principal: Principal) -> None:
        self.service, self.principal = service, principal
        self._signer = TokenSigner("k1", KEY)

    def as_(self, actor_id: str, *rights: str, tenant_id: str = TENANT, roles: Sequence[str] = ("admin",)) -> Door:
        """The same service for another principal."""
        return Door(self.service, Principal(tenant_id, actor_id, "agent", frozenset(rights), roles=frozenset(roles)))

    async def raw(self, operation: str, body: bytes) -> Answer:
        """The answer to a body as it stands."""
        return await answer(self.service.operations, Call(operation, self._signer.sign(self.principal), body))

    async def __call__(self, operation: str, **document: Any) -> Answer:
        """The answer to a document."""
        found = await self.raw(operation, json.dumps(document).encode())
        checked = orjson.loads(found.body)
        if found.status == 200:
            if operation in operations():
                answer_validator(operation).validate(checked)
        else:
            check("error", checked)
        return found

    async def ok(self, operation: str, **document: Any) -> Any:
        """The document of an answer that must succeed."""
        found = await self(operation, **document)
        assert found.status == 200, found.body
        return orjson.loads(found.body)

    async def refused(self, operation: str, **document: Any) -> Any:
        """The error of an answer that must not succeed."""
        found = await self(operation, **document)
        assert found.status != 200, found.body
        return orjson.loads(found.body)["error"]


def settings(database: Database, **given: Any) -> Settings:
    """The settings of a query service on a database."""
    return Settings(
        database_url=SecretStr(database.role("query")), token_keys={"k1": SecretBytes(KEY)}, drain_s=2, **given
    )


@asynccontextmanager
async def limited(database: Database, principal: Principal, **given: Any) -> AsyncIterator[Door]:
    """Another query service on the database, with settings of its own."""
    service = build(settings(database, **given))
    await service.start()
    try:
        yield Door(service, principal)
    finally:
        await service.stop()
