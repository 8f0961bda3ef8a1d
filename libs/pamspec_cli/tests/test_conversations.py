"""Conversations as input: every turn, in order, with what the observation says of it."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pamspec_cli.demo.conversations import NoConversation, parse, read_folder, sample
from pamspec_cli.demo.following import Acknowledged, Follower
from pamspec_cli.demo.observations import observation


def test_our_own_sample_is_two_conversations_of_twenty_turns() -> None:
    assert [(conversation.name, len(conversation.turns)) for conversation in sample()] == [
        ("garden", 20),
        ("harbour", 20),
    ]


def test_a_turn_becomes_an_observation_with_valid_time_and_provenance() -> None:
    turn = sample()[0].turns[2]
    request = observation(turn)
    assert request == {
        "scope_id": "conversation:garden",
        "object_type": "observation",
        "canonical_content": {
            "speaker": "Noor",
            "text": "Twelve metres by nine, and the tap still works. I tried it yesterday.",
            "caption": "a rusty garden tap beside a brick wall",
        },
        "valid_from": datetime(2025, 3, 3, 9, 12, tzinfo=UTC),
        "observed_at": datetime(2025, 3, 3, 9, 12, tzinfo=UTC),
        "provenance": {"activity": "conversation_import", "source_ref": "conversation:garden/session_1#D1:3"},
        "idempotency_key": "conversation:garden/D1:3",
    }


def test_keys_are_unique_and_sessions_come_in_the_order_of_their_numbers() -> None:
    document: dict[str, object] = {
        f"session_{n}": [{"speaker": "A", "dia_id": f"D{n}:1", "text": str(n)}] for n in (10, 2, 1)
    }
    document |= {f"session_{n}_date_time": "12:06 am on 11 November, 2022" for n in (10, 2, 1)}
    turns = parse("many words/and signs", json.dumps(document)).turns
    assert [turn.text for turn in turns] == ["1", "2", "10"]
    assert turns[0].scope_id == "conversation:many-words-and-signs"
    assert turns[0].at == datetime(2022, 11, 11, 0, 6, tzinfo=UTC)
    assert len({turn.key for turn in turns}) == 3


def test_the_clean_text_counts_where_there_is_one() -> None:
    document = {
        "session_1": [{"speaker": "A", "dia_id": "D1:1", "text": "raw", "clean_text": "clean"}],
        "session_1_date_time": "1:56 pm on 8 May, 2023",
    }
    assert parse("x", json.dumps(document)).turns[0].text == "clean"


@pytest.mark.parametrize(
    "text",
    [
        "no json",
        "[]",
        "{}",
        '{"session_1": [{"speaker": "A"}], "session_1_date_time": "1:56 pm on 8 May, 2023"}',
        '{"session_1": [{"speaker": "A", "dia_id": "D1:1", "text": "x"}], "session_1_date_time": "yesterday"}',
        '{"session_1": [{"speaker": "A", "dia_id": "D1:1", "text": "x"}]}',
    ],
)
def test_what_is_no_conversation_is_named(text: str) -> None:
    with pytest.raises(NoConversation, match="broken"):
        parse("broken", text)


def test_an_empty_or_missing_folder_is_named(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(NoConversation, match=str(folder)):
            read_folder(folder)


def verdict_of(received: list[tuple[str, int]]) -> tuple[bool, int, int, int, int]:
    follower = Follower("conversation:x", "poll", received=received)
    found = follower.verdict([Acknowledged("evt:1", 1), Acknowledged("evt:2", 2), Acknowledged("evt:3", 3)])
    return found.ok, len(found.missing), found.repeated, found.out_of_order, found.others


def test_a_follower_is_right_only_with_every_event_once_and_in_order() -> None:
    whole = [("evt:1", 1), ("evt:2", 2), ("evt:3", 3)]
    assert verdict_of(whole) == (True, 0, 0, 0, 0)
    assert verdict_of(whole[:2]) == (False, 1, 0, 0, 0)
    assert verdict_of([*whole, ("evt:3", 3)]) == (False, 0, 1, 1, 0)
    assert verdict_of([whole[1], whole[0], whole[2]]) == (False, 0, 0, 1, 0)
    assert verdict_of([*whole, ("evt:4", 4)]) == (True, 0, 0, 0, 1)
