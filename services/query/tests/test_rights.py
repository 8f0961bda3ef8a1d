"""Who may read what: by roles and rules, before anything is counted, ordered or paged; what is hidden is missing."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from pamspec_common.calls import Answer
from pamspec_query.queries import heads
from services.query.tests.asking import SCOPE, item_name
from services.query.tests.door import Conn, Door
from services.query.tests.exporting import Taking
from services.query.tests.seeds import TENANT, Scope
from services.query.tests.test_snapshots import seal
from services.query.tests.test_traverse import join

ALL: dict[str, Any] = {"kind": "structured", "trust": "all"}
NO_DECISIONS = (
    '@id("secret") forbid(principal, action == Action::"read", resource) when { resource.object_type == "decision" };'
)
NO_REJECTED = (
    '@id("rejected") forbid(principal, action == Action::"read", resource) '
    'when { resource.validation_state == "rejected" };'
)
OWN_ONLY = (
    '@id("own") forbid(principal, action == Action::"read", resource) '
    "unless { resource.creator == principal.actor_id };"
)


async def bind(conn: Conn, actor_id: str, role: str, scope: Scope | None = None) -> None:
    """Bind a role, in a scope or in the tenant, as an administrator's command does: with the epoch raised."""
    await conn.execute(
        "INSERT INTO core.role_binding (tenant_id, scope_key, actor_id, role, bound_by) VALUES ($1, $2, $3, $4, 'a:b')",
        TENANT, 0 if scope is None else scope.key, actor_id, role,
    )  # fmt: skip
    await moved(conn, scope)


async def unbind(conn: Conn, actor_id: str, scope: Scope | None = None) -> None:
    """Take all roles from an actor."""
    await conn.execute("DELETE FROM core.role_binding WHERE actor_id = $1", actor_id)
    await moved(conn, scope)


async def rules(conn: Conn, text: str, scope: Scope | None = None) -> None:
    """Put rules in force."""
    await conn.execute(
        "INSERT INTO core.access_rules (tenant_id, scope_key, rules_version, text, policy_basis, actor_id) "
        "SELECT $1, $2, coalesce(max(rules_version), 0) + 1, $3, 'test', 'a:b' FROM core.access_rules "
        "WHERE tenant_id = $1 AND scope_key = $2",
        TENANT, 0 if scope is None else scope.key, text,
    )  # fmt: skip
    await moved(conn, scope)


async def moved(conn: Conn, scope: Scope | None) -> None:
    """Raise the authorization epoch."""
    if scope is None:
        await conn.execute("UPDATE core.tenant SET epoch_authz = epoch_authz + 1 WHERE tenant_id = $1", TENANT)
    else:
        await conn.execute("UPDATE core.scope_head SET epoch_authz = epoch_authz + 1 WHERE scope_key = $1", scope.key)


async def listed(door: Door, **more: Any) -> list[str]:
    """The names on a page."""
    found = await door.ok("query", **{"scope_id": SCOPE, "query": ALL, **more})
    return [item_name(item) for item in found["items"]]


def reader(door: Door, *roles: str) -> Door:
    """A principal with some roles in the tenant."""
    return door.as_("agent:guest", roles=roles)


@pytest.fixture
async def scope(seeding: Conn) -> Scope:
    """Three observations and two decisions, joined; `secret` is a decision."""
    found = Scope(SCOPE)
    for name, kind in (
        ("a", "observation"), ("secret", "decision"), ("b", "observation"), ("other", "decision"), ("c", "observation"),
    ):  # fmt: skip
        found.put(f"obj:{name}", {"is": name}, object_type=kind)
    join(found, "a", "secret")
    join(found, "secret", "c")
    join(found, "a", "b")
    await found.flush(seeding)
    return found


