"""Fusion, profiles, tie-breaks and explanations, and which requests of the ranked kinds are understood."""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pamspec_common.errors import EmbeddingSpaceMismatch, InvalidRequest
from pamspec_common.strict_json import parse
from pamspec_query.documents import Query, decode
from pamspec_query.model import carried
from pamspec_query.model.cursors import Cursor, Cursors
from pamspec_query.model.plan import Plan, plan
from pamspec_query.model.ranked import MAX_TEXT, Ranked
from pamspec_query.model.ranking import (
    MAX_RANKED,
    PROFILES,
    Candidate,
    Neighbours,
    Parameters,
    Rules,
    Standing,
    quality,
    ranked,
    recency,
    reranked,
)

NOW = datetime(2026, 3, 1, tzinfo=UTC)
RULES = Rules(PROFILES["relevance"], [True])


def found(sequence: int, age_days: float = 0.0, **scores: float) -> Candidate:
    return Candidate(sequence, [sequence], dict(scores), NOW - timedelta(days=age_days))


def order(candidates: list[Candidate], *modes: str, rules: Rules = RULES) -> list[int]:
    return [one.sequence for one in ranked(candidates, modes, rules)]


def test_lists_are_fused_by_where_a_score_lies_in_its_list() -> None:
    """What stands high in both lists beats what stands first in one, whatever the scales of the scores."""
    both = [found(1, lexical=40.0), found(2, lexical=39.0, vector=0.98), found(3, vector=0.99)]
    both += [found(4, lexical=10.0), found(5, vector=0.4)]
    assert order(both, "lexical", "vector") == [2, 3, 1, 5, 4]
    scaled = [replace(one, scores={mode: 7 * score - 3 for mode, score in one.scores.items()}) for one in both]
    assert order(scaled, "lexical", "vector") == order(both, "lexical", "vector")
    one = [found(1, lexical=1.0, vector=1.0)]
    assert ranked(one, ("lexical", "vector"), RULES)[0].score == 1.0, "best of every list is 1"


def test_a_score_far_ahead_of_the_others_counts_for_more_than_a_rank() -> None:
    ahead = [found(1, lexical=9.0, vector=0.1), found(2, lexical=2.0, vector=0.2), found(3, lexical=1.0, vector=0.0)]
    ahead += [found(4, vector=0.9)]
    assert order(ahead, "lexical", "vector")[0] == 1


def test_the_scores_of_one_list_are_relative_too() -> None:
    standings = ranked([found(1, vector=0.25), found(2, vector=0.75), found(3, vector=0.5)], ("vector",), RULES)
    assert [(one.sequence, one.score) for one in standings] == [(2, 1.0), (3, 0.5), (1, 0.0)]
    assert [one.score for one in ranked([found(1, vector=0.3), found(2, vector=0.3)], ("vector",), RULES)] == [1, 1]
    assert ranked([found(1, vector=0.3)], ("lexical", "vector"), RULES)[0].score == 0.5, "a list may be empty"


def test_the_order_does_not_depend_on_the_order_of_the_candidates() -> None:
    """P156: also where scores are equal, or differ by what floats lose."""
    candidates = [found(n, lexical=round(0.1 * (n % 3), 9) + n * 1e-12, vector=0.5) for n in range(30)]
    wanted = order(candidates, "lexical", "vector")
    for seed in range(20):
        random.Random(seed).shuffle(candidates)
        assert order(candidates, "lexical", "vector") == wanted
    tens = [n for n in wanted if n % 3 == 2]
    assert tens == sorted(tens, reverse=True), "equal scores: the newest first"


