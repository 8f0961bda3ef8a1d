"""The rules of the protocol that need no server, each vector named by the line that it is about."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from libs.pamspec_amp.tests.conftest import VECTORS
from pamspec_amp.model.access import may
from pamspec_amp.model.agents import Agent, keyed, unkeyed
from pamspec_amp.model.cells import Cell, Usage, decay_score, rank, status_of
from pamspec_amp.model.errors import AmpError, MissingAgentId, Unauthenticated, refused
from pamspec_amp.model.schemas import DECAY
from pamspec_amp.model.ulids import cell_id, cell_of, object_id
from pamspec_common.decay import Scoring, falls_below, score
from pamspec_common.errors import TREE
from pamspec_common.instants import wire
from pamspec_common.retention import Decay

START = datetime(2026, 3, 1, tzinfo=UTC)


def vectors(name: str) -> list[dict[str, Any]]:
    """The vectors of a file."""
    found: list[dict[str, Any]] = json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def ids(vector: dict[str, Any]) -> str:
    """The name of a vector's test."""
    return f"{vector['line']} {vector.get('why') or vector.get('agent') or vector.get('score')}"


@pytest.mark.parametrize("vector", vectors("decay"), ids=ids)
def test_decay(vector: dict[str, Any]) -> None:
    """The score, and what the lifecycle engine makes of it by the rule that scopes for cells have."""
    scoring = Scoring(vector["importance"], vector["confidence"], vector["decay_rate"])
    assert score(scoring, vector["days"]) == pytest.approx(vector["score"], abs=5e-8)
    rule = Decay(threshold=DECAY["threshold"])  # type: ignore[arg-type]
    below = falls_below(rule, scoring, START)
    stale = below is not None and below <= START + timedelta(days=vector["days"])
    assert stale is vector["stale"]


@pytest.mark.parametrize("vector", vectors("access"), ids=ids)
def test_access(vector: dict[str, Any]) -> None:
    policy = {name: value for name, value in vector["cell"].items() if name in ("readable_by", "writable_by", "public")}
    identity = {"owner_type": "agent", **{name: vector["cell"][name] for name in vector["cell"].keys() - policy.keys()}}
    document = {"identity": identity, **({"access_policy": policy} if policy else {})}
    agent = Agent(vector["agent"], frozenset((vector["agent"],)))
    assert may(agent, "read", document) is vector["read"]
    assert may(agent, "write", document) is vector["write"]


@pytest.mark.parametrize(
    ("lifecycle", "retention", "status"),
    [
        ("active", "retained", "active"),
        ("active", "legal_hold", "active"),
        ("active", "expired", "stale"),
        ("active", "pending_deletion", "stale"),
        ("archived", "retained", "archived"),
        ("archived", "expired", "archived"),
        ("superseded", "retained", "archived"),
        ("deprecated", "retained", "archived"),
        ("candidate", "retained", None),
        ("scratch", "retained", None),
    ],
)
def test_status_of_every_state(lifecycle: str, retention: str, status: str | None) -> None:
    """A24-A34: what the states of an object mean."""
    assert status_of(lifecycle, retention) == status


@pytest.mark.parametrize(
    ("updated", "read", "days"), [(None, None, 10), (4, None, 6), (None, 7, 3), (8, 7, 2), (1, 7, 3)]
)
def test_clock_starts_at_the_latest_use(updated: int | None, read: int | None, days: int) -> None:
    """AY1: the latest of creation, update and read."""

    def at(day: int | None) -> str | None:
        return None if day is None else wire(START + timedelta(days=day))

    document = {"scoring": {"importance": 0.5, "confidence": 1.0, "decay_rate": 0.01}}
    made = Cell("mem", "amp:mem", "ver:1", 1, "active", wire(START), at(updated), None, document)
    found = decay_score(made, Usage(0, at(read)), START + timedelta(days=10))
    assert found == pytest.approx(score(Scoring(0.5, 1.0, 0.01), days))


def test_rank_of_a_search() -> None:
    """A18: a similarity below zero counts as none."""
    assert rank(1.0, 0.5) == pytest.approx(0.85)
    assert rank(-0.4, 0.5) == pytest.approx(0.15)


def test_ids_of_cells() -> None:
    """A2: ULIDs in capitals, in the order of time."""
    made = [cell_id(ms, bytes([255]) * 10) for ms in (0, 1, 1_700_000_000_000, (1 << 48) - 1)]
    assert made == sorted(made)
    assert all(cell_of(object_id(one) or "") == one for one in made)
    assert made[0] == "mem_0000000000ZZZZZZZZZZZZZZZZ"
    for bad in ("", "mem_", "mem_" + "a" * 26, made[0] + "\n", made[0] + "0", "MEM_" + "0" * 26, "mem_" + "é" * 26):
        assert object_id(bad) is None


@pytest.mark.parametrize(
    ("header", "actor", "may_assert", "names"),
    [
        ("alpha", "agent:alpha", False, {"alpha", "agent:alpha"}),
        ("agent:alpha", "agent:alpha", False, {"alpha", "agent:alpha"}),
        ("human:ada", "human:ada", False, {"human:ada"}),
        ("beta", "agent:alpha", True, {"beta", "agent:beta"}),
        ("beta", "agent:alpha", False, None),
        ("ada", "human:ada", False, None),
        ("human:ada", "agent:alpha", True, None),
        ("ALPHA", "agent:alpha", False, None),
        ("alpha ", "agent:alpha", False, None),
        ("bet\u00e4", "agent:alpha", True, None),
        ("a" * 300, "agent:alpha", True, None),
        ("", "agent:alpha", True, None),
        (None, "agent:alpha", True, None),
    ],
)
def test_agents_with_a_key(header: str | None, actor: str, may_assert: bool, names: set[str] | None) -> None:
    """A21: the header names the key's own actor, and another one only for who may act for others."""
    if names is None:
        with pytest.raises(AmpError) as refusal:
            keyed(header, actor, may_assert=may_assert)
        assert isinstance(refusal.value, Unauthenticated if header else MissingAgentId)
    else:
        assert keyed(header, actor, may_assert=may_assert).names == names


def test_agents_without_a_key() -> None:
    """A13: who is named by created_by alone is taken at its word; nobody is nobody."""
    assert unkeyed(None, "alpha", may_assert=False).name == "alpha"
    assert unkeyed("beta", "alpha", may_assert=True).asserted == "agent:beta"
    assert unkeyed("ein Agent", None, may_assert=True).asserted is None
    with pytest.raises(MissingAgentId):
        unkeyed(None, None, may_assert=True)


def test_every_refusal_of_an_operation_has_its_error() -> None:
    """A20: nothing but the listed codes, and what is hidden answers as what is missing."""
    codes = [kind.code for kind in TREE]
    assert len(codes) == 19
    hidden = set()
    for code in codes:
        if code == "internal_error":
            continue
        error = refused(409, {"code": code, "message": "SECRET", "details": {"object_id": "SECRET"}}, "3")
        assert b"SECRET" not in error.body(), code
        if code in ("object_not_found", "scope_not_found", "object_deleted", "object_redacted", "access_denied"):
            hidden.add(error.body())
    assert len(hidden) == 1