CALLS: dict[str, dict[str, Any]] = {
    "read": {"object_id": "obj:a"},
    "query": {"query": ALL},
    "inspect_history": {"object_id": "obj:a"},
    "list_snapshots": {},
    "get_scope": {},
    "list_policy_versions": {},
    "list_reads": {"object_ids": ["obj:a"]},
    "list_holds": {},
    "list_erasures": {},
    "list_schemas": {},
    "verify_ledger": {},
    "get_checkpoint": {},
    "list_scopes": {},
}
READING = set(CALLS) - {"list_policy_versions", "list_holds", "list_erasures"}
MAY = {
    "reader": READING,
    "contributor": READING | {"list_erasures"},
    "editor": READING,
    "reviewer": READING,
    "curator": READING | {"list_holds", "list_erasures"},
    "auditor": READING | {"list_holds", "list_policy_versions", "list_erasures"},
    "admin": set(CALLS),
    "platform": set(),
}


@pytest.mark.parametrize("role", MAY)
async def test_what_each_role_may_read(door: Door, scope: Scope, role: str) -> None:
    by = reader(door, role)
    for operation, document in CALLS.items():
        answer = await by(operation, scope_id=SCOPE, **document)
        refusal = 404 if role == "platform" else 403
        assert answer.status == (200 if operation in MAY[role] else refusal), (operation, answer.body)
    taking = Taking(by.service, by.principal, b'{"scope_id":"' + SCOPE.encode() + b'"}')
    await taking.task
    assert taking.status == {"auditor": 200, "admin": 200, "platform": 404}.get(role, 403)


async def test_without_a_role_there_is_no_scope(door: Door, scope: Scope) -> None:
    nobody = reader(door)
    for operation, document in CALLS.items():
        for more in ({}, {"min_sequence": 10**9}, {"ledger_epoch": 7}):
            if operation == "list_scopes" and more:
                continue
            bodies = [
                (await nobody(operation, **{**document, **more, "scope_id": name, "operation_id": "op:1"})).body
                for name in (SCOPE, "workspace:none")
            ]
            assert bodies[0] == bodies[1], operation
            assert orjson.loads(bodies[0])["error"]["code"] == "scope_not_found"


async def test_a_snapshot_of_another_scope_is_none(seeding: Conn, door: Door, scope: Scope) -> None:
    theirs = await seal(seeding, scope, "snap:theirs")
    nobody = reader(door)
    for operation, named in (
        ("list_snapshots", ("snapshot_id",)), ("compare_snapshots", ("base_snapshot_id", "other_snapshot_id"))
    ):  # fmt: skip
        bodies = [
            (await nobody(operation, operation_id="op:1", **dict.fromkeys(named, name))).body
            for name in (theirs, "snap:none")
        ]
        assert bodies[0] == bodies[1]
        assert orjson.loads(bodies[0])["error"]["code"] == "snapshot_not_found"


async def test_scopes_are_listed_to_those_who_see_them(seeding: Conn, door: Door, scope: Scope) -> None:
    others = [Scope(f"workspace:b{number}") for number in range(12)]
    for other in others:
        await other.flush(seeding)
    guest = reader(door)
    assert (await guest.ok("list_scopes"))["scopes"] == []
    await bind(seeding, "agent:guest", "reader", others[4])
    await bind(seeding, "agent:guest", "reader", others[9])
    walked: list[str] = []
    page: dict[str, Any] = {"limit": 1}
    for _ in range(2):
        found = await guest.ok("list_scopes", pagination=page)
        walked += [one["scope_id"] for one in found["scopes"]]
        page = {"limit": 1, "cursor": found["next_cursor"]}
    assert (walked, found["next_cursor"]) == (["workspace:b4", "workspace:b9"], None)
    assert (await guest.refused("list_scopes", scope_id="workspace:b5"))["code"] == "scope_not_found"
    await unbind(seeding, "agent:guest", others[4])
    assert [one["scope_id"] for one in (await guest.ok("list_scopes"))["scopes"]] == ["workspace:b9"]


