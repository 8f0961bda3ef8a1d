"""The whole product behind one gateway, and tenants whose agents keep cells there."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import jsonschema
import pytest
import pytest_asyncio

from conftest import TemplateDatabase
from pamspec_amp.model.schemas import DECAY, OBJECT_TYPE, SCHEMA_ID, STORED
from pamspec_common.keys import new_key
from services.gateway.tests import whole as all_services
from services.gateway.tests.behind import insert_key
from services.gateway.tests.whole import Whole

VECTORS = Path(__file__).resolve().parent / "vectors"
SCOPE = "workspace:amp"
POLICY = {"retention": {"by_type": {OBJECT_TYPE: {"decay": DECAY}}}}
_numbers = itertools.count(1)
_CELL = jsonschema.Draft7Validator(
    json.loads((VECTORS / "cell.schema.json").read_text(encoding="utf-8")),
    format_checker=jsonschema.FormatChecker(),
)


def check_cell(document: Any) -> None:
    """The document is a full cell of the protocol, and nothing more (A1-A9)."""
    _CELL.validate(document)


@dataclass
class Answered:
    """What came back."""

    status: int
    headers: Any
    body: Any


@dataclass
class Tenant:
    """A tenant with a scope for cells; agents get keys as they are named."""

    whole: Whole
    name: str
    keys: dict[str, str] = field(default_factory=dict)

    async def key(self, agent: str, *roles: str, rights: tuple[str, ...] = ()) -> str:
        """The key of an agent; a curator's where nothing else is said."""
        if agent not in self.keys:
            self.keys[agent] = key = new_key()
            number = next(_numbers)
            given = {"tenant": self.name, "actor": f"agent:{agent}", "key_id": f"key:amp-{number}"}
            await insert_key(self.whole.database.dsn, key, rights=rights, roles=roles or ("curator",), **given)
        return self.keys[agent]

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        agent: str | None = None,
        key: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answered:
        """A request of an agent with its own key, or with `key`; None of both sends none."""
        sent = dict(headers or {})
        if agent is not None:
            sent.setdefault("X-AMP-Agent-ID", agent)
            key = key if key is not None else await self.key(agent)
        if key:
            sent["X-AMP-API-Key"] = key
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, f"{self.whole.url}/amp/v1{path}", data=data, headers=sent) as answer,
        ):
            text = await answer.read()
            found = json.loads(text) if text else None
            return Answered(answer.status, answer.headers, found)

    async def operate(self, operation: str, document: dict[str, Any], agent: str = "admin") -> Any:
        """An operation by another door, as the tenant's administrator; it must succeed."""
        key = await self.key(agent, *(("admin",) if agent == "admin" else ()))
        async with (
            aiohttp.ClientSession(headers={"Authorization": f"Bearer {key}"}) as session,
            session.post(f"{self.whole.url}/v1/{operation}", json={"scope_id": SCOPE, **document}) as answer,
        ):
            found = await answer.json()
            assert answer.status < 400, found
            return found


Make = Callable[[], Coroutine[Any, Any, Tenant]]


def cell(text: str = "The depot opens at six.", owner: str = "alpha", **more: Any) -> dict[str, Any]:
    """The body of a new cell."""
    given: dict[str, Any] = {
        "type": "semantic",
        "content": {"text": text},
        "identity": {"owner_id": owner, "owner_type": "agent"},
    }
    return given | more


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def whole(template_database: TemplateDatabase, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Whole]:
    """All services behind one gateway; what tests of this package leave there may be anything."""
    async with all_services.running(template_database, tmp_path_factory.mktemp("whole")) as running:
        yield running


async def new_tenant(whole: Whole) -> Tenant:
    """A tenant with a scope for cells."""
    tenant = Tenant(whole, f"tenant:amp-{next(_numbers)}")
    await tenant.operate("create_scope", {"policy": POLICY})
    await tenant.operate("register_schema", {"schema_id": SCHEMA_ID, "schema": STORED})
    return tenant


@pytest_asyncio.fixture(loop_scope="session")
async def tenant(whole: Whole) -> Tenant:
    """A tenant of this test alone."""
    return await new_tenant(whole)
