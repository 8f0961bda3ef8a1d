"""What is missing, what lies elsewhere and what may not be seen answer in the same bytes, by the same statements.

Each case names an id in one place. The actor holds every role in its scope, but for a rule that hides decisions:
`hidden` is one, `foreign` lies in another scope of the tenant, `distant` in another tenant, `missing` nowhere.
"""

import contextvars
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import orjson
import pytest
import pytest_asyncio

import pamspec_delegation.app
import pamspec_indexing.app
import pamspec_query.app
import pamspec_subscription.app
import pamspec_write.app
from pamspec_cli.servers.databases import Database
from pamspec_common import contracts
from pamspec_common.calls import Answer, Call
from pamspec_common.internal import answer as run
from pamspec_common.peers import LocalPeer
from pamspec_common.principal import Principal, TokenSigner
from pamspec_common.service import Service
from pamspec_delegation.settings import Settings as DelegationSettings
from pamspec_indexing.settings import Settings as IndexingSettings
from pamspec_query.settings import Settings as QuerySettings
from pamspec_subscription.settings import Settings as SubscriptionSettings
from pamspec_write.settings import Settings as WriteSettings

Document = dict[str, Any]

TENANT, DISTANT = "tenant:here", "tenant:distant"
SCOPE, ELSEWHERE = "scope:here", "scope:elsewhere"
KEY = b"a key between services for tests"
ADMIN = Principal(TENANT, "human:admin", "human", frozenset({"admin"}), roles=frozenset({"admin"}))
FAR_ADMIN = Principal(DISTANT, "human:admin", "human", frozenset({"admin"}), roles=frozenset({"admin"}))
GUEST = Principal(TENANT, "agent:guest", "agent")
RULE = '@id("secret") forbid (principal == Agent::"agent:guest", action == Action::"read", resource) when {{ {} }};'
BASIS = {"policy_basis": "test"}
PROVENANCE = {"provenance": {"activity": "test"}}
ALL = {"kind": "structured", "trust": "all"}
ELSEWHERE_KINDS = ("hidden", "foreign", "distant")

_statements: contextvars.ContextVar[list[str] | None] = contextvars.ContextVar("statements", default=None)


@dataclass
class Product:
    """The services over one database, and what lies where."""

    services: dict[str, Service]
    admin: "asyncpg.Connection[asyncpg.Record]"
    ids: dict[str, dict[str, str]] = field(default_factory=dict)
    """kind of thing -> where -> its id."""
    versions: dict[str, str] = field(default_factory=dict)
    """id -> its version."""
    signer: TokenSigner = field(default_factory=lambda: TokenSigner("k1", KEY))

    async def call(self, operation: str, document: Document, by: Principal = ADMIN) -> Answer:
        service = next(one for one in self.services.values() if operation in one.operations)
        body = orjson.dumps(document)
        return await run(service.operations, Call(operation, self.signer.sign(by), body))

    async def ok(self, operation: str, document: Document, by: Principal = ADMIN) -> Document:
        answer = await self.call(operation, document, by)
        assert answer.status < 300, answer.body
        return dict(orjson.loads(answer.body))


async def started(database: Database) -> Product:
    common: Document = {"token_keys": {"k1": KEY}, "nats_url": "nats://127.0.0.1:1", "denial_window_s": 3600.0}

    def settings(role: str) -> Document:
        return {**common, "database_url": database.role(role), "drain_s": 2.0}

    write = pamspec_write.app.build(WriteSettings(**settings("write")))
    query = pamspec_query.app.build(QuerySettings(**settings("query")), LocalPeer(write))
    subscription = pamspec_subscription.app.build(SubscriptionSettings(**settings("subscription")), LocalPeer(write))
    delegation = pamspec_delegation.app.build(DelegationSettings(**settings("delegation")), LocalPeer(write))
    indexing = pamspec_indexing.app.build(IndexingSettings(**settings("indexing")), LocalPeer(write))
    services = {service.name: service for service in (delegation, indexing, write, query, subscription)}
    for service in services.values():
        await service.start()
    return Product(services, await asyncpg.connect(database.dsn))