async def test_a_role_counts_from_its_binding_to_its_end(seeding: Conn, door: Door, scope: Scope) -> None:
    guest = reader(door)
    read: dict[str, Any] = {"scope_id": SCOPE, "object_id": "obj:a"}
    for where in (scope, None):
        for operation, document in (("read", read), ("query", {"scope_id": SCOPE, "query": ALL})):
            assert (await guest(operation, **document)).status == 404
            await bind(seeding, "agent:guest", "reader", where)
            assert (await guest(operation, **document)).status == 200
            await unbind(seeding, "agent:guest", where)
        assert (await guest("read", **read)).status == 404


async def same(door: Door, operation: str, hidden: dict[str, Any], missing: dict[str, Any]) -> Answer:
    """The one answer that hidden and missing have."""
    answers = [await door(operation, scope_id=SCOPE, operation_id="op:1", **one) for one in (hidden, missing)]
    assert (answers[0].status, answers[0].body, answers[0].headers) == (
        answers[1].status, answers[1].body, answers[1].headers
    )  # fmt: skip
    return answers[0]


async def test_what_is_hidden_answers_as_what_is_missing(seeding: Conn, door: Door, scope: Scope) -> None:
    version = scope.heads["obj:secret"].version_id
    snapshot = await seal(seeding, scope)
    await rules(seeding, NO_DECISIONS, scope)
    by = reader(door, "reader")
    hidden, missing = {"object_id": "obj:secret"}, {"object_id": "obj:missing"}
    for operation, more in (
        ("read", {}),
        ("read", {"version_id": version}),
        ("read", {"as_of": {"ledger_sequence": 5}}),
        ("read", {"snapshot_id": snapshot}),
        ("inspect_history", {}),
        ("inspect_history", {"snapshot_id": snapshot}),
    ):
        answer = await same(by, operation, {**hidden, **more}, {**missing, **more})
        assert answer.status == 404
        assert (await by(operation, scope_id=SCOPE, object_id="obj:a", **({} if "version_id" in more else more))).status
    for name in ("a-secret", "secret-c"):
        for more in ({}, {"as_of": {"ledger_sequence": 8}}):
            ends: dict[str, Any] = {"relationship_id": f"rel:{name}", **more}
            none: dict[str, Any] = {"relationship_id": "rel:missing", **more}
            assert (await same(by, "read", ends, none)).status == 404
    assert (await by("read", scope_id=SCOPE, relationship_id="rel:a-b")).status == 200
    start = {"query": ALL, "traverse": {"from": ["obj:secret"]}}
    assert (await same(by, "query", start, {"query": ALL, "traverse": {"from": ["obj:missing"]}})).status == 404