def test_ties_are_broken_by_the_keys_and_what_is_missing_comes_last() -> None:
    keyed = [Candidate(n, [name, n], {"vector": 0.5}) for n, name in enumerate(["b", None, "a", "b"], 1)]
    rules = Rules(PROFILES["relevance"], [False, True])
    assert order(keyed, "vector", rules=rules) == [3, 4, 1, 2]
    semantic = [found(1, lexical=2.0, vector=0.1), found(2, lexical=1.0, vector=0.9)]
    swapped = Parameters(weights={"lexical": 1.0, "vector": 0.0, "graph": 0.0})
    equal = [Candidate(n, [n], {"lexical": 1.0, "vector": v}) for n, v in ((1, 0.9), (2, 0.1))]
    assert order(semantic, "lexical", "vector", rules=Rules(PROFILES["relevance"], [True], parameters=swapped)) == [
        1,
        2,
    ]
    flat = Parameters(weights={"lexical": 1.0, "vector": 0.0})
    by_score = Rules(PROFILES["relevance"], [True], by_semantic_score=True, parameters=flat)
    assert order(equal, "lexical", "vector", rules=by_score) == [1, 2]
    assert order(equal, "lexical", "vector", rules=Rules(PROFILES["relevance"], [True], parameters=flat)) == [2, 1]


def test_profiles_weigh_signals_and_say_so() -> None:
    old, new, other = found(1, age_days=300, vector=0.9), found(2, vector=0.89), found(3, age_days=300, vector=0.1)
    assert order([old, new, other], "vector") == [1, 2, 3]
    rules = Rules(PROFILES["recent"], [True], explain=True, now=NOW)
    standings = ranked([old, new, other], ("vector",), rules, [Neighbours(1, 3, 2)])
    assert [one.sequence for one in standings] == [2, 1, 3]
    for standing in standings:
        told = standing.explanation
        assert told is not None
        signals = sum(one["contribution"] for one in told["signals"].values())
        assert abs(standing.score - (0.75 * (told["fused"] + told["context"]) + signals)) < 1e-5, (
            "an explanation adds up"
        )
    good, bad, unknown = (found(n, vector=0.5) for n in (1, 2, 3))
    good.quality, bad.quality = {"assessed_confidence": 1.0}, {"contradiction_score": 1.0}
    assert order([good, bad, unknown], "vector", rules=Rules(PROFILES["quality"], [False], now=NOW))[0] == 1


def test_signals_lie_between_0_and_1() -> None:
    assert recency(NOW, NOW, 30) == recency(NOW + timedelta(days=1), NOW, 30) == 1.0
    assert recency(NOW - timedelta(days=30), NOW, 30) == 0.5
    assert recency(None, NOW, 30) == 0.0
    assert (
        quality(None, 0.5)
        == quality({"last_verified_at": "x"}, 0.5)
        == quality({"evidence_strength": True}, 0.5)
        == 0.5
    )
    assert quality({"evidence_strength": 1, "staleness_score": 1}, 0.5) == 0.5
    assert quality({"staleness_score": 7}, 0.25) == 0.25, "what is out of range is no signal"


def test_explanations_name_each_list() -> None:
    rules = Rules(PROFILES["relevance"], [True], explain=True)
    standings = ranked([found(1, lexical=3.5, vector=0.2), found(2, vector=0.9)], ("lexical", "vector"), rules)
    told = {one.sequence: one.explanation for one in standings}
    assert told[2] == {
        "fused": 0.5,
        "context": 0.0,
        "lists": {"vector": {"contribution": 0.5, "rank": 1, "score": 0.9}},
    }
    assert told[1] is not None
    assert told[1]["lists"]["lexical"] == {"contribution": 0.5, "rank": 1, "score": 3.5}
    assert told[1]["lists"]["vector"]["rank"] == 2
    assert ranked([found(1, vector=1.0)], ("vector",), RULES)[0].explanation is None


