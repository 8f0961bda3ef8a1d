"""Refusals of access: one entry for a principal and window, in its own tenant alone, whatever flood comes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
import pytest_asyncio

from pamspec_cli.servers.databases import Database
from pamspec_cli.servers.nats import NatsAddress
from pamspec_common import denials
from pamspec_common.calls import Answer, Call
from pamspec_common.denials import Denials
from pamspec_common.errors import AccessDenied, ObjectNotFound, ScopeNotFound
from pamspec_common.principal import RIGHT_ASSERT_ACTOR, Principal, TokenSigner, TokenVerifier, service_principal
from services.write.tests.test_rights import NOBODY, holder
from services.write.tests.writer import (
    AGENT,
    KEY,
    KID,
    TENANT,
    Document,
    Writer,
    claim,
    started,
    stopped,
    write_settings,
)

OTHER_TENANT = "tenant:neighbour"


class Told:
    """In the place of the write service: keeps what it is told, or is away."""

    def __init__(self) -> None:
        self.documents: list[tuple[str, Document]] = []
        self.status = 200

    async def __call__(self, call: Call) -> Answer:
        principal = TokenVerifier({KID: KEY}, "write").verify(call.principal)
        assert call.operation == "record_denial"
        if self.status == 200:
            self.documents.append((principal.tenant_id, orjson.loads(call.body)))
        return Answer(self.status, b'{"error": {"code": "service_unavailable"}}')


class Held:
    """Denials whose clock stands where the test puts it."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.told = Told()
        self.denials = Denials("query", TokenSigner(KID, KEY), self.told, 60.0, lambda: self.now)

    def note(self, by: Principal, scope_id: str | None = "scope:a", operation: str = "read", **more: Any) -> None:
        """A refusal."""
        document = {**({} if scope_id is None else {"scope_id": scope_id}), **more}
        self.denials.note(by, operation, document, AccessDenied(policy_rule_id="no-tasks"))

    async def flushed(self) -> list[Document]:
        """What is told when all windows are over."""
        self.now += 61
        await self.denials.flush(self.now - 60)
        found, self.told.documents = self.told.documents, []
        return [document for _, document in found]


def stranger(number: int, tenant_id: str = TENANT) -> Principal:
    """A principal of its own."""
    return Principal(tenant_id, f"agent:stranger-{number}", "agent")


async def test_one_entry_tells_of_all_refusals_of_a_window() -> None:
    held = Held()
    for operation in ("read", "query", "read"):
        held.note(NOBODY, operation=operation)
        held.now += 1
    await held.denials.flush(held.now - 60)
    assert held.told.documents == [], "the window is still open"
    (document,) = await held.flushed()
    assert document["actor"] == {"actor_id": NOBODY.actor_id, "actor_kind": "agent"}
    assert (document["scope_id"], document["payload"]) == (
        "scope:a",
        {
            "operation": "read",
            "operations": ["query", "read"],
            "reason": "missing_right",
            "policy_rule_id": "rule:no-tasks",
            "count": 3,
            "window_start": "1970-01-01T00:16:40.000000Z",
            "window_end": "1970-01-01T00:16:42.000000Z",
        },
    )
    assert held.denials.held == 0


async def test_what_is_no_matter_of_rights_is_not_told() -> None:
    held = Held()
    held.denials.note(NOBODY, "read", {"scope_id": "scope:a"}, ObjectNotFound())
    held.denials.note(service_principal("query", TENANT), "read", {"scope_id": "scope:a"}, AccessDenied())
    assert held.denials.held == 0
    held.denials.note(NOBODY, "read", {"scope_id": "scope:a"}, ScopeNotFound())
    assert (await held.flushed())[0]["payload"]["reason"] == "scope_not_found"


async def test_an_actor_is_named_only_by_who_may_speak_for_it() -> None:
    held = Held()
    claimed = {"actor_id": "agent:victim", "actor_kind": "agent"}
    backend = Principal(TENANT, "service:backend", "service", frozenset({RIGHT_ASSERT_ACTOR}))
    held.note(NOBODY, actor=claimed)
    held.note(backend, actor=claimed)
    held.note(backend, actor={"actor_id": 7, "actor_kind": None})
    named = [(one["actor"]["actor_id"], one.get("asked_by")) for one in await held.flushed()]
    assert named == [(NOBODY.actor_id, None), ("agent:victim", "service:backend"), ("service:backend", None)]


async def test_no_principal_fills_a_scope_or_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held()
    for number in range(1_000):
        held.note(NOBODY, f"scope:guess-{number}")
    assert held.denials.held == denials.PRINCIPAL_WINDOWS + 1
    found = await held.flushed()
    assert sum(one["payload"]["count"] for one in found) == 1_000
    assert [one["payload"]["count"] for one in found if "scope_id" not in one] == [1_000 - denials.PRINCIPAL_WINDOWS]
    for number in range(1_000):
        held.note(stranger(number), "scope:victim")
    found = await held.flushed()
    assert len([one for one in found if one.get("scope_id") == "scope:victim"]) == denials.SCOPE_WINDOWS
    monkeypatch.setattr(denials, "WINDOWS", 100)
    for number in range(10_000):
        held.note(stranger(number, f"tenant:{number % 3}"), f"scope:{number}")
    assert held.denials.held == 103
    await held.denials.close(30.0)
    assert sum(one["payload"]["count"] for _, one in held.told.documents) == 10_000
    held.told.documents.clear()
    assert (await held.flushed(), held.denials.held) == ([], 0)