async def test_hidden_and_missing_take_the_same_statements(
    seeding: Conn, door: Door, scope: Scope, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rules(seeding, NO_DECISIONS, scope)
    by = reader(door, "reader")
    asked: list[tuple[str, int]] = []
    whole = heads.read_heads

    async def counted(conn: Any, keys: Any, ids: Any, max_bytes: int) -> Any:
        asked.append(("read_heads", len(ids)))
        return await whole(conn, keys, ids, max_bytes)

    async def no_snapshot(*_: Any) -> None:
        raise AssertionError("a warm read takes one round trip")

    await by("read", scope_id=SCOPE, object_id="obj:a")
    monkeypatch.setattr("pamspec_query.groups.read_heads", counted)
    monkeypatch.setattr("pamspec_query.store.load_rights", no_snapshot)
    monkeypatch.setattr("pamspec_query.handlers.context.load_rights", no_snapshot)
    for name in ("obj:secret", "obj:missing", "obj:a"):
        await by("read", scope_id=SCOPE, object_id=name)
    assert asked == [("read_heads", 1)] * 3


async def test_queries_rank_count_and_page_what_is_seen(seeding: Conn, door: Door, scope: Scope) -> None:
    by = reader(door, "reader")
    assert await listed(by) == ["c", "other", "b", "secret", "a"]
    await rules(seeding, NO_DECISIONS, scope)
    assert await listed(by) == ["c", "b", "a"]
    for exact in ("exact", "bounded"):
        assert (await by.ok("query", scope_id=SCOPE, query=ALL, count=exact))["count"]["value"] == 3
    first = await by.ok("query", scope_id=SCOPE, query=ALL, pagination={"limit": 3})
    assert (len(first["items"]), first["next_cursor"]) == (3, None)
    hidden = {**ALL, "filters": {"object_type": ["decision"]}}
    missing = {**ALL, "filters": {"object_type": ["nothing"]}}
    assert (await same(by, "query", {"query": hidden, "count": "exact"}, {"query": missing, "count": "exact"})).status
    ends = {**ALL, "filters": {"relationship_type": "any"}}
    assert await listed(by, query=ends) == ["a-b"]
    assert await listed(by, query=ends, traverse={"from": ["obj:a"], "depth": 2}) == ["a-b"]
    assert await listed(by, traverse={"from": ["obj:a"], "depth": 2}) == ["b"]
    assert await listed(by, query={**ALL, "as_of": {"ledger_sequence": 4}}) == ["b", "a"]


async def test_the_hint_tells_nothing_of_what_is_hidden(seeding: Conn, door: Door) -> None:
    scope = Scope(SCOPE)
    scope.put("obj:x", 1, object_type="decision", validation_state="unverified")
    await scope.flush(seeding)
    by = reader(door, "reader")
    asked: dict[str, Any] = {"kind": "structured"}
    assert "hint" in await by.ok("query", scope_id=SCOPE, query=asked)
    await rules(seeding, NO_DECISIONS, scope)
    assert "hint" not in await by.ok("query", scope_id=SCOPE, query=asked)


async def test_every_hop_is_decided_where_it_leads(seeding: Conn, door: Door) -> None:
    home, far = Scope(SCOPE), Scope("workspace:far")
    for name in ("a", "b"):
        home.put(f"obj:{name}", 1)
    far.put("obj:x", 1)
    far.put("obj:y", 1, object_type="decision")
    join(home, "a", "b")
    join(home, "b", "x", to="workspace:far")
    join(home, "b", "y", to="workspace:far")
    for one in (home, far):
        await one.flush(seeding)
    await seeding.execute(
        "INSERT INTO core.scope_policy (scope_key, policy_version, policy, actor_id, operation_id, changed_at)"
        " VALUES ($1, 1, $2, 'a:b', 'op:1', now())",
        far.key, orjson.dumps({"cross_scope": {"traverse_from": [{"scope_id": SCOPE}]}}),
    )  # fmt: skip
    await bind(seeding, "agent:guest", "reader", home)
    guest = reader(door)
    walk = {"traverse": {"from": ["obj:a"], "depth": 3}}
    admin = sorted(await listed(door, **walk))
    assert sorted(await listed(guest, **walk)) == ["b"]
    await bind(seeding, "agent:guest", "reader", far)
    assert sorted(await listed(guest, **walk)) == admin == ["b", "x", "y"]
    await rules(seeding, NO_DECISIONS, far)
    assert sorted(await listed(guest, **walk)) == ["b", "x"]


async def test_history_leaves_out_what_is_hidden(seeding: Conn, door: Door, scope: Scope) -> None:
    by = reader(door, "reader")
    await rules(seeding, NO_DECISIONS, scope)
    found = await by.ok("inspect_history", scope_id=SCOPE, after_sequence=0)
    assert [event["sequence"] for event in found["events"]] == [1, 3, 5, 8]
    assert b"secret" not in orjson.dumps(found)
    assert len(found["versions"]) == 4
    first = await by.ok("inspect_history", scope_id=SCOPE, after_sequence=0, pagination={"limit": 4})
    assert first["next_cursor"] is None


async def test_a_version_is_seen_by_what_it_was_and_by_what_its_object_is(seeding: Conn, door: Door) -> None:
    scope = Scope(SCOPE)
    was = scope.put("obj:fell", 1, validation_state="unverified")
    scope.put("obj:fell", 1, validation_state="rejected")
    scope.put("obj:rose", 1, validation_state="rejected")
    scope.put("obj:rose", 2, validation_state="corroborated")
    scope.put("obj:fine", 1)
    await scope.flush(seeding)
    await rules(seeding, NO_REJECTED, scope)
    by = reader(door, "reader")
    assert await listed(by) == ["fine", "rose"]
    for sequence in (1, 3, 5):
        expected = {1: [], 3: [], 5: ["fine", "rose"]}[sequence]
        assert await listed(by, query={**ALL, "as_of": {"ledger_sequence": sequence}}) == expected
    read = {"scope_id": SCOPE, "object_id": "obj:fell"}
    assert (await by("read", **read)).status == 404
    assert (await by("read", **read, version_id=was.version_id)).status == 404
    risen = {"scope_id": SCOPE, "object_id": "obj:rose"}
    assert (await by("read", **risen)).status == 200
    assert (await by("read", **risen, as_of={"ledger_sequence": 3})).status == 404
    history = await by.ok("inspect_history", scope_id=SCOPE, after_sequence=0)
    assert [event["sequence"] for event in history["events"]] == [4, 5]


async def test_the_creator_counts_not_who_changed_it_last(seeding: Conn, door: Door) -> None:
    scope = Scope(SCOPE)
    mine, theirs = ({"actor_id": f"agent:{name}", "actor_kind": "agent"} for name in ("guest", "other"))
    scope.put("obj:mine", 1, actor=mine)
    scope.put("obj:theirs", 1, actor=theirs)
    scope.put("obj:mine", 2, actor=theirs)
    scope.put("obj:theirs", 2, actor=mine)
    await scope.flush(seeding)
    await rules(seeding, OWN_ONLY, scope)
    by = reader(door, "reader")
    assert await listed(by) == ["mine"]
    assert [(await by("read", scope_id=SCOPE, object_id=f"obj:{name}")).status for name in ("mine", "theirs")] == [
        200, 404
    ]  # fmt: skip


async def test_comparisons_and_exports_of_what_is_partly_hidden(seeding: Conn, door: Door, scope: Scope) -> None:
    base = await seal(seeding, scope, "snap:base")
    scope.put("obj:secret", {"is": "changed"}, object_type="decision")
    scope.put("obj:a", {"is": "changed"})
    other = await seal(seeding, scope, "snap:other")
    await rules(seeding, NO_DECISIONS, scope)
    by = reader(door, "reader", "auditor")
    found = await by.ok("compare_snapshots", base_snapshot_id=base, other_snapshot_id=other)
    assert [one["object_id"] for one in found["changed"]] == ["obj:a"]
    assert (found["added"], found["removed"]) == ([], [])
    taking = Taking(by.service, by.principal, b'{"scope_id":"' + SCOPE.encode() + b'"}')
    await taking.task
    assert (taking.status, orjson.loads(taking.body)["error"]["code"]) == (403, "access_denied")


async def test_a_snapshot_is_listed_to_whom_its_members_are_shown(seeding: Conn, door: Door, scope: Scope) -> None:
    for name, members in (("snap:a", ("obj:a", "obj:b")), ("snap:b", ("obj:a", "obj:secret")), ("snap:c", ())):
        await seal(seeding, scope, name, *members)
    by = reader(door, "reader")

    async def names() -> list[str]:
        found = await by.ok("list_snapshots", scope_id=SCOPE)
        return [one["snapshot"]["snapshot_id"] for one in found["snapshots"]]

    assert await names() == ["snap:a", "snap:b", "snap:c"]
    await rules(seeding, NO_DECISIONS, scope)
    assert await names() == ["snap:a", "snap:c"]


async def test_rights_that_move_between_two_pages(seeding: Conn, door: Door, scope: Scope) -> None:
    by = reader(door)
    await bind(seeding, "agent:guest", "reader", scope)
    asked: dict[str, Any] = {"scope_id": SCOPE, "query": ALL}
    first = await by.ok("query", **asked, pagination={"limit": 2})
    assert [item_name(item) for item in first["items"]] == ["c", "other"]
    await rules(seeding, NO_DECISIONS, scope)
    rest = {**asked, "pagination": {"limit": 2, "cursor": first["next_cursor"]}}
    assert await listed(by, **rest) == ["b", "a"]
    await unbind(seeding, "agent:guest", scope)
    assert (await by.refused("query", **rest))["code"] == "scope_not_found"


async def test_an_export_ends_when_its_right_does(seeding: Conn, door: Door, scope: Scope) -> None:
    by = reader(door)
    await bind(seeding, "agent:guest", "auditor", scope)
    taking = Taking(by.service, by.principal, b'{"scope_id":"' + SCOPE.encode() + b'"}')
    taking.go.clear()
    await taking.waiting.wait()
    await unbind(seeding, "agent:guest", scope)
    taking.go.set()
    await taking.task
    last = orjson.loads(bytes(taking.body).splitlines()[-1])
    assert last["error"]["code"] == "scope_not_found"
    assert b'"obj:a"' not in taking.body


async def test_neighbours_by_name_are_strangers(seeding: Conn, door: Door, scope: Scope) -> None:
    await bind(seeding, "agent:guest", "reader", scope)
    for actor in ("agent:gues", "agent:guest2", "agent:Guest", "agent:gu_st"):
        answer = await door.as_(actor, roles=())("read", scope_id=SCOPE, object_id="obj:a")
        assert answer.status == 404
    for name in (f"{SCOPE}a", "workspace:A", "workspace:_"):
        assert (await reader(door)("query", scope_id=name, query=ALL)).status == 404


async def test_m004_names_that_begin_or_end_alike_are_other_scopes(seeding: Conn, door: Door) -> None:
    """M004: a scope is not the one whose name begins or ends its own, in reads, queries and roles."""
    names = ["a:foo", "a:foo/child", "a:foobar", "a:foo2", "a:alice", "a:malice"]
    for name in names:
        scope = Scope(name)
        scope.put("obj:x", name)
        await scope.flush(seeding)
        if name in ("a:foo", "a:alice"):
            await bind(seeding, "agent:guest", "reader", scope)
    guest = door.as_("agent:guest", roles=())
    for name in names:
        found = await door.ok("query", scope_id=name, query={"kind": "structured"})
        assert [item["envelope"]["canonical_content"] for item in found["items"]] == [name]
        status = (await guest("read", scope_id=name, object_id="obj:x")).status
        assert status == (200 if name in ("a:foo", "a:alice") else 404), name
    listed = await guest.ok("list_scopes")
    assert {one["scope_id"] for one in listed["scopes"]} == {"a:foo", "a:alice"}


async def test_the_role_platform_lets_a_principal_read_for_its_agents(seeding: Conn, door: Door) -> None:
    """S9: by the role as by the right; what is seen is what that actor may see."""
    scope = Scope(SCOPE)
    scope.put("obj:x", "text")
    await scope.flush(seeding)
    platform = door.as_("agent:platform", roles=["reader"])
    read = {"scope_id": SCOPE, "object_id": "obj:x", "actor": {"actor_id": "agent:small", "actor_kind": "agent"}}
    refused = await platform.refused("read", **read)
    assert (refused["code"], refused["details"]) == ("access_denied", {"action": "assert_actor"})
    assert (await platform.ok("list_scopes", actor=read["actor"]))["scopes"] == []
    await bind(seeding, "agent:platform", "platform", scope)
    assert await platform.ok("read", **read)
    assert len((await platform.ok("list_scopes", actor=read["actor"]))["scopes"]) == 1
    await seeding.execute("DELETE FROM core.role_binding WHERE actor_id = 'agent:platform'")
    await moved(seeding, scope)
    assert (await platform.refused("read", **read))["code"] == "access_denied"
    nobody = door.as_("agent:nobody", roles=[])
    there = await nobody.refused("read", **read)
    nowhere = await nobody.refused("read", **{**read, "scope_id": "workspace:nowhere"})
    assert there["code"] == "scope_not_found"
    assert {**there, "operation_id": ""} == {**nowhere, "operation_id": ""}
