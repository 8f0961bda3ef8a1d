"""Random histories over two processes: the ledger, the versions and every repetition agree with what was answered."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import dataclass, field

import pytest

from pamspec_common.calls import HEADER_LEDGER_SEQUENCE, Answer
from services.write.tests.writer import PROVENANCE, Document, Writer, claim


@dataclass
class History:
    """What clients know: the newest answer of each object, and every request that can be repeated."""

    writers: tuple[Writer, Writer]
    scopes: list[str]
    random: random.Random
    heads: dict[tuple[str, str], Document] = field(default_factory=dict)
    superseded: dict[tuple[str, str], int] = field(default_factory=dict)
    gone: set[tuple[str, str]] = field(default_factory=set)
    sent: list[tuple[str, Document, str, Answer]] = field(default_factory=list)

    def request(self) -> tuple[str, Document]:
        """Any request that a client might send now, stale ones included."""
        choice = self.random.random()
        if choice < 0.3 or not self.heads:
            kind = self.random.choice(["claim", "working_memory"])
            return "create", claim(self.random.choice(self.scopes), {"n": self.random.random()}, object_type=kind)
        if choice < 0.45:
            return self.joining()
        if choice < 0.85:
            return self.change()
        items = [self.request() for _ in range(self.random.randint(1, 5))]
        flat = [{"operation": name, **document} for name, document in items if name != "batch"]
        if not flat:
            return self.change()
        return "batch", {"scope_id": flat[0]["scope_id"], "items": flat, "atomic": self.random.random() < 0.5}

    def joining(self) -> tuple[str, Document]:
        """A relationship or a promotion of what is known: dead, foreign and repeated ones included."""
        known = list(self.heads.values())
        one, two = self.random.choice(known), self.random.choice(known)
        if "object_id" in one and self.random.random() < 0.4:
            return "promote", {
                "scope_id": one["scope_id"],
                "source_object_id": one["object_id"],
                "expected_version_id": one["version_id"],
                "target_object_type": "decision",
                "target_canonical_content": self.random.random(),
                "provenance": PROVENANCE,
            }
        names = [of.get("object_id") or of["relationship_id"] for of in (one, two)]
        return "relate", {
            "scope_id": one["scope_id"],
            "source_object_id": names[0],
            "target_object_id": names[1],
            "relationship_type": self.random.choice(["supports", "references"]),
            "directionality": "directed",
            "provenance": PROVENANCE,
        }

    def change(self) -> tuple[str, Document]:
        """A change of some object that is known, alive or not."""
        of = self.random.choice(list(self.heads.values()))
        about = self.writers[0].change(of)
        kind = self.random.choice(["update", "update", "transition", "redact", "delete"])
        if kind == "update" and "relationship_id" in of:
            return "relate", {**about, "canonical_content": self.random.random(), "provenance": PROVENANCE}
        if kind == "update":
            return kind, {**about, "canonical_content": self.random.random(), "provenance": PROVENANCE}
        if kind == "redact":
            target = self.random.choice([{"whole": True}, {"paths": ["/n"]}, {"paths": ["/n", "/none"]}])
            return kind, {**about, "policy_basis": "asked", "redaction_target": target}
        if kind == "delete":
            return kind, {**about, "policy_basis": "asked"}
        dimension, target = self.random.choice(
            [
                ("lifecycle", "deprecated"),
                ("lifecycle", "archived"),
                ("validation", "disputed"),
                ("retention", "expired"),
                ("retention", "legal_hold"),
                ("retention", "retained"),
                ("availability", "deleted"),
            ]
        )
        return kind, {**about, "dimension": dimension, "target_state": target, "policy_basis": "asked"}

    async def send(self, number: int) -> None:
        """Send one request, by either process, and remember it."""
        operation, document = self.request()
        key = f"key-{number}"
        answer = await self.writers[number % 2].call(operation, document, key=key)
        self.sent.append((operation, document, key, answer))

    def learn(self) -> None:
        """Take over what the answers say."""
        for _, _, _, answer in self.sent:
            body = json.loads(answer.body)
            for result in body.get("results", [body]):
                if "error" in result:
                    continue
                if "event_ids" in result:
                    self.end(result["object"]["scope_id"], result["source"])
                    result = result["object"]
                place = (result["scope_id"], result.get("object_id") or result["relationship_id"])
                if place not in self.heads or self.heads[place]["sequence"] < result["sequence"]:
                    self.heads[place] = result
                if result["envelope"]["availability_state"] == "deleted":
                    self.gone.add(place)

    def end(self, scope_id: str, source: Document) -> None:
        """The answer of a promotion names the source by its version alone."""
        self.superseded[scope_id, source["version_id"]] = source["sequence"]


@pytest.mark.parametrize("seed", range(2))
async def test_a_random_history(writers: tuple[Writer, Writer], seed: int) -> None:
    scopes = [writers[0].scope, await writers[0].new_scope(), await writers[0].new_scope()]
    history = History(writers, scopes, random.Random(seed))
    for wave in range(12):
        await asyncio.gather(*(history.send(wave * 100 + number) for number in range(12)))
        history.learn()
    for scope_id in scopes:
        await writers[0].check_scope(scope_id)
    await _check_heads(history)
    await _check_repetitions(history)
    for scope_id in scopes:
        await writers[0].check_scope(scope_id)


async def _check_heads(history: History) -> None:
    """The store's heads are the newest answers; what promotions add besides is their own."""
    rows = await history.writers[0].admin.fetch(
        "SELECT s.scope_id, h.* FROM core.object_head h JOIN core.scope s USING (scope_key)"
    )
    stored = {(row["scope_id"], row["object_id"]): (row["version_id"], row["version_seq"]) for row in rows}
    known = {place: (head["version_id"], head["sequence"]) for place, head in history.heads.items()}
    for place, (version_id, sequence) in stored.items():
        told = history.superseded.get((place[0], version_id))
        if told is not None:
            assert sequence == told
        elif place in known:
            assert known[place] == (version_id, sequence)
    assert set(known) <= set(stored)
    beside = {place: head for place, head in stored.items() if place not in known}
    derived = [row for row in rows if row["object_type"] == "derived_from"]
    assert set(beside) <= {(row["scope_id"], row["object_id"]) for row in derived}
    assert len(derived) == len(history.superseded)
    edges = [
        (row["scope_id"], row["source_object_id"], row["target_object_id"], row["object_type"])
        for row in rows
        if row["kind"] == b"r" and row["lifecycle_state"] == "active" and row["availability_state"] != "deleted"
    ]
    assert edges, "no relationship was made"
    assert len(edges) == len(set(edges))


async def _check_repetitions(history: History) -> None:
    """What is sent again is answered as it was, or with the erasure; only what had been refused is written."""
    before = await history.writers[0].count("core.ledger")
    refused_before = 0
    for operation, document, key, first in history.sent:
        again = await history.writers[0].call(operation, document, key=key)
        if first.status >= 400 and "version_conflict" in first.body.decode():
            refused_before += 1
            continue
        if again.body != first.body:
            told = again.body.decode()
            assert "object_deleted" in told or "object_redacted" in told, (operation, first.body, again.body)
            continue
        assert again.headers.get(HEADER_LEDGER_SEQUENCE) == first.headers.get(HEADER_LEDGER_SEQUENCE)
    assert await history.writers[0].count("core.ledger") - before <= refused_before * 5
    if not refused_before:
        assert await history.writers[0].count("core.ledger") == before
