"""The arithmetic of recall, the ranking that it is compared with, and the questions of our own sample."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pamspec_cli.bench import finding_rows, table
from pamspec_cli.bench.bm25 import Bm25
from pamspec_cli.bench.recall import NAMES, Answered, by_bm25, figures, mean_recall
from pamspec_cli.commands.bench import chosen_conversations
from pamspec_cli.connection import Misused
from pamspec_cli.demo.conversations import Question, parse, sample


def answered(found: list[str], *evidence: str, conversation: str = "x") -> Answered:
    return Answered(conversation, Question("?", frozenset(evidence)), found)


def test_recall_is_the_share_of_the_evidence_among_the_first() -> None:
    assert answered(["a", "b", "c"], "b", "c").recall(2) == 0.5
    assert answered([], "b").recall(10) == 0.0
    assert mean_recall([answered(["a"], "a"), answered(["b"], "a", "b")], 1) == 0.75
    with pytest.raises(ValueError, match="no question"):
        mean_recall([], 10)


def test_a_mode_that_is_short_of_its_aim_says_so() -> None:
    right, wrong = [answered(["a"], "a")], [answered(["b"], "a")]
    lines = {one.name: one for one in figures({"lexical": right, "semantic": wrong, "hybrid": wrong}, right)}
    assert set(lines) == set(NAMES)
    assert {name for name, line in lines.items() if not line.ok} == {"recall.hybrid_10", "recall.hybrid_20"}
    assert (lines["recall.lexical_10"].value, lines["recall.lexical_10"].floor) == (1.0, 1.0)
    below = {one.name: one.ok for one in figures({"lexical": wrong}, right)}
    assert below == {"recall.lexical_10": False, "recall.lexical_20": False}


def test_bm25_ranks_by_rare_words_their_number_and_the_length() -> None:
    ranked = Bm25(["Boats in the harbour", "A boat, a boat and boating", "The pilot of the harbour sleeps", "nothing"])
    assert ranked.best("Which boats?", 10) == [1, 0]
    assert ranked.best("harbour pilot", 10) == [2, 0]
    assert ranked.best("harbour pilot", 1) == [2]
    assert ranked.best("the and of", 10) == []


def test_questions_of_a_file_are_those_that_turns_answer() -> None:
    document = {
        "session_1": [{"speaker": "A", "dia_id": f"D1:{n}", "text": "x"} for n in range(1, 4)],
        "session_1_date_time": "1:56 pm on 8 May, 2023",
        "qa": [
            {"question": "two in one text", "evidence": ["D1:1; D1:3"], "category": 1},
            {"question": "one is no turn", "evidence": ["D1:2", "D9:9"], "category": 4},
            {"question": "none is a turn", "evidence": ["D9:9"], "category": 4},
            {"question": "no evidence", "evidence": [], "category": 3},
            {"question": "no answer", "evidence": ["D1:1"], "category": 5},
        ],
    }
    found = parse("x", json.dumps(document)).questions
    assert [(one.text, set(one.evidence)) for one in found] == [
        ("two in one text", {"D1:1", "D1:3"}),
        ("one is no turn", {"D1:2"}),
    ]


def test_our_own_sample_has_questions_that_words_alone_do_not_answer() -> None:
    told = sample()
    assert [len(one.questions) for one in told] == [13, 12]
    assert mean_recall(by_bm25(told), 1) < 0.5 < mean_recall(by_bm25(told), 10) < 1.0


def test_conversations_are_chosen_by_name(tmp_path: Path) -> None:
    assert [one.name for one in chosen_conversations(None, [])] == ["garden", "harbour"]
    assert [one.name for one in chosen_conversations(None, ["harbour"])] == ["harbour"]
    with pytest.raises(Misused, match="no conversation forest; there are garden, harbour"):
        chosen_conversations(None, ["forest"])
    with pytest.raises(Misused, match="no conversations in"):
        chosen_conversations(tmp_path, [])


def test_recall_is_measured_with_everything_else() -> None:
    (group,) = table.chosen(["recall"])
    assert group.names == NAMES
    assert group in table.chosen([])


def test_what_is_looked_for_at_scale_is_the_same_in_every_run() -> None:
    assert finding_rows.observation(41) == finding_rows.observation(41)
    assert finding_rows.observation(41)[1] == "bench:finding/session_2#1"
    assert set(finding_rows.question(41).split()) <= set(finding_rows.said(41))
    one, near, far = finding_rows.vector(41), finding_rows.vector(100_041, near=41), finding_rows.vector(999)
    assert sum(value * value for value in one) == pytest.approx(1.0)
    assert sum(a * b for a, b in zip(one, near, strict=True)) > sum(a * b for a, b in zip(one, far, strict=True))
