"""Parked entries: operators alone see them and ask for a replay or a skip, which is noted; nothing else is seen."""

from __future__ import annotations

import pytest

from pamspec_common.principal import RIGHT_OPERATOR, Principal
from services.write.tests.writer import AGENT, TENANT, Document, Writer, claim

OPERATOR = Principal("tenant:operations", "human:operator", "human", frozenset({RIGHT_OPERATOR}))
SCHEMAS = {"delegation": "delegation", "indexing": "index_"}


async def park(here: Writer, consumer: str, scope: str, count: int = 1) -> list[int]:
    """Entries of a scope as a consumer parks them."""
    made = [(await here.ok("create", claim(scope)))["ledger_sequence"] for _ in range(count)]
    await here.admin.execute(
        f"INSERT INTO {SCHEMAS[consumer]}.parked (scope_key, sequence, event_id, event_type, reason) "
        "SELECT l.scope_key, l.sequence, l.event_id, l.event_type, 'KeyError' FROM core.ledger l "
        "JOIN core.scope s USING (scope_key) WHERE s.scope_id = $1 AND l.sequence = ANY ($2::bigint[])",
        scope, made,
    )  # fmt: skip
    return made


async def marks(here: Writer, consumer: str, scope: str) -> dict[int, str | None]:
    rows = await here.admin.fetch(
        f"SELECT sequence, asked FROM {SCHEMAS[consumer]}.parked JOIN core.scope USING (scope_key) "
        "WHERE scope_id = $1", scope,
    )  # fmt: skip
    return {row["sequence"]: row["asked"] for row in rows}


def of(scope: str, **more: object) -> Document:
    return {"tenant_id": TENANT, "scope_id": scope, **more}


async def test_they_are_listed_over_both_consumers_page_by_page(shared: Writer) -> None:
    scope = shared.scope
    await park(shared, "indexing", scope, 3)
    await park(shared, "delegation", scope, 2)
    found: list[Document] = []
    cursor = None
    while True:
        page = {"pagination": {"limit": 2} | ({"cursor": cursor} if cursor else {})}
        answer = await shared.ok("list_parked_entries", of(scope, **page), by=OPERATOR)
        assert len(answer["entries"]) <= 2
        found += answer["entries"]
        cursor = answer["next_cursor"]
        if cursor is None:
            break
    assert [one["consumer"] for one in found] == ["delegation"] * 2 + ["indexing"] * 3
    assert [one["sequence"] for one in found] == [4, 5, 1, 2, 3]
    assert {(one["tenant_id"], one["scope_id"], one["reason"]) for one in found} == {(TENANT, scope, "KeyError")}
    assert {one["event_type"] for one in found} == {"object_created"}
    only = await shared.ok("list_parked_entries", of(scope, consumer="indexing"), by=OPERATOR)
    assert [one["sequence"] for one in only["entries"]] == [1, 2, 3]
    everywhere = await shared.ok("list_parked_entries", {"pagination": {"limit": 1000}}, by=OPERATOR)
    assert len([one for one in everywhere["entries"] if one["scope_id"] == scope]) == 5
    assert (await shared.ok("list_parked_entries", {"tenant_id": "tenant:none"}, by=OPERATOR))["entries"] == []


async def test_a_replay_and_a_skip_mark_what_they_name_and_are_noted(shared: Writer) -> None:
    scope = shared.scope
    one, two, three = await park(shared, "indexing", scope, 3)
    await park(shared, "delegation", scope, 1)
    basis = {"policy_basis": "mended"}
    answer = await shared.ok(
        "replay_parked_entries", of(scope, consumer="indexing", sequence=two, skip=True, **basis), by=OPERATOR
    )
    assert (answer["asked"], answer["entries"]) == ("skip", 1)
    assert await marks(shared, "indexing", scope) == {one: None, two: "skip", three: None}
    answer = await shared.ok("replay_parked_entries", of(scope, consumer="indexing", **basis), by=OPERATOR)
    assert (answer["asked"], answer["entries"]) == ("replay", 3)
    assert set((await marks(shared, "indexing", scope)).values()) == {"replay"}
    assert set((await marks(shared, "delegation", scope)).values()) == {None}
    listed = (await shared.ok("list_parked_entries", of(scope, consumer="indexing"), by=OPERATOR))["entries"]
    assert {entry["asked"] for entry in listed} == {"replay"}
    noted = await shared.ok("list_administration", {"scope_id": scope, "operation": "replay_parked_entries"}, by=AGENT)
    assert [(entry["actor_id"], entry["subject"], entry["detail"]) for entry in noted["entries"]] == [
        (OPERATOR.actor_id, "service:indexing", "replay all, 3 entries"),
        (OPERATOR.actor_id, "service:indexing", f"skip {two}"),
    ]


async def test_what_is_not_there_is_refused_and_nothing_is_noted(shared: Writer) -> None:
    scope = shared.scope
    await park(shared, "indexing", scope)
    asked = of(scope, consumer="indexing", policy_basis="x")
    for wrong, code in (
        ({**asked, "sequence": 99}, "object_not_found"),
        ({**asked, "consumer": "delegation"}, "object_not_found"),
        ({**asked, "scope_id": "workspace:none"}, "scope_not_found"),
        ({**asked, "tenant_id": "tenant:none"}, "scope_not_found"),
        ({**asked, "skip": True}, "invalid_request"),
        ({**asked, "consumer": "relay"}, "invalid_request"),
    ):
        assert (await shared.refused("replay_parked_entries", wrong, by=OPERATOR))["code"] == code, wrong
    assert set((await marks(shared, "indexing", scope)).values()) == {None}
    noted = await shared.ok("list_administration", {"scope_id": scope, "operation": "replay_parked_entries"}, by=AGENT)
    assert noted["entries"] == []
    for cursor in ("x", "indexing 1", "relay 1 1", "indexing 1 1\n", "indexing ² 1"):
        page = {"pagination": {"limit": 5, "cursor": cursor}}
        assert (await shared.refused("list_parked_entries", page, by=OPERATOR))["code"] == "invalid_request", cursor
    assert (await shared.refused("list_parked_entries", {"scope_id": scope}, by=OPERATOR))["code"] == "invalid_request"


@pytest.mark.parametrize("there", [True, False])
async def test_nobody_but_operators(shared: Writer, there: bool) -> None:
    """An administrator of the tenant neither: the store's troubles are the operator's, and tell of nothing here."""
    scope = shared.scope if there else "workspace:none"
    await park(shared, "indexing", shared.scope)
    asked = of(scope, consumer="indexing", policy_basis="x")
    assert (await shared.refused("list_parked_entries", of(scope), by=AGENT))["code"] == "access_denied"
    assert (await shared.refused("replay_parked_entries", asked, by=AGENT))["code"] == "access_denied"
    assert set((await marks(shared, "indexing", shared.scope)).values()) == {None}
    claimed = {**asked, "actor": {"actor_id": "human:somebody", "actor_kind": "human"}}
    assert (await shared.refused("replay_parked_entries", claimed, by=OPERATOR))["code"] == "access_denied"
