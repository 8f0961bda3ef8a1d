"""Plain HTTP to the doors of a fleet, in a scope of the test's own: bytes, statuses and headers as callers see them."""

import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from pamspec_cli import development
from pamspec_common.keys import key_hash
from tests.integration.checks import whole
from tests.integration.harness import Fleet

Document = dict[str, Any]


@dataclass
class Answer:
    """One answer over HTTP."""

    status: int
    body: bytes
    document: Document = field(repr=False)
    headers: Mapping[str, str]

    @property
    def reason(self) -> str | None:
        """`details.reason` of a refusal."""
        found = self.document.get("error", {}).get("details", {}).get("reason")
        return str(found) if found else None

    @property
    def code(self) -> str | None:
        """The code of a refusal."""
        found = self.document.get("error", {}).get("code")
        return str(found) if found else None

    @property
    def position(self) -> int:
        """The position of the state that a read shows."""
        return int(self.headers["Pamspec-As-Of-Sequence"])


@dataclass
class Http:
    """Plain HTTP to the doors of a fleet, in a scope of the test's own."""

    fleet: Fleet
    session: aiohttp.ClientSession
    scope: str

    async def call(
        self,
        operation: str,
        document: Document,
        *,
        door: str = "gateway",
        key: str | None = None,
        bearer: str | None = None,
    ) -> Answer:
        """The answer of one door; `bearer` is another API key than the development one."""
        return await self.send(self.fleet[door].url, operation, document, key, bearer)

    async def send(
        self, url: str, operation: str, document: Document, key: str | None = None, bearer: str | None = None
    ) -> Answer:
        """The answer at one address."""
        headers = {**self.fleet.headers, **({"Idempotency-Key": key} if key else {})}
        if bearer is not None:
            headers["Authorization"] = f"Bearer {bearer}"
        sent = {"scope_id": self.scope, **document}
        async with self.session.post(f"{url}/v1/{operation}", json=sent, headers=headers) as got:
            body = await got.read()
            return Answer(got.status, body, await got.json(), got.headers)

    async def claim(self, content: Any, **members: Any) -> Document:
        """A new claim."""
        answer = await self.call("create", {**self.made(content), **members})
        assert answer.code is None, answer
        return answer.document

    @staticmethod
    def made(content: Any) -> Document:
        """The document of a create that every query's default shows."""
        return {
            "object_type": "claim",
            "canonical_content": content,
            "provenance": {"activity": "test"},
            "validation_state": "corroborated",
        }

    async def update(self, of: Document, content: Any, **where: Any) -> Answer:
        """An update that follows this version."""
        return await self.call("update", self.following(of, content), **where)

    @staticmethod
    def following(of: Document, content: Any) -> Document:
        """The document of such an update."""
        return {
            "object_id": of["object_id"],
            "expected_version_id": of["version_id"],
            "canonical_content": content,
            "provenance": {"activity": "test"},
        }

    async def versions(self, object_id: str) -> list[Document]:
        """All versions of an object."""
        answer = await self.call("inspect_history", {"object_id": object_id})
        return [] if answer.code else list(answer.document["versions"])


async def key_with_role(fleet: Fleet, role: str) -> str:
    """An API key of the development tenant whose actor has this role alone."""
    text, pepper = secrets.token_hex(16), fleet.deployment.key_pepper.encode()
    rights: list[str] = []
    async with fleet.database() as database:
        key = (f"key:{role}", development.TENANT_ID, key_hash(pepper, text), f"agent:{role}", "agent", rights, [role])
        await database.execute(development.UPSERT_KEY_SQL, *key)
    return text


@asynccontextmanager
async def in_own_scope(fleet: Fleet) -> AsyncIterator[Http]:
    """A new scope, which must be whole at the end."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
        scope_id = f"scope:contracts-{secrets.token_hex(6)}"
        http = Http(fleet, session, scope_id)
        assert (await http.call("create_scope", {"scope_kind": "workspace"})).status == 200
        yield http
        await whole(fleet, [scope_id])