def test_neighbours_of_a_session_lift_each_other() -> None:
    """Half of a neighbour's own, a quarter of one two places away, both ways; nothing of what is no candidate."""
    scores = {1: 1.0, 2: 0.6, 3: 0.2, 4: 0.0, 9: 0.5}
    pairs = [Neighbours(2, 3, 1), Neighbours(3, 4, 1), Neighbours(2, 4, 2), Neighbours(1, 7, 1), Neighbours(1, 9, 3)]
    rules = Rules(PROFILES["relevance"], [True], explain=True)
    standings = ranked([found(n, vector=score) for n, score in scores.items()], ("vector",), rules, pairs)
    told = {one.sequence: (one.score, (one.explanation or {})["context"]) for one in standings}
    assert told == {1: (1.0, 0.0), 2: (0.7, 0.1), 3: (0.5, 0.3), 4: (0.25, 0.25), 9: (0.5, 0.0)}
    assert [one.sequence for one in standings] == [1, 2, 9, 3, 4]
    without = Rules(PROFILES["relevance"], [True], parameters=Parameters(context_reach=1))
    assert {one.sequence: one.score for one in ranked(
        [found(n, vector=score) for n, score in scores.items()], ("vector",), without, pairs + pairs
    )} == {1: 1.0, 2: 0.7, 3: 0.5, 4: 0.1, 9: 0.5}, "a pair counts once"  # fmt: skip


def test_an_answer_is_bounded() -> None:
    assert len(ranked([found(n, vector=n / 1000) for n in range(2 * MAX_RANKED)], ("vector",), RULES)) == MAX_RANKED


def test_what_a_cursor_carries_fits_a_request() -> None:
    """An order that explains itself is cut rather than refused on its next page; a plain one is carried whole."""
    rules = Rules(PROFILES["balanced"], [True], explain=True, now=NOW)
    chance = random.Random(7)
    candidates = [found(n, age_days=n / 7, lexical=chance.random(), vector=chance.random()) for n in range(MAX_RANKED)]
    for explain in (True, False):
        standings = ranked(candidates, ("lexical", "vector"), replace(rules, explain=explain))
        after = carried.written(standings, {"watermark": 3})
        cursor = Cursors([b"k" * 32]).write(Cursor(1, MAX_RANKED, after), b"bound")
        assert len(cursor) < 16_384
        again, index = carried.read(Cursors([b"k" * 32]).read(cursor, b"bound").after)
        assert index == {"watermark": 3}
        assert again == standings[: len(again)]
        assert len(again) >= (100 if explain else MAX_RANKED)


def test_a_cursor_is_written_whatever_stands_beside_the_order() -> None:
    chance = random.Random(7)
    after = carried.written([Standing(1, 0.5), Standing(2, 0.25)], {"long": chance.randbytes(carried.MAX_PACKED)})
    assert carried.read(after)[0] == []


def test_a_reranker_orders_the_first_alone() -> None:
    rules = Rules(PROFILES["relevance"], [True], explain=True)
    standings = ranked([found(n, vector=1 - n / 10) for n in range(1, 6)], ("vector",), rules)
    again = reranked(standings, [0.1, 0.9, 0.1])
    assert [one.sequence for one in again] == [2, 1, 3, 4, 5], "equal scores keep their order"
    assert again[0].explanation is not None
    assert again[0].explanation["rerank"] == {"score": 0.9}
    assert again[3].explanation is not None
    assert "rerank" not in again[3].explanation


def asked(query: dict[str, Any], **more: Any) -> Plan:
    document = {"scope_id": "workspace:a", "query": query, **more}
    return plan(decode(Query, parse(json.dumps(document).encode())))


def looked_for(query: dict[str, Any], **more: Any) -> Ranked:
    found = asked(query, **more).ranked
    assert found is not None
    return found


SPACE = {"embedding_space_id": "space:1"}
LEXICAL: dict[str, Any] = {"kind": "hybrid", "text": "rain", "modes": ["lexical"]}


def test_kinds_have_their_modes() -> None:
    assert looked_for({"kind": "semantic", "text": "rain"}, **SPACE).modes == ("vector",)
    assert looked_for({"kind": "semantic", "text": "rain"}, **SPACE).needs_embedding
    assert not looked_for({"kind": "semantic", "vector": [1, -2.5e-3]}, **SPACE).needs_embedding
    assert looked_for({"kind": "semantic", "vector": [1, -2.5e-3]}, **SPACE).vector == [1.0, -0.0025]
    assert looked_for({"kind": "hybrid", "text": "rain"}, **SPACE).modes == ("lexical", "vector")
    assert looked_for(LEXICAL).modes == ("lexical",)
    both = {"kind": "hybrid", "text": "rain", "vector": [1.0]}
    assert not looked_for(both, **SPACE).needs_embedding
    assert asked({"kind": "structured"}).ranked is None


