"""Transition, relate and promote in process: what each version costs, beside what a create costs.

The floor is the create of figure 1 on the same hot scope, in turns; promote writes three versions, so its rate counts
three times.
"""

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import orjson

from pamspec_cli.bench.create_inprocess import CONCURRENT, SECONDS, Writer, writing
from pamspec_cli.bench.environment import Environment
from pamspec_cli.bench.figures import Figure, Run, at_least, in_turns
from pamspec_cli.bench.scopes import create_scopes
from pamspec_common.calls import Call
from pamspec_common.peers import LocalPeer

OBJECTS = 2000
PROMOTIONS = 2000
TIMES_THE_COST = 1.3
_ITEMS = 500
_PROVENANCE = {"activity": "conversation_import", "source_ref": "conversation:bench/session_3/D3:7"}
_PLAN = {"task_ref": "task:bench", "content": {"steps": ["gather", "draft", "review"]}}

Body = Callable[[], tuple[bytes, Callable[[bytes], None]] | None]
"""The next request and what to do with its answer; None when there is no more."""


class Operations:
    """Rounds of operations on one scope."""

    def __init__(self, environment: Environment, writer: Writer, scope_id: str) -> None:
        self._peer, self._token = LocalPeer(writer.service), environment.principal()
        self._scope_id, self._numbers = scope_id, itertools.count()

    async def per_second(self, operation: str, body: Body, seconds: float) -> float:
        """Operations per second by 64 callers, until the time is up or there is nothing left to do."""
        done = 0

        async def work(until: float) -> None:
            nonlocal done
            while time.perf_counter() < until and (found := body()) is not None:
                request, learn = found
                answer = await self._peer.call(Call(operation, self._token, request))
                if answer.status not in (200, 201):
                    raise RuntimeError(f"{operation} answered {answer.status}: {answer.body[:300]!r}")
                learn(answer.body)
                done += 1

        started = time.perf_counter()
        await asyncio.gather(*(work(started + seconds) for _ in range(CONCURRENT)))
        return done / (time.perf_counter() - started)

    async def objects(self, count: int, object_type: str, content: Any) -> list[tuple[str, str]]:
        """New objects of the scope: ids and versions."""
        item = {"operation": "create", "object_type": object_type, "canonical_content": content}
        made: list[tuple[str, str]] = []
        while len(made) < count:
            items = [item | {"provenance": _PROVENANCE}] * min(_ITEMS, count - len(made))
            body = orjson.dumps({"scope_id": self._scope_id, "items": items})
            answer = await self._peer.call(Call("batch", self._token, body))
            results = orjson.loads(answer.body)["results"]
            made += [(result["object_id"], result["version_id"]) for result in results]
        return made

    def transitions(self, objects: Sequence[tuple[str, str]]) -> Body:
        """Objects one after the other, to and fro between corroborated and disputed."""
        waiting = deque((object_id, version_id, "corroborated") for object_id, version_id in objects)
        following = {"corroborated": "disputed", "disputed": "corroborated"}

        def body() -> tuple[bytes, Callable[[bytes], None]]:
            object_id, version_id, state = waiting.popleft()
            change = {"object_id": object_id, "expected_version_id": version_id, "target_state": state}
            more = {"dimension": "validation", "policy_basis": "bench", "provenance": _PROVENANCE}

            def learn(answer: bytes) -> None:
                waiting.append((object_id, orjson.loads(answer)["version_id"], following[state]))

            return self._named(change | more), learn

        return body

    def relations(self, objects: Sequence[tuple[str, str]]) -> Body:
        """Every pair of objects once."""
        pairs: Iterator[tuple[str, str]] = (
            (source, objects[(number + step) % len(objects)][0])
            for step in itertools.count(1)
            for number, (source, _) in enumerate(objects)
        )

        def body() -> tuple[bytes, Callable[[bytes], None]]:
            source, target = next(pairs)
            ends = {"source_object_id": source, "target_object_id": target, "relationship_type": "supports"}
            more = {"directionality": "directed", "canonical_content": {"weight": 0.75}, "provenance": _PROVENANCE}
            return self._named(ends | more), _ignore

        return body

    def promotions(self, memories: Sequence[tuple[str, str]]) -> Body:
        """Each working memory once."""
        waiting = iter(memories)

        def body() -> tuple[bytes, Callable[[bytes], None]] | None:
            found = next(waiting, None)
            if found is None:
                return None
            change = {"source_object_id": found[0], "expected_version_id": found[1], "provenance": _PROVENANCE}
            more = {"target_object_type": "decision", "target_canonical_content": _PLAN}
            return self._named(change | more), _ignore

        return body

    def _named(self, document: dict[str, Any]) -> bytes:
        named = {"scope_id": self._scope_id, "idempotency_key": f"bench-{next(self._numbers):012d}"}
        return orjson.dumps(named | document)


def _ignore(answer: bytes) -> None:
    return None


async def operations(environment: Environment) -> Sequence[Figure]:
    """Each at most 1.3 times as dear as a create, per version written."""
    async with writing(environment) as writer:
        scopes = list(await create_scopes(environment, writer.service, "operations", 1))
        measured = Operations(environment, writer, scopes[0])
        objects = await measured.objects(OBJECTS, "observation", {"text": "a turn", "weight": 0.75})

        async def creates() -> float:
            return await writer.creates_per_second(scopes, SECONDS)

        moves, joins = measured.transitions(objects), measured.relations(objects)

        async def transitions() -> float:
            return await measured.per_second("transition", moves, SECONDS)

        async def relations() -> float:
            return await measured.per_second("relate", joins, SECONDS)

        async def promotions() -> float:
            memories = await measured.objects(PROMOTIONS, "working_memory", _PLAN)
            return 3 * await measured.per_second("promote", measured.promotions(memories), SECONDS)

        await creates()
        return [
            await _beside(name, run, creates)
            for name, run in (("ops.transition", transitions), ("ops.relate", relations), ("ops.promote", promotions))
        ]


async def _beside(name: str, run: Run, creates: Run) -> Figure:
    await run()
    rate, floor = await in_turns(run, creates)
    return at_least(name, rate, "versions/s", floor, 1 / TIMES_THE_COST, note="64 callers; floor: creates")
