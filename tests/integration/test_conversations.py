"""Real conversations go in while every part of the way is killed once; nothing is lost, doubled or out of order."""

import asyncio
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from pamspec_cli.demo.conversations import Conversation, read_folder, sample
from pamspec_cli.demo.observations import observation
from pamspec_client.requests import CreateRequest
from tests.integration.checks import whole
from tests.integration.harness import Fleet
from tests.integration.load import Load, expect_acknowledged, followed, under_load

WRITERS = 8
PER_SECOND = 100.0
AT_LEAST_S = 12.0
"""A small input is written more slowly, so that every kill comes in the middle of it."""
AWAY_S = 1.0


def conversations() -> list[Conversation]:
    """Those of the folder PAMSPEC_CONVERSATIONS; unset: the sample that comes with the product."""
    folder = os.environ.get("PAMSPEC_CONVERSATIONS")
    return read_folder(Path(folder)) if folder else sample()


def turn_by_turn(every: Sequence[Conversation]) -> Iterator[CreateRequest]:
    """The turns of all conversations, one of each in turn, in their order."""
    waiting = [iter(conversation.turns) for conversation in every]
    while waiting:
        for turns in list(waiting):
            turn = next(turns, None)
            if turn is None:
                waiting.remove(turns)
            else:
                yield observation(turn)


@pytest.mark.timeout(300)
async def test_everything_acknowledged_arrives_everywhere_once_though_each_part_is_killed(plain_fleet: Fleet) -> None:
    fleet, told = plain_fleet, conversations()
    total = sum(len(conversation.turns) for conversation in told)
    client = fleet.client()
    for conversation in told:
        await client.create_scope(scope_id=conversation.scope_id, scope_kind="conversation")
    scopes = [conversation.scope_id for conversation in told]
    load = Load([client], turn_by_turn(told), writers=WRITERS, per_second=min(PER_SECOND, total / AT_LEAST_S))
    async with followed(lambda _: client, scopes, ("poll", "sse", "nats")) as followers:
        async with under_load(load, warm=1, to_end=True):
            for fifth, part in enumerate(("write", "relay", "subscription"), start=1):
                await load.reached(total * fifth // 5)
                fleet.kill(part)
                await asyncio.sleep(AWAY_S)
                await fleet[part].start()
            await load.reached(total * 4 // 5)
            await fleet.restart_nats(pause_s=AWAY_S)
        assert load.done == total
        found = await whole(fleet)
        await followers.caught_up(load)
    expect_acknowledged(load, found)
    followers.expect(found)
    assert sum(follower.reconnects for follower in followers.all) > 0, "nobody noticed that a part was killed"