async def furnish(product: Product) -> None:
    """Everything that a case names, in each of the places."""
    await product.admin.execute("INSERT INTO core.tenant (tenant_id) VALUES ($1), ($2)", TENANT, DISTANT)
    places = {"hidden": (SCOPE, ADMIN), "foreign": (ELSEWHERE, ADMIN), "distant": (SCOPE, FAR_ADMIN)}
    for scope, by in places.values():
        await product.ok("create_scope", {"scope_id": scope, "scope_kind": "workspace"}, by)
        await product.ok("bind_role", {"scope_id": scope, "actor_id": by.actor_id, "role": "admin", **BASIS}, by)
    for where, (scope, by) in places.items():
        document = {"scope_id": scope, "canonical_content": {"task_ref": "t:1", "content": {"is": where}}, **PROVENANCE}
        hidden = await product.ok("create", {**document, "object_type": "decision"}, by)
        other = await product.ok("create", {**document, "object_type": "claim"}, by)
        note(product, "object", where, hidden["object_id"], hidden["version_id"])
        note(product, "version", where, hidden["version_id"])
        ends = {"source_object_id": hidden["object_id"], "target_object_id": other["object_id"]}
        edge = {"scope_id": scope, **ends, "relationship_type": "supports", "directionality": "directed", **PROVENANCE}
        joined = await product.ok("relate", edge, by)
        note(product, "relationship", where, joined["relationship_id"], joined["version_id"])
        sealing = {"scope_id": scope, "included_object_ids": [hidden["object_id"]]}
        note(product, "snapshot", where, (await product.ok("seal_snapshot", sealing, by))["snapshot"]["snapshot_id"])
        opened = await product.ok("subscribe", {"scope_id": scope, "channel": "poll"}, by)
        note(product, "subscription", where, opened["subscription_id"])
        note(product, "operation", where, hidden["operation_id"])
        if where != "hidden":
            grant = {
                "scope_id": scope,
                "delegated_actor": {"actor_id": "agent:delegate", "actor_kind": "agent"},
                "granted_operations": ["read", "query"],
                "not_before": "2026-01-01T00:00:00Z",
                "not_after": "2999-01-01T00:00:00Z",
                **BASIS,
            }
            granted = await product.ok("grant_delegation", grant, by)
            note(product, "delegation", where, granted["delegation_id"], granted["version_id"])
            hold = await product.ok("place_hold", {"scope_id": scope, "object_type": "artifact", **BASIS}, by)
            note(product, "hold", where, hold["hold_id"])
            schema = {"scope_id": scope, "schema_id": f"https://example.org/{where}", "schema": {"type": "object"}}
            note(product, "schema", where, (await product.ok("register_schema", schema, by))["schema_id"])
        else:
            product.ids["seen"] = {"object": other["object_id"], "version": other["version_id"]}
    for kind, of in product.ids.items():
        of["missing"] = "https://example.org/missing" if kind == "schema" else f"{kind}:missing"
    role = {"scope_id": SCOPE, "actor_id": GUEST.actor_id, "role": "admin", **BASIS}
    await product.ok("bind_role", role)
    await product.ok(
        "set_access_rules",
        {
            "scope_id": SCOPE,
            "rules": RULE.format('resource.object_type == "decision"'),
            "expected_rules_version": 0,
            **BASIS,
        },
    )


def note(product: Product, kind: str, where: str, name: str, version: str | None = None) -> None:
    """Remember where a thing is."""
    product.ids.setdefault(kind, {})[where] = name
    if version is not None:
        product.versions[name] = version


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def product(module_database: Database) -> AsyncIterator[Product]:
    """The services, furnished once for all cases."""
    made = await started(module_database)
    await furnish(made)
    yield made
    for service in reversed(made.services.values()):
        await service.stop()
    await made.admin.close()


