"""The four state tables, edge by edge, and what each state forbids (PAMSPEC P92-P102, S10, S12, S21)."""

from __future__ import annotations

import itertools

import pytest

from pamspec_common import contracts
from pamspec_common.documents import STATES
from pamspec_common.errors import InvalidStateTransition
from pamspec_common.scope_policy import parse_policy
from pamspec_write.model.rules import NO_RULES, ScopeRules
from pamspec_write.model.states import ALL_STATES, DIMENSIONS, EDGES, check_edge
from services.write.tests.writer import PROVENANCE, Document, Writer


@pytest.fixture
def writer(shared: Writer) -> Writer:
    """A scope of its own is all that a test here needs."""
    return shared


# From the requirements, by hand: what a plain transition may do without a policy (P92-P98).
OPEN = {
    "lifecycle": {
        "scratch": {"candidate", "archived"},
        "candidate": {"active", "deprecated", "archived"},
        "active": {"superseded", "deprecated", "archived"},
        "superseded": {"archived", "deprecated"},
        "deprecated": {"archived"},
        "archived": {"deprecated"},
    },
    "validation": {
        "unverified": {"corroborated", "disputed", "rejected"},
        "corroborated": {"disputed", "rejected"},
        "disputed": {"corroborated", "rejected"},
        "rejected": {"disputed"},
    },
    "availability": {
        "available": {"partially_redacted", "redacted", "deleted"},
        "partially_redacted": {"available", "redacted", "deleted"},
        "redacted": {"deleted"},
        "deleted": set(),
    },
    "retention": {
        "retained": {"expired", "pending_deletion", "legal_hold"},
        "expired": {"retained", "pending_deletion", "legal_hold"},
        "pending_deletion": {"retained", "legal_hold"},
        "legal_hold": {"retained", "expired", "pending_deletion"},
    },
}
# What only a policy opens (P93, P95, P97), inside the tables and beside them.
BY_POLICY = {
    ("lifecycle", "scratch", "active"),
    ("lifecycle", "scratch", "superseded"),
    ("lifecycle", "scratch", "deprecated"),
    ("lifecycle", "candidate", "superseded"),
    ("lifecycle", "active", "scratch"),
    ("lifecycle", "superseded", "active"),
    ("lifecycle", "deprecated", "scratch"),
    ("lifecycle", "deprecated", "active"),
    ("lifecycle", "archived", "scratch"),
    ("lifecycle", "archived", "candidate"),
    ("lifecycle", "archived", "active"),
    ("validation", "corroborated", "unverified"),
    ("validation", "rejected", "corroborated"),
    ("availability", "redacted", "available"),
}


def test_the_dimensions_and_their_states_are_those_of_the_contract() -> None:
    assert set(DIMENSIONS) == set(OPEN) == set(EDGES)
    for dimension, edges in OPEN.items():
        states = set(contracts.schema("common")["$defs"][f"{dimension}_state"]["enum"])
        assert set(edges) == set(EDGES[dimension]) == states == set(STATES[f"{dimension}_state"])
    assert set(ALL_STATES) == set().union(*OPEN.values())


def opening(*edges: tuple[str, str, str], roles: list[str] | None = None) -> ScopeRules:
    """Rules whose policy opens these edges."""
    more = {} if roles is None else {"roles": roles}
    overrides = [{"dimension": dimension, "from": current, "to": to, **more} for dimension, current, to in edges]
    return ScopeRules(7, 3, parse_policy({"overrides": overrides}))


@pytest.mark.parametrize("dimension", OPEN)
def test_every_pair_of_states_is_an_edge_or_refused(dimension: str) -> None:
    for current, target in itertools.product(OPEN[dimension], sorted(ALL_STATES)):
        if target in OPEN[dimension][current]:
            check_edge(NO_RULES, dimension, current, target, None)
            continue
        with pytest.raises(InvalidStateTransition) as refused:
            check_edge(NO_RULES, dimension, current, target, None)
        details = refused.value.details
        assert set(details["allowed"]) == OPEN[dimension][current]
        expected = "needs_policy" if (dimension, current, target) in BY_POLICY else "no_such_edge"
        assert (details["reason"], details["from"], details["dimension"]) == (expected, current, dimension)
        rule = "scope-policy/0/overrides" if expected == "needs_policy" else None
        assert refused.value.policy_rule_id == rule


