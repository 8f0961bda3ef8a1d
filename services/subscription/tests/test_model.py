"""The pure rules: cursors, acknowledgements, windows, frames."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pamspec_common import contracts
from pamspec_common.errors import InvalidRequest
from pamspec_subscription import frames
from pamspec_subscription.model import MAX_AHEAD, AckWindow, Head, ahead_of, check_position, contiguous

HEAD = Head(100, 3, (1, 1))


@pytest.mark.parametrize(
    ("matching", "acked", "reached"),
    [
        ([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], {1, 2, 3, 4, 5, 7, 8, 9, 10}, 5),
        ([1, 2, 3], {1, 2, 3}, 10),
        ([], set(), 10),
        ([2, 5, 9], {2, 5}, 8),
        ([2, 5, 9], {5, 9}, 1),
        ([1], set(), 0),
    ],
)
def test_the_cursor_is_the_highest_contiguous_position(matching: list[int], acked: set[int], reached: int) -> None:
    """B52, S11."""
    assert contiguous(0, 10, matching, acked) == reached


@given(st.sets(st.integers(1, 40)), st.sets(st.integers(1, 40)), st.integers(0, 40))
def test_nothing_before_the_cursor_is_missing_and_the_next_one_is(
    matching: set[int], acked: set[int], cursor: int
) -> None:
    beyond = sorted(sequence for sequence in matching if sequence > cursor)
    reached = contiguous(cursor, 40, beyond, acked)
    assert reached >= cursor
    assert all(sequence in acked for sequence in beyond if sequence <= reached)
    assert reached == 40 or reached + 1 in matching - acked


def test_single_acknowledgements_wait_in_order_and_within_a_bound() -> None:
    assert ahead_of(5, [9, 3, 7, 7, 5]) == [7, 9]
    assert len(ahead_of(0, range(1, MAX_AHEAD + 1))) == MAX_AHEAD
    with pytest.raises(InvalidRequest) as refused:
        ahead_of(0, range(1, MAX_AHEAD + 2))
    assert refused.value.details == {"limit": MAX_AHEAD, "next_after_sequence": 0}


@pytest.mark.parametrize(("sequence", "epoch"), [(0, None), (100, None), (100, 3)])
def test_positions_of_the_ledger_pass(sequence: int, epoch: int | None) -> None:
    check_position(sequence, epoch, HEAD, 50)


@pytest.mark.parametrize(
    ("sequence", "epoch", "reason"),
    [
        (101, None, "position_future"),
        (101, 3, "position_future"),
        (5, 4, "position_future"),
        (5, 2, "position_outdated"),
        (500, 2, "position_outdated"),
    ],
)
def test_other_positions_say_where_to_go_on(sequence: int, epoch: int | None, reason: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_position(sequence, epoch, HEAD, 50)
    assert refused.value.details == {"reason": reason, "ledger_epoch": 3, "head_sequence": 100, "resume_after": 50}


def test_a_window_counts_what_is_out() -> None:
    window = AckWindow(3)
    window.sent([1, 2, 5])
    assert window.room() == 0
    window.acknowledged(0, [2])
    assert window.room() == 1
    window.acknowledged(2, [])
    assert (window.room(), list(window.outstanding)) == (2, [5])


def test_frames_keep_their_contract() -> None:
    event = orjson.dumps(
        {
            "event_id": "evt:1",
            "operation_id": "op:1",
            "scope_id": "workspace:1",
            "event_type": "object_created",
            "object_id": "obj:1",
            "version_id": "ver:1",
            "recorded_at": "2026-03-01T09:00:00.000000Z",
            "sequence": 7,
            "actor": {"actor_id": "agent:1", "actor_kind": "agent"},
        }
    )
    for data in (
        frames.event_frame(event, 6, 2),
        frames.progress_frame(7, 2).data,
        frames.ended_frame("too_slow", 7, 2).data,
        frames.closed_frame("unacknowledged", 7, 2).data,
    ):
        contracts.check("frame", orjson.loads(data))
    assert frames.event_frame(event, 6, 2, b'{"a":1}').startswith(b'{"envelope":{"a":1},"event":{')
    page = orjson.loads(frames.poll_page([event, event], 8, 2, None, {"ver:1": b"{}"}))
    assert (len(page["events"]), page["next_after_sequence"], page["envelopes"]) == (2, 8, {"ver:1": {}})