@contextmanager
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The statements that calls in this context send to PostgreSQL, those of tasks that they start too."""
    log: list[str] = []
    for method in ("execute", "_execute"):
        monkeypatch.setattr(asyncpg.Connection, method, _logged(getattr(asyncpg.Connection, method)))
    token = _statements.set(log)
    try:
        yield log
    finally:
        _statements.reset(token)
        monkeypatch.undo()


def _logged(whole: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    async def logged(self: Any, query: str, *rest: Any, **more: Any) -> Any:
        into = _statements.get()
        if into is not None:
            into.append(query)
        return await whole(self, query, *rest, **more)

    return logged


Make = Callable[[Product, str], Document]


def on(member: str, **more: Any) -> Make:
    """A change of the thing that `member` names, with its version as the expected one."""

    def make(product: Product, name: str) -> Document:
        return {member: name, "expected_version_id": product.versions.get(name, "ver:some"), **more}

    return make


def named(*members: str, **more: Any) -> Make:
    """A request whose members name the thing."""
    return lambda _, name: {**dict.fromkeys(members, name), **more}


def edge(end: str) -> Make:
    """A relationship with the thing as one end."""

    def make(product: Product, name: str) -> Document:
        ends = {"source_object_id": product.ids["seen"]["object"], "target_object_id": product.ids["seen"]["object"]}
        return {**ends, end: name, "relationship_type": "refutes", "directionality": "directed", **PROVENANCE}

    return make


def past(**more: Any) -> Make:
    """A read of the seen object that names something else."""
    return lambda product, name: {"object_id": product.ids["seen"]["object"], **dict.fromkeys(more, name)}


CASES: dict[str, tuple[str, str, Make]] = {
    "read": ("read", "object", named("object_id")),
    "list reads": ("list_reads", "object", lambda product, name: {"object_ids": [name]}),
    "read with fields": ("read", "object", named("object_id", fields=["canonical_content"])),
    "read at a position": ("read", "object", named("object_id", as_of={"ledger_sequence": 1})),
    "read a version": ("read", "version", past(version_id=True)),
    "read a relationship": ("read", "relationship", named("relationship_id")),
    "read a delegation": ("read", "delegation", named("delegation_id")),
    "read in a snapshot": ("read", "snapshot", past(snapshot_id=True)),
    "query in a snapshot": ("query", "snapshot", named("snapshot_id", query=ALL)),
    "query by where": (
        "query",
        "object",
        lambda _, name: {"query": {**ALL, "where": {"field": "object_id", "op": "eq", "value": name}}},
    ),
    "traverse": ("query", "object", lambda _, name: {"query": ALL, "traverse": {"from": [name]}}),
    "assemble": ("assemble", "object", lambda _, name: {"query": ALL, "traverse": {"from": [name]}}),
    "assemble in a snapshot": ("assemble", "snapshot", named("snapshot_id", query=ALL)),
    "history": ("inspect_history", "object", named("object_id")),
    "history of a relationship": ("inspect_history", "relationship", named("relationship_id")),
    "history in a snapshot": ("inspect_history", "snapshot", past(snapshot_id=True)),
    "a snapshot": ("list_snapshots", "snapshot", named("snapshot_id")),
    "compared": ("compare_snapshots", "snapshot", named("base_snapshot_id", "other_snapshot_id")),
    "update": ("update", "object", on("object_id", canonical_content="x", **PROVENANCE)),
    "restore": ("update", "object", on("object_id", restore_version_id="ver:old", **PROVENANCE)),
    "transition": ("transition", "object", on("object_id", dimension="lifecycle", target_state="archived", **BASIS)),
    "hold": ("transition", "object", on("object_id", dimension="retention", target_state="legal_hold", **BASIS)),
    "transition of a relationship": (
        "transition",
        "relationship",
        on("relationship_id", dimension="lifecycle", target_state="archived", **BASIS),
    ),
    "redact": ("redact", "object", on("object_id", redaction_target={"whole": True}, **BASIS)),
    "delete": ("delete", "object", on("object_id", **BASIS)),
    "delete a relationship": ("delete", "relationship", on("relationship_id", **BASIS)),
    "promote": (
        "promote",
        "object",
        on("source_object_id", target_object_type="claim", target_canonical_content="x", **PROVENANCE),
    ),
    "relate from": ("relate", "object", edge("source_object_id")),
    "relate to": ("relate", "object", edge("target_object_id")),
    "seal": ("seal_snapshot", "object", lambda _, name: {"included_object_ids": [name]}),
    "look up": ("get_operation", "operation", lambda _, name: {"operation_id": name}),
    "release": ("release_hold", "hold", named("hold_id", **BASIS)),
    "schema": ("get_schema", "schema", named("schema_id")),
    "read under a grant": ("query", "delegation", named("delegation_id", query=ALL)),
    "write under a grant": (
        "create",
        "delegation",
        named("delegation_id", object_type="claim", canonical_content="x", **PROVENANCE),
    ),
    "revoke": ("revoke_delegation", "delegation", named("delegation_id", **BASIS)),
    "check": ("check_delegation", "delegation", named("delegation_id", operation="read")),
    "explain": ("explain_delegation", "delegation", named("delegation_id", operation="read")),
    "subscription": ("list_subscriptions", "subscription", named("subscription_id")),
    "poll": ("poll", "subscription", named("subscription_id")),
    "ack": ("ack", "subscription", named("subscription_id", sequence=1)),
    "reset": ("reset", "subscription", named("subscription_id", after_sequence=0)),
    "unsubscribe": ("unsubscribe", "subscription", named("subscription_id")),
}
SOLE_ID = {"subscription_id": "subscription", "delegation_id": "delegation", "snapshot_id": "snapshot"}


def sole_ids() -> Iterator[tuple[str, tuple[str, str, Make]]]:
    """A case for each other operation that asks for nothing but one id, which is unique in the tenant."""
    cased = {operation for operation, _, _ in CASES.values()}
    for operation, entry in contracts.operations().items():
        required = contracts.schema(f"pamspec:operation:{operation}:request").get("required", [])
        if entry.public and operation not in cased and len(required) == 1 and required[0] in SOLE_ID:
            yield operation, (operation, SOLE_ID[required[0]], named(required[0]))


CASES.update(list(sole_ids()))


def names_its_scope(operation: str) -> bool:
    """Whether the operation asks for a scope; snapshots are named with theirs."""
    return "snapshots" in operation or "scope_id" in contracts.schema(f"pamspec:operation:{operation}:request").get(
        "required", []
    )


async def asked(product: Product, case: str, where: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, ...]:
    """Status, headers, body but for the ids, and the statements of a call when everything is warm."""
    operation, kind, make = CASES[case]
    name = product.ids[kind][where]
    for turn in ("cold", "warm"):
        mine = f"op:{case.replace(' ', '-')}.{where}.{turn}"
        document: Document = {"scope_id": SCOPE} if names_its_scope(operation) else {}
        document |= {"operation_id": mine} | make(product, name)
        with recorded(monkeypatch) as statements:
            answer = await product.call(operation, document, GUEST)
    body = answer.body.replace(mine.encode(), b"op").replace(name.encode(), b"id")
    return answer.status, dict(answer.headers), body, list(statements)


@pytest.mark.parametrize("case", CASES)
async def test_what_cannot_be_seen_is_missing(case: str, product: Product, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = CASES[case][1]
    missing = await asked(product, case, "missing", monkeypatch)
    assert missing[3] or case == "read under a grant", "the statements are recorded"
    for where in ELSEWHERE_KINDS:
        if where in product.ids[kind]:
            found = await asked(product, case, where, monkeypatch)
            assert found[:3] == missing[:3], where
            assert found[3] == missing[3], where


@pytest.mark.parametrize("operation", ["list_snapshots", "compare_snapshots"])
async def test_a_snapshot_by_its_id_alone(product: Product, operation: str) -> None:
    members = ["snapshot_id"] if operation == "list_snapshots" else ["base_snapshot_id", "other_snapshot_id"]
    answers = []
    for name in product.ids["snapshot"].values():
        document = {**dict.fromkeys(members, name), "operation_id": "op:1"}
        answer = await product.call(operation, document, GUEST)
        answers.append((answer.status, answer.headers, answer.body.replace(name.encode(), b"id")))
    assert len(answers) == 4
    assert answers[0][0] == 404
    assert answers == answers[:1] * 4


async def test_a_filter_on_what_cannot_be_seen(product: Product, monkeypatch: pytest.MonkeyPatch) -> None:
    """A subscription to a hidden object gets what one to a missing object gets, by the same statements."""
    answers = []
    for where in ("missing", "hidden", "foreign"):
        name = product.ids["object"][where]
        opening = {"scope_id": SCOPE, "channel": "poll", "after_sequence": 0, "filter": {"object_id": name}}
        opened = await product.ok("subscribe", opening, GUEST)
        for _ in range(2):
            polling = {"subscription_id": opened["subscription_id"], "after_sequence": 0, "operation_id": "op:1"}
            with recorded(monkeypatch) as statements:
                answer = await product.call("poll", polling, GUEST)
        page = orjson.loads(answer.body)
        answers.append((answer.status, page["events"], page["closed"], list(statements)))
    assert answers[0][1] == []
    assert answers[1] == answers[0]
    assert answers[2] == answers[0]


def test_every_operation_that_names_an_id_has_a_case() -> None:
    """What has none names nothing that is hidden from whoever may ask: actors, keys of its own tenant, whole scopes."""
    named_ids = {
        "delegation_id",
        "object_id",
        "relationship_id",
        "version_id",
        "snapshot_id",
        "subscription_id",
        "hold_id",
        "schema_id",
    }
    asking = {"create", "record_event", "exercise_delegation"}
    cased = {operation for operation, _, _ in CASES.values()} | asking
    for operation in contracts.operations():
        members = contracts.schema(f"pamspec:operation:{operation}:request").get("properties", {})
        given = operation in ("register_schema", "relate", "subscribe", "place_hold")
        assert given or not members.keys() & named_ids or operation in cased, operation
