"""The write service beside the query service, for tests of what the one reads of the other's writes."""

from __future__ import annotations

from typing import Any

import orjson

from pamspec_common.calls import Answer, Call
from pamspec_common.internal import answer
from pamspec_common.principal import Principal, TokenSigner
from pamspec_common.service import Service
from services.query.tests.door import KEY
from services.query.tests.seeds import TENANT

PROVENANCE = {"activity": "test", "source_ref": "mail:1"}
SCOPE = "workspace:a"


class Writer:
    """The write service, as the same agent that reads."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._token = TokenSigner("k1", KEY).sign(
            Principal(TENANT, "agent:reader", "agent", roles=frozenset({"admin"}))
        )

    async def call(self, operation: str, **document: Any) -> Answer:
        body = orjson.dumps({"scope_id": SCOPE, **document})
        found = await answer(self.service.operations, Call(operation, self._token, body))
        assert found.status < 300, found.body
        return found

    async def ok(self, operation: str, **document: Any) -> Any:
        return orjson.loads((await self.call(operation, **document)).body)

    async def create(self, content: Any, **more: Any) -> Any:
        given = {"object_type": "claim", "canonical_content": content, "provenance": PROVENANCE, **more}
        return await self.ok("create", **given)

    async def change(self, operation: str, of: Any, **more: Any) -> Any:
        return await self.ok(operation, object_id=of["object_id"], expected_version_id=of["version_id"], **more)