def test_long_texts_are_clamped() -> None:
    """M054."""
    found = looked_for({**LEXICAL, "text": "rain " * 40_000})
    assert (found.text_clamped, len(found.text or "")) == (True, MAX_TEXT)
    assert not looked_for({**LEXICAL, "text": "x" * MAX_TEXT}).text_clamped


@pytest.mark.parametrize(
    "query",
    [
        {"kind": "semantic", "text": "rain"},
        {"kind": "hybrid", "text": "rain"},
        {"kind": "hybrid", "text": "rain", "modes": ["lexical", "vector"]},
        {"kind": "hybrid", "modes": ["lexical"]},
        {"kind": "hybrid", "text": " \n", "modes": ["lexical"]},
        {"kind": "hybrid", "text": "rain", "modes": []},
        {"kind": "hybrid", "text": "rain", "modes": ["lexical", "lexical"]},
        {"kind": "hybrid", "text": "rain", "modes": ["keyword"]},
        {"kind": "hybrid", "text": "rain", "modes": ["lexical", "graph"]},
        {"kind": "hybrid", "text": "rain", "modes": ["lexical"], "vector": [1.0]},
        {"kind": "hybrid", "text": {"$ne": None}, "modes": ["lexical"]},
        {"kind": "structured", "text": "rain"},
        {"kind": "temporal", "temporal_basis": "observed_at", "vector": [1.0]},
        {**LEXICAL, "range": {"from": "2026-01-01T00:00:00Z"}},
    ],
)
def test_what_makes_no_sense_is_invalid(query: dict[str, Any]) -> None:
    """P123, S25, M016."""
    with pytest.raises(InvalidRequest):
        asked(query)


@pytest.mark.parametrize(
    "more",
    [
        {**SPACE},
        {"ordering": {"by": [{"field": "sequence"}]}},
        {"ordering": {"tie_break": ["nothing"]}},
        {"ordering": {"tie_break": ["provenance.source_ref"]}},
        {"ordering": {"profile": "newest"}},
        {"count": "exact"},
    ],
)
def test_members_that_do_not_fit_are_invalid(more: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        asked(LEXICAL, **more)


@pytest.mark.parametrize("more", [{"explain_ranking": True}, {"rerank": True}, {"ordering": {"profile": "recent"}}])
def test_unranked_kinds_take_nothing_of_it(more: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        asked({"kind": "structured"}, **more)
    with pytest.raises(EmbeddingSpaceMismatch):
        asked({"kind": "structured"}, **SPACE)


@pytest.mark.parametrize("vector", [[], [None], ["1"], [True], [[1.0]], [1.0] * 16_001, [10**400]])
def test_a_vector_is_finite_numbers(vector: list[Any]) -> None:
    with pytest.raises(InvalidRequest):
        asked({"kind": "semantic", "vector": vector}, **SPACE)


def test_tie_breaks_of_the_draft() -> None:
    """The draft's own example names its semantic score, then ids."""
    names = ["semantic_score", "object_id", "version_id"]
    found = looked_for({"kind": "semantic", "text": "x"}, **SPACE, ordering={"tie_break": names})
    assert found.by_semantic_score
    assert found.said == ("score", "semantic_score", "object_id")
    assert [key.field.name for key in found.tie_break] == ["object_id"]
    assert looked_for(LEXICAL).said == ("score", "ledger_sequence")
    for two in itertools.permutations(["object_type", "observed_at"]):
        keys = looked_for(LEXICAL, ordering={"tie_break": list(two)}).tie_break
        assert [key.field.name for key in keys] == [*two, "ledger_sequence"]


def test_times_narrow_ranked_kinds_too() -> None:
    """P121."""
    span = asked({**LEXICAL, "temporal_basis": "observed_at", "range": {"from": "2026-01-01T00:00:00Z"}}).span
    assert span is not None
    assert span.basis == "observed_at"
    assert asked({**LEXICAL, "as_of": {"valid_at": "2026-01-01T00:00:00Z"}}).valid_at is not None