async def test_what_cannot_be_told_now_is_told_later_and_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(denials, "WINDOWS", 50)
    held = Held()
    held.told.status = 503
    for minute in range(100):
        for number in range(20):
            held.note(stranger(number), f"scope:{minute}")
        assert await held.flushed() == []
        assert held.denials.held <= 51
    held.told.status = 200
    found = await held.flushed()
    assert sum(one["payload"]["count"] for one in found + await held.flushed()) == 2_000
    assert len({one["operation_id"] for one in found}) == len(found)


async def entries(writer: Writer, scope: str = "") -> list[Document]:
    """The access_denied entries of a scope."""
    return [one.event for one in await writer.ledger(scope) if one.event["event_type"] == "access_denied"]


async def audit(writer: Writer, tenant_id: str = TENANT) -> list[Document]:
    """The refusals in the audit log of a tenant."""
    rows = await writer.admin.fetch(
        "SELECT * FROM core.administration WHERE tenant_id = $1 AND outcome = 'denied' ORDER BY id", tenant_id
    )
    return [dict(row) for row in rows]


@pytest_asyncio.fixture(loop_scope="session")
async def quick(database: Database, write_bus: NatsAddress) -> AsyncIterator[Writer]:
    """A service whose windows end when it stops."""
    writer = await started(database, write_settings(database, write_bus))
    await writer.admin.execute("INSERT INTO core.tenant (tenant_id) VALUES ($1)", OTHER_TENANT)
    yield writer
    await stopped(writer)


async def test_refusals_of_every_kind_are_told_when_the_service_stops(quick: Writer) -> None:
    reader, far = holder("reader"), Principal(OTHER_TENANT, "agent:far", "agent", roles=frozenset({"admin"}))
    items = [{"operation": "create", **claim(quick.scope)}] * 3
    for _ in range(5):
        await quick.refused("create", claim(quick.scope), by=reader)
    await quick.refused("batch", {"scope_id": quick.scope, "items": items, "atomic": True}, by=reader)
    contributor = holder("contributor")
    await quick.ok(
        "batch",
        {"scope_id": quick.scope, "items": [*items, {**items[0], "validation_state": "corroborated"}]},
        by=contributor,
    )
    await quick.refused("create", claim(quick.scope), by=NOBODY)
    await quick.refused("create", claim("scope:none"), by=NOBODY)
    await quick.refused("create_scope", {"scope_id": "scope:new"}, by=NOBODY)
    await quick.refused("create", claim(quick.scope), by=far)
    assert (await entries(quick), await audit(quick)) == ([], [])
    await quick.service.stop()
    told = {event["actor"]["actor_id"]: event for event in await entries(quick)}
    assert {actor: event["payload"]["count"] for actor, event in told.items()} == {
        "agent:reader": 6, "agent:contributor": 1, "agent:nobody": 1
    }  # fmt: skip
    assert told["agent:reader"]["payload"]["operations"] == ["batch", "create"]
    assert "authenticated_as" not in told["agent:reader"]["payload"]
    assert told["agent:nobody"]["payload"]["reason"] == "scope_not_found"
    logged = [(row["operation"], row["subject"], row["detail"], row["policy_basis"]) for row in await audit(quick)]
    assert logged == [
        ("create", "scope:none", "scope_not_found", "no rule permits it"),
        ("create_scope", "scope:new", "missing_right", "no rule permits it"),
    ]
    (theirs,) = await audit(quick, OTHER_TENANT)
    assert (theirs["actor_id"], theirs["subject"], theirs["occurrences"]) == ("agent:far", quick.scope, 1)
    await quick.check_scope()


async def test_only_services_tell(shared: Writer) -> None:
    document: Document = {
        "scope_id": shared.scope,
        "actor": {"actor_id": "agent:victim", "actor_kind": "agent"},
        "payload": {"operation": "read", "reason": "missing_right", "count": 1},
    }
    assert (await shared.refused("record_denial", document, by=AGENT))["code"] == "access_denied"
    by = service_principal("query", TENANT)
    first = await shared.ok("record_denial", {**document, "operation_id": "op:told"}, by=by)
    assert first == await shared.ok("record_denial", {**document, "operation_id": "op:told"}, by=by)
    assert first == {"operation_id": "op:told", "recorded_in": "ledger"}
    assert len(await entries(shared)) == 1
    elsewhere = {**document, "scope_id": "scope:none", "payload": {**document["payload"], "text": "x"}}
    assert (await shared.refused("record_denial", elsewhere, by=by))["code"] == "invalid_request"


async def test_an_evaluation_scope_takes_them_too(shared: Writer) -> None:
    scope = await shared.new_scope(kind="evaluation")
    document = {
        "scope_id": scope,
        "actor": {"actor_id": "agent:curious", "actor_kind": "agent"},
        "payload": {"operation": "read", "reason": "missing_right", "count": 1},
    }
    answer = await shared.ok("record_denial", document, by=service_principal("query", TENANT))
    assert answer["recorded_in"] == "ledger"
