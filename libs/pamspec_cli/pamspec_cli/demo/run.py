"""The course of the demonstration: scopes, followers, writers, comparison, and a summary."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pamspec_cli.demo.conversations import Conversation, Turn
from pamspec_cli.demo.following import Acknowledged, Follower, Shown, Verdict
from pamspec_cli.demo.observations import observation
from pamspec_client import AsyncClient, ClientError
from pamspec_client.documents import FollowChannel

CATCH_UP_S = 60.0
Progress = Callable[[int, int], None]


@dataclass
class Summary:
    """What was written, and what each follower received."""

    conversations: int
    turns: int
    acknowledged: dict[str, list[Acknowledged]] = field(default_factory=dict)
    replayed: int = 0
    seconds: float = 0.0
    verdicts: list[Verdict] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Every turn acknowledged, every follower right."""
        written = sum(map(len, self.acknowledged.values()))
        return written == self.turns and all(verdict.ok for verdict in self.verdicts)

    def document(self) -> dict[str, Any]:
        """The summary as JSON."""
        written = sum(map(len, self.acknowledged.values()))
        return {
            "conversations": self.conversations,
            "turns": self.turns,
            "acknowledged": written,
            "replayed": self.replayed,
            "seconds": round(self.seconds, 3),
            "acknowledged_per_second": round(written / self.seconds, 1) if self.seconds else None,
            "followers": [{**asdict(verdict), "ok": verdict.ok} for verdict in self.verdicts],
            "ok": self.ok,
        }


class Pace:
    """Starts at most so many writes per second, together; 0 knows no bound."""

    def __init__(self, per_second: float) -> None:
        self._gap = 1.0 / per_second if per_second else 0.0
        self._next = 0.0

    async def wait(self) -> None:
        """Until the next write may start."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        at = max(self._next, now)
        self._next = at + self._gap
        if at > now:
            await asyncio.sleep(at - now)


async def demonstrate(
    client: AsyncClient,
    conversations: Sequence[Conversation],
    channels: Sequence[FollowChannel],
    *,
    writers: int = 8,
    per_second: float = 100.0,
    catch_up_s: float = CATCH_UP_S,
    shown: Shown = lambda follower, event: None,
    progress: Progress = lambda done, total: None,
) -> Summary:
    """Write all turns while every scope is followed over every channel, then compare."""
    summary = Summary(len(conversations), sum(len(conversation.turns) for conversation in conversations))
    followers = [Follower(conversation.scope_id, channel) for conversation in conversations for channel in channels]
    for conversation in conversations:
        await client.create_scope(scope_id=conversation.scope_id, scope_kind="conversation")
        summary.acknowledged[conversation.scope_id] = []
    for follower in followers:
        await follower.open(client)
    running = [asyncio.create_task(follower.run(client, shown)) for follower in followers]
    try:
        started = time.monotonic()
        await _write(client, conversations, summary, writers, Pace(per_second), progress)
        summary.seconds = time.monotonic() - started
        await _caught_up(followers, running, summary, catch_up_s)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        with contextlib.suppress(ClientError):
            for follower in followers:
                await client.unsubscribe(subscription_id=follower.subscription_id)
    summary.verdicts = [follower.verdict(summary.acknowledged[follower.scope_id]) for follower in followers]
    return summary


async def _caught_up(
    followers: Sequence[Follower], running: Sequence[asyncio.Task[None]], summary: Summary, within_s: float
) -> None:
    """Wait for every follower; one that failed raises what it failed with."""
    waits = [
        asyncio.create_task(follower.has(summary.acknowledged[follower.scope_id], within_s)) for follower in followers
    ]
    whole = asyncio.gather(*waits)
    watched: list[asyncio.Future[Any]] = [whole, *running]
    try:
        await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
        for task in running:
            if task.done():
                task.result()
        await whole
    finally:
        whole.cancel()
        await asyncio.gather(whole, return_exceptions=True)


async def _write(
    client: AsyncClient,
    conversations: Sequence[Conversation],
    summary: Summary,
    writers: int,
    pace: Pace,
    progress: Progress,
) -> None:
    """Each conversation in its order, several of them at once."""
    waiting = list(reversed(conversations))
    done = 0

    async def work() -> None:
        nonlocal done
        while waiting:
            for turn in waiting.pop().turns:
                await pace.wait()
                await _store(client, turn, summary)
                done += 1
                progress(done, summary.turns)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(writers, len(conversations))):
            group.create_task(work())


async def _store(client: AsyncClient, turn: Turn, summary: Summary) -> None:
    outcome = await client.create(**observation(turn))
    summary.replayed += outcome.replayed
    summary.acknowledged[turn.scope_id].append(Acknowledged(outcome.event_id, outcome.ledger_sequence))
