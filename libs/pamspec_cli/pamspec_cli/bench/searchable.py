"""Figures of finding while writing: how soon what was written is found, and how soon what was deleted is not.

200 creates a second go in over HTTP, each with a word of its own. Of every tenth the word is asked for from the
acknowledgement on, until the answer has it; then the object is deleted, and asked for until the answer has it no more.
A time ends with the answer that shows it, so the question itself counts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pamspec_cli.bench.bodies import TEXT
from pamspec_cli.bench.environment import Environment
from pamspec_cli.bench.figures import Figure, percentile
from pamspec_cli.bench.generator import LoadFailed
from pamspec_client import AsyncClient
from pamspec_client.models.objects import Outcome

PER_SECOND = 200
SECONDS = 20
WARM_S = 3
EVERY = 10
"""Of so many creates one is looked for."""
SCOPE = "bench:searchable"
WITHIN_S = 30.0
P50_MS, P99_MS = 50.0, 500.0
NAMES = ("find.searchable_p50", "find.searchable_p99", "find.absent_p99")
_PAUSE_S = 0.002


@dataclass
class Seen:
    """Milliseconds from an acknowledgement to the answer that shows it."""

    found: list[float] = field(default_factory=list)
    absent: list[float] = field(default_factory=list)
    late: int = 0
    """Creates that began later than planned: the load was less than it should be."""


async def searchable(environment: Environment) -> Sequence[Figure]:
    """From acknowledged to found, and from deleted to absent, at 200 creates a second."""
    async with environment.product() as product, environment.client(product) as client:
        await client.create_scope(scope_id=SCOPE, scope_kind="bench")
        await _load(client, 0, WARM_S * PER_SECOND, Seen())
        seen = Seen()
        await _load(client, WARM_S * PER_SECOND, SECONDS * PER_SECOND, seen)
    count = f"{len(seen.found)} looked for among {PER_SECOND} creates/s; {seen.late} of the creates began late"
    return [
        _figure("find.searchable_p50", percentile(seen.found, 0.5), P50_MS, count),
        _figure("find.searchable_p99", percentile(seen.found, 0.99), P99_MS, count),
        _figure("find.absent_p99", percentile(seen.absent, 0.99), P99_MS, f"{len(seen.absent)} deleted meanwhile"),
    ]


def _figure(name: str, value: float, most: float, note: str) -> Figure:
    return Figure(name, value, "ms", None, None, f"<= {most:g} ms", value <= most, note=note)


async def _load(client: AsyncClient, first: int, count: int, seen: Seen) -> None:
    """Creates at their pace, whatever each takes."""
    started = time.perf_counter()
    try:
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                due = started + number / PER_SECOND
                wait = due - time.perf_counter()
                if wait > 0:
                    await asyncio.sleep(wait)
                seen.late += wait < -1 / PER_SECOND
                group.create_task(_one(client, first + number, seen))
    except* TimeoutError:
        raise LoadFailed(f"something was not found, or still found, {WITHIN_S:g} s after its acknowledgement") from None


async def _one(client: AsyncClient, number: int, seen: Seen) -> None:
    word = "q" + "".join(chr(ord("a") + int(digit)) for digit in f"{number:07d}") + "x"
    made = await client.create(
        scope_id=SCOPE,
        object_type="observation",
        canonical_content={"speaker": "Imani", "text": f"{TEXT} {word}"},
        provenance={"activity": "bench", "source_ref": f"bench:searchable/{number // 20}#{number}"},
    )
    if number % EVERY:
        return
    seen.found.append(await _until(client, word, lambda found: found == [made.object_id]))
    await _delete(client, made)
    seen.absent.append(await _until(client, word, lambda found: found == []))


async def _delete(client: AsyncClient, made: Outcome) -> None:
    await client.delete(
        scope_id=SCOPE, object_id=str(made.object_id), expected_version_id=made.version_id, policy_basis="bench"
    )


async def _until(client: AsyncClient, word: str, shows: Callable[[list[str]], bool]) -> float:
    """Milliseconds from now to the answer that shows what was done; TimeoutError when none does."""
    started = time.perf_counter()
    async with asyncio.timeout(WITHIN_S):
        while True:
            page = await client.query(
                scope_id=SCOPE,
                query={"kind": "hybrid", "modes": ["lexical"], "text": word, "trust": "all"},
                fields=["object_id"],
                limit=10,
            )
            if shows([str((item.projection or {})["object_id"]) for item in page.items]):
                return (time.perf_counter() - started) * 1000
            await asyncio.sleep(_PAUSE_S)