@pytest.mark.parametrize("opened", sorted(BY_POLICY))
def test_an_override_opens_exactly_the_edge_that_it_lists(opened: tuple[str, str, str]) -> None:
    rules = opening(opened)
    for dimension in OPEN:
        for current, target in itertools.product(OPEN[dimension], sorted(ALL_STATES)):
            edge = (dimension, current, target)
            if target in OPEN[dimension][current] or edge == opened:
                check_edge(rules, *edge, None)
                continue
            with pytest.raises(InvalidStateTransition) as refused:
                check_edge(rules, *edge, None)
            also = {opened[2]} if (dimension, current) == opened[:2] else set()
            assert set(refused.value.details["allowed"]) == OPEN[dimension][current] | also
            assert refused.value.policy_rule_id == ("scope-policy/3/overrides" if edge in BY_POLICY else None)


def test_an_override_for_roles_is_open_to_their_holders_alone() -> None:
    rules = opening(("lifecycle", "archived", "active"), roles=["reviewer", "keeper"])
    check_edge(rules, "lifecycle", "archived", "active", None)
    check_edge(rules, "lifecycle", "archived", "active", frozenset({"keeper", "reader"}))
    for roles in (frozenset({"reader"}), frozenset[str]()):
        with pytest.raises(InvalidStateTransition):
            check_edge(rules, "lifecycle", "archived", "active", roles)


def move(writer: Writer, of: Document, dimension: str, target: str) -> Document:
    """A transition after that answer."""
    return writer.change(of, dimension=dimension, target_state=target, policy_basis="test")


async def test_a_transition_moves_its_own_dimension_alone(writer: Writer) -> None:
    made = await writer.create()
    names = [f"{dimension}_state" for dimension in DIMENSIONS]
    states = [made["envelope"][name] for name in names]
    assert states == ["active", "available", "retained", "unverified"]
    for dimension, target in (
        ("lifecycle", "deprecated"),
        ("validation", "disputed"),
        ("retention", "expired"),
        ("retention", "legal_hold"),
        ("lifecycle", "archived"),
    ):
        before = [made["envelope"][name] for name in names]
        made = await writer.ok("transition", move(writer, made, dimension, target))
        expected = [
            target if name == f"{dimension}_state" else state for name, state in zip(names, before, strict=True)
        ]
        assert [made["envelope"][name] for name in names] == expected
        event = (await writer.ledger())[-1].event
        assert event["event_type"] == f"{dimension}_transitioned"
        assert event["payload"]["to"] == target
        assert event["payload"]["from"] == before[names.index(f"{dimension}_state")]
    await writer.check_scope()


async def test_a_state_of_another_dimension_is_a_refused_edge_and_no_state_a_malformed_request(writer: Writer) -> None:
    made = await writer.create()
    for dimension, target, code in (
        ("lifecycle", "redacted", "invalid_state_transition"),
        ("lifecycle", "active", "invalid_state_transition"),
        ("availability", "archived", "invalid_state_transition"),
        ("availability", "available", "invalid_state_transition"),
        ("availability", "partially_redacted", "invalid_request"),
        ("lifecycle", "gone", "invalid_request"),
        ("mood", "active", "invalid_request"),
    ):
        assert (await writer.refused("transition", move(writer, made, dimension, target)))["code"] == code, target
    assert await writer.count("core.version") == 1


async def test_a_legal_hold_keeps_the_object(writer: Writer) -> None:
    made = await writer.ok("transition", move(writer, await writer.create(), "retention", "legal_hold"))
    assert (await writer.refused("delete", writer.change(made, policy_basis="p")))["code"] == "legal_hold"
    assert (await writer.refused("transition", move(writer, made, "availability", "deleted")))["code"] == "legal_hold"
    changed = await writer.update(made, "still editable")
    released = await writer.ok("transition", move(writer, changed, "retention", "retained"))
    assert (await writer.delete(released))["envelope"]["availability_state"] == "deleted"


async def test_what_is_pending_deletion_is_not_updated(writer: Writer) -> None:
    made = await writer.ok("transition", move(writer, await writer.create(), "retention", "pending_deletion"))
    change = writer.change(made, canonical_content=1, provenance=PROVENANCE)
    assert (await writer.refused("update", change))["code"] == "retention_restriction"
    await writer.delete(made)


