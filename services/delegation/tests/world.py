"""A delegation service beside a real write service; whatever it answers is held against the contracts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson

from pamspec_cli.servers.databases import Database
from pamspec_cli.servers.nats import NatsAddress
from pamspec_common.calls import Answer, Call
from pamspec_common.internal import answer as run
from pamspec_common.peers import LocalPeer
from pamspec_common.principal import Principal
from pamspec_common.service import Service
from pamspec_delegation.app import build
from pamspec_delegation.settings import Settings
from services.write.tests.delegating import Delegating
from services.write.tests.writer import KEY, KID, Document, Writer, check_answer

NO_BUS = "nats://127.0.0.1:1"


@dataclass
class World:
    """What a test works with."""

    database: Database
    writer: Writer
    bus: NatsAddress | None
    services: list[Service] = field(default_factory=list)

    async def service(self, **changes: Any) -> Service:
        """A started delegation service."""
        given: Document = {
            "database_url": self.database.role("delegation"),
            "nats_url": self.bus.url if self.bus else NO_BUS,
            "nats_nkey_seed": self.bus.service_seed if self.bus else None,
            "token_keys": {KID: KEY},
            "drain_s": 3.0,
            "consumer_heads_ms": 200,
        }
        made = build(Settings(**(given | changes)), LocalPeer(self.writer.service))
        await made.start()
        self.services.append(made)
        return made

    async def stop(self) -> None:
        """Stop what was started here."""
        for service in self.services:
            await service.stop()


@dataclass
class Asking:
    """Asks one delegation service about the grants of a test."""

    service: Service
    given: Delegating

    async def call(self, operation: str, document: Document, by: Principal) -> Answer:
        """The answer, valid by its contract."""
        signed = self.given.writer.signer.sign(by)
        answer = await run(self.service.operations, Call(operation, signed, orjson.dumps(document)))
        check_answer(operation, answer)
        return answer

    async def ok(self, operation: str, document: Document, by: Principal | None = None) -> Document:
        """The body of an answer that must be a success."""
        answer = await self.call(operation, document, by or self.given.delegate)
        assert answer.status == 200, answer.body
        body: Document = orjson.loads(answer.body)
        return body

    async def refused(self, operation: str, document: Document, by: Principal | None = None) -> Document:
        """The error of an answer that must be a refusal."""
        answer = await self.call(operation, document, by or self.given.delegate)
        assert answer.status >= 400, answer.body
        error: Document = orjson.loads(answer.body)["error"]
        return error

    async def check(self, granted: Document, by: Principal | None = None, **members: Any) -> Document:
        """A check without use that must permit."""
        return await self.ok("check_delegation", self._checking(granted, members), by)

    async def denied(self, granted: Document, by: Principal | None = None, **members: Any) -> str:
        """The reason of a check without use that must deny."""
        error = await self.refused("check_delegation", self._checking(granted, members), by)
        assert error["code"] == "access_denied", error
        return str(error["details"]["reason"])

    async def explain(self, granted: Document, by: Principal | None = None, **members: Any) -> Document:
        """The explanation of a grant."""
        document = {"delegation_id": granted["delegation_id"], "operation": "create", **members}
        return await self.ok("explain_delegation", document, by)

    async def listed(self, by: Principal, **members: Any) -> list[str]:
        """The ids of the grants that are listed."""
        found = await self.ok("list_delegations", members, by)
        return [one["envelope"]["delegation_id"] for one in found["delegations"]]

    def _checking(self, granted: Document, members: Document) -> Document:
        return self.given.checking(granted, **{"consume": False, **members})
