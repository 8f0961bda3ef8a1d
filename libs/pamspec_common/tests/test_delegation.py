"""The rules of grants, purely: every verdict, and every respect in which a grant may not widen."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import structs

from pamspec_common.authorization.decisions import Subject
from pamspec_common.authorization.policies import default_text, parse
from pamspec_common.authorization.rights import Epochs, Rights
from pamspec_common.delegation.attenuation import check_narrower, check_parties, check_window
from pamspec_common.delegation.grants import OPERATIONS, Chain, Grant, Party, Terms, authority, is_party, remaining_uses
from pamspec_common.delegation.verdicts import REASONS, Use, denied, holds, require, verdicts
from pamspec_common.errors import AccessDenied, PolicyDenied

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR, TICK = timedelta(hours=1), timedelta(microseconds=1)
OWNER, MIDDLE, LAST = (Party(f"agent:{name}", "agent") for name in ("owner", "middle", "last"))
TERMS = Terms(frozenset({"read", "update"}), NOW - HOUR, NOW + HOUR)


def grant(name: str, grantor: Party, delegate: Party, terms: Terms = TERMS, **changed: Any) -> Grant:
    """A grant in the scope 1."""
    made = Grant(f"dlg:{name}", 1, "scope:1", 1, "scope:1", grantor, grantor.actor_id, delegate, terms)
    return structs.replace(made, **changed)


ONE: Chain = (grant("one", OWNER, LAST),)
TWO: Chain = (grant("above", OWNER, MIDDLE), grant("below", MIDDLE, LAST))
USE = Use("read", LAST.actor_id, LAST.actor_kind, "scope:1", ("obj:a",), ("claim",))


def rights(*roles: str) -> Rights:
    """The rights of an owner with these roles."""
    subject = Subject(OWNER.actor_id, OWNER.actor_kind, frozenset(roles))
    return Rights(authority(ONE, "tenant:t"), subject, parse(default_text()), Epochs(1, 1))


def reason(chain: Chain, use: Use = USE, now: datetime = NOW, by: Rights | None = None) -> str | None:
    """The reason of the refusal, if there is one."""
    try:
        require(verdicts(chain, use, now, by))
    except AccessDenied as refused:
        return str(refused.details["reason"])
    return None


def changed(chain: Chain, place: int, terms: dict[str, Any] | None = None, **members: Any) -> Chain:
    """A chain with one grant changed."""
    found = list(chain)
    narrowed = structs.replace(found[place].terms, **(terms or {}))
    found[place] = structs.replace(found[place], terms=narrowed, **members)
    return tuple(found)


@pytest.mark.parametrize("chain", [ONE, TWO])
def test_a_use_within_all_terms_is_permitted(chain: Chain) -> None:
    assert reason(chain) is None
    assert reason(chain, by=rights("contributor")) is None
    assert len(list(verdicts(chain, USE, NOW, None))) == 5 + 4 * len(chain)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"actor_id": "agent:other"}, "delegate"),
        ({"actor_kind": "human"}, "delegate"),
        ({"scope_id": "scope:2"}, "scope"),
        ({"operation": "delete"}, "operation"),
    ],
)
def test_terms_that_a_use_breaks(change: dict[str, Any], expected: str) -> None:
    assert reason(ONE, structs.replace(USE, **change)) == expected


def test_objects_and_types() -> None:
    listed = changed(ONE, 0, {"object_ids": frozenset({"obj:a"}), "object_types": frozenset({"claim"})})
    assert reason(listed) is None
    assert reason(listed, structs.replace(USE, object_ids=())) is None
    for ids in (("obj:b",), ("obj:a", "obj:b"), (None,)):
        assert reason(listed, structs.replace(USE, object_ids=ids)) == "object_id"
    for types in (("task",), ("claim", "task"), (None,)):
        assert reason(listed, structs.replace(USE, object_types=types)) == "object_type"


def test_b78_b79_a_window_has_both_of_its_ends_and_nothing_beyond() -> None:
    """B78, B79: what passes the border is refused at the border, without leeway, by one clock."""
    assert reason(ONE, now=NOW - HOUR) is reason(ONE, now=NOW + HOUR) is None
    assert reason(ONE, now=NOW - HOUR - TICK) == "not_before"
    assert reason(ONE, now=NOW + HOUR + TICK) == "not_after"
    moment = changed(ONE, 0, {"not_before": NOW, "not_after": NOW})
    assert reason(moment) is None
    assert reason(moment, now=NOW + TICK) == "not_after"


def test_every_grant_above_must_be_in_force() -> None:
    for place, prefix in ((0, "ancestor_"), (1, "")):
        assert reason(changed(TWO, place, revoked=True)) == prefix + "revoked"
        assert reason(changed(TWO, place, {"not_after": NOW - TICK})) == prefix + "not_after"
        assert reason(changed(TWO, place, {"not_before": NOW + TICK})) == prefix + "not_before"
        assert reason(changed(TWO, place, {"usage_limit": 2}, used=2)) == prefix + "usage_limit"
        assert reason(changed(TWO, place, {"usage_limit": 3}, used=2)) is None
        assert reason(changed(TWO, place, {"usage_limit": 3}, used=2), structs.replace(USE, count=2)) == (
            prefix + "usage_limit"
        )


def test_the_grantor_must_hold_the_operation_now() -> None:
    assert reason(TWO, by=rights("reader")) is None
    assert reason(TWO, structs.replace(USE, operation="update"), by=rights("reader")) == "grantor_rights"
    assert reason(TWO, by=rights()) == "grantor_rights"
    assert {operation for operation in OPERATIONS if holds(rights("admin"), operation)} == set(OPERATIONS)
    assert not any(holds(rights(), operation) for operation in OPERATIONS)


def test_uses_and_parties_of_a_chain() -> None:
    assert remaining_uses(TWO) is None
    limited = changed(changed(TWO, 0, {"usage_limit": 9}, used=7), 1, {"usage_limit": 5}, used=1)
    assert remaining_uses(limited) == 2
    assert [is_party(TWO, party.actor_id) for party in (OWNER, MIDDLE, LAST, Party("agent:x", "agent"))] == [
        True,
        True,
        True,
        False,
    ]
    assert not is_party(TWO[:1], LAST.actor_id)
    asker = authority(changed(TWO, 0, credential_roles=frozenset({"editor"})), "tenant:t")
    assert (asker.actor_id, asker.principal_id, asker.credential_roles, asker.delegation_id) == (
        OWNER.actor_id,
        OWNER.actor_id,
        frozenset({"editor"}),
        "dlg:below",
    )


def test_every_reason_has_words() -> None:
    for word in REASONS:
        refused = denied(word)
        assert refused.details == {"reason": word}
        assert ";" in refused.message or "," in refused.message


WIDE = structs.replace(
    TERMS,
    object_types=frozenset({"claim", "task"}),
    object_ids=frozenset({"obj:a", "obj:b"}),
    usage_limit=5,
    redelegation_depth=2,
)
ABOVE: Chain = (grant("above", OWNER, MIDDLE, WIDE),)
NARROW = structs.replace(WIDE, redelegation_depth=1)


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("granted_operations", {"operations": frozenset({"read", "delete"})}),
        ("granted_object_types", {"object_types": None}),
        ("granted_object_types", {"object_types": frozenset({"claim", "entity"})}),
        ("granted_object_ids", {"object_ids": None}),
        ("granted_object_ids", {"object_ids": frozenset({"obj:c"})}),
        ("not_before", {"not_before": NOW - HOUR - TICK}),
        ("not_after", {"not_after": NOW + HOUR + TICK}),
        ("usage_limit", {"usage_limit": None}),
        ("usage_limit", {"usage_limit": 6}),
        ("redelegation_depth", {"redelegation_depth": 2}),
    ],
)
def test_b73_a_wider_grant_is_refused(field: str, change: dict[str, Any]) -> None:
    """B73: what is passed on is never more, whatever member would make it so."""
    check_narrower(ABOVE, MIDDLE, NARROW, "scope:1", "scope:1")
    with pytest.raises(PolicyDenied) as refused:
        check_narrower(ABOVE, MIDDLE, structs.replace(NARROW, **change), "scope:1", "scope:1")
    assert refused.value.details == {"field": field}


def test_who_and_where_a_grant_is_passed_on() -> None:
    for field, grantor, scope_id, target in (
        ("delegation_id", LAST, "scope:1", "scope:1"),
        ("delegation_id", Party(MIDDLE.actor_id, "human"), "scope:1", "scope:1"),
        ("scope_id", MIDDLE, "scope:2", "scope:1"),
        ("target_scope_id", MIDDLE, "scope:1", "scope:2"),
    ):
        with pytest.raises(PolicyDenied) as refused:
            check_narrower(ABOVE, grantor, NARROW, scope_id, target)
        assert refused.value.details == {"field": field}
    last = changed(ABOVE, 0, {"redelegation_depth": 0})
    with pytest.raises(PolicyDenied):
        check_narrower(last, MIDDLE, structs.replace(NARROW, redelegation_depth=0), "scope:1", "scope:1")


def test_no_grant_leads_back_and_none_ends_before_it_begins() -> None:
    check_parties(TWO, LAST, Party("agent:new", "agent"))
    for up in (OWNER, MIDDLE, LAST, Party(OWNER.actor_id, "human")):
        with pytest.raises(PolicyDenied):
            check_parties(TWO, LAST, up)
    check_window(structs.replace(TERMS, not_before=NOW, not_after=NOW))
    with pytest.raises(PolicyDenied):
        check_window(structs.replace(TERMS, not_before=NOW + TICK, not_after=NOW))