@pytest.mark.parametrize("expected", ["current", "first", "ver:none"])
async def test_a_tombstone_stays(writer: Writer, expected: str) -> None:
    made = await writer.create()
    gone = await writer.delete(made)
    version = {"current": gone["version_id"], "first": made["version_id"]}.get(expected, expected)
    about = {**gone, "version_id": version}
    for dimension, target in (("lifecycle", "archived"), ("retention", "legal_hold"), ("availability", "deleted")):
        assert (await writer.refused("transition", move(writer, about, dimension, target)))["code"] == "object_deleted"
    assert (await writer.refused("delete", writer.change(about, policy_basis="p")))["code"] == "object_deleted"
    change = writer.change(about, canonical_content=1, provenance=PROVENANCE)
    assert (await writer.refused("update", change))["code"] == "object_deleted"
    again = {"scope_id": writer.scope, "object_id": gone["object_id"], "object_type": "claim"}
    error = await writer.refused("create", {**again, "canonical_content": 1, "provenance": PROVENANCE})
    assert (error["code"], error["details"]["reason"]) == ("version_conflict", "object_exists")


async def test_the_event_of_a_deletion_tells_what_was_erased(writer: Writer) -> None:
    gone = await writer.delete(await writer.update(await writer.create(), "two"))
    event = (await writer.ledger())[-1].event
    assert event["event_type"] == "object_deleted"
    assert event["payload"]["erased"] == [{"from_sequence": 1, "to_sequence": 2}]
    assert event["payload"]["erasure_id"] == gone["erasure_id"]
    provenance = gone["envelope"]["provenance"]
    assert provenance["activity"] == "delete"
    assert set(provenance) == {"provenance_id", "actor", "activity", "recorded_at", "transformation_parent"}


async def test_a_transition_carries_the_provenance_over(writer: Writer) -> None:
    provenance = {
        "activity": "heard",
        "source_ref": "mail:1",
        "evidence_refs": ["a"],
        "observed_at": "2026-01-01T00:00:00Z",
        "source_confidence": 0.5,
        "integrity_ref": "i",
        "transformation_parent": "ver:older",
    }
    writer.scope = await writer.new_scope(kind="evaluation")
    made = await writer.create(provenance=provenance, evaluation_run_id="run:1")
    moved = await writer.ok("transition", {**move(writer, made, "lifecycle", "archived"), "evaluation_run_id": "run:1"})
    found = moved["envelope"]["provenance"]
    assert found["provenance_id"] != made["envelope"]["provenance"]["provenance_id"]
    assert (found["activity"], found["transformation_parent"]) == ("transition", made["version_id"])
    assert found["observed_at"] == "2026-01-01T00:00:00.000000Z"
    assert found["evidence_refs"] == ["a", "evaluation-run:run:1"]
    for name in ("source_ref", "source_confidence", "integrity_ref"):
        assert found[name] == provenance[name]
    plain = await writer.ok("transition", move(writer, moved, "validation", "disputed"))
    assert plain["envelope"]["provenance"]["evidence_refs"] == ["a"], "the run of an earlier version is not this one's"


@pytest.mark.parametrize("object_type", ["tool_invocation", "tool_result"])
async def test_tools_have_an_event_of_their_own(writer: Writer, object_type: str) -> None:
    content: Document = {"tool_name": "t", "arguments": {}}
    if object_type == "tool_result":
        content = {"invocation_object_id": "obj:call", "outcome": "success"}
    made = await writer.create(content, object_type=object_type)
    entries = await writer.ledger()
    companion = {"tool_invocation": "tool_invoked", "tool_result": "tool_completed"}[object_type]
    assert [entry.event["event_type"] for entry in entries] == ["object_created", companion]
    assert (made["event_id"], made["ledger_sequence"]) == (entries[0].event["event_id"], 2)
    assert entries[1].event["version_id"] == made["version_id"]
    await writer.check_scope()


async def test_first_states(writer: Writer) -> None:
    memory = await writer.create({"task_ref": "task:1", "content": 1}, object_type="working_memory")
    assert memory["envelope"]["lifecycle_state"] == "scratch"
    chosen = await writer.create(lifecycle_state="candidate", validation_state="corroborated")
    assert (chosen["envelope"]["lifecycle_state"], chosen["envelope"]["validation_state"]) == (
        "candidate",
        "corroborated",
    )


async def test_relationships_are_not_found_as_objects(writer: Writer) -> None:
    made = await writer.create(object_id="obj:1")
    about = {name: value for name, value in move(writer, made, "lifecycle", "archived").items() if name != "object_id"}
    assert (await writer.refused("transition", {**about, "relationship_id": "obj:1"}))["code"] == "object_not_found"
    both = {**about, "object_id": "obj:1", "relationship_id": "obj:1"}
    assert (await writer.refused("transition", both))["code"] == "invalid_request"
    assert (await writer.refused("transition", about))["code"] == "invalid_request"
