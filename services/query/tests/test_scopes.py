"""get_scope and list_scopes."""

from __future__ import annotations

import orjson

from services.query.tests.door import Conn, Door
from services.query.tests.seeds import Scope


async def test_scopes_of_the_tenant(seeding: Conn, door: Door) -> None:
    foreign = Scope("workspace:foreign", tenant_id="tenant:other")
    await foreign.flush(seeding)
    names = [f"workspace:{letter}" for letter in "Badce"]
    for name in names:
        scope = Scope(name)
        scope.put("obj:x", 1)
        await scope.flush(seeding)
    found = await door("get_scope", scope_id="workspace:a")
    assert orjson.loads(found.body) == {
        "policy_version": 0,
        "scope": {"scope_id": "workspace:a", "scope_kind": "workspace"},
    }
    assert found.headers == {"Pamspec-As-Of-Sequence": "1", "Pamspec-Ledger-Epoch": "1"}
    listed = await door.ok("list_scopes")
    assert [scope["scope_id"] for scope in listed["scopes"]] == sorted(names)
    assert listed["next_cursor"] is None
    walked: list[str] = []
    page: dict[str, object] = {"limit": 2}
    while True:
        found_page = await door.ok("list_scopes", pagination=page)
        walked += [scope["scope_id"] for scope in found_page["scopes"]]
        if found_page["next_cursor"] is None:
            break
        page = {"limit": 2, "cursor": found_page["next_cursor"]}
    assert walked == sorted(names)
    one = await door.ok("list_scopes", scope_id="workspace:d")
    assert [scope["scope_id"] for scope in one["scopes"]] == ["workspace:d"]


async def test_what_is_not_visible_does_not_exist(seeding: Conn, door: Door) -> None:
    foreign = Scope("workspace:foreign", tenant_id="tenant:other")
    await foreign.flush(seeding)
    for operation in ("get_scope", "list_scopes", "list_policy_versions", "verify_ledger", "get_checkpoint"):
        answers = [
            await door(operation, scope_id=name, operation_id="op:1")
            for name in ("workspace:foreign", "workspace:none")
        ]
        assert answers[0].status == 404
        assert answers[0].body == answers[1].body
    assert (await door.ok("list_scopes"))["scopes"] == []
    assert (await door.refused("list_scopes", pagination={"limit": 1, "cursor": "AAAA"}))["code"] == "invalid_request"
    assert (await door.refused("get_scope"))["code"] == "invalid_request"
