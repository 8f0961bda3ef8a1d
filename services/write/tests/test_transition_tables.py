"""The four tables over the whole service: every pair of states and every state of another dimension, for objects and
relationships, with and without the overrides of a policy (PAMSPEC P84-P103, S12, S21)."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from pamspec_common.calls import Answer
from pamspec_write.model.states import ALL_STATES, DIMENSIONS
from services.write.tests.test_states import BY_POLICY, OPEN
from services.write.tests.writer import PROVENANCE, Document, Writer

CONTENT: Document = {"text": "a"}
NAMES = [f"{dimension}_state" for dimension in DIMENSIONS]
POLICY = {
    "overrides": [{"dimension": dimension, "from": current, "to": to} for dimension, current, to in sorted(BY_POLICY)]
}


class Subject:
    """Makes objects, or relationships, in a state of a dimension."""

    def __init__(self, writer: Writer, kind: str) -> None:
        self.writer, self.kind = writer, kind
        self.ends: list[str] = []
        self.made = 0

    async def prepare(self) -> None:
        """Objects that relationships can join; every relationship has a type of its own."""
        if self.kind == "relationship":
            self.ends = [(await self.writer.create())["object_id"] for _ in range(2)]

    async def make(self, **states: Any) -> Document:
        """A new one; lifecycle and validation as they are asked for."""
        if self.kind == "object":
            return await self.writer.create(CONTENT, **states)
        self.made += 1
        return await self.writer.ok(
            "relate",
            {
                "scope_id": self.writer.scope,
                "source_object_id": self.ends[0],
                "target_object_id": self.ends[1],
                "relationship_type": f"com.example.joins.n{self.made}",
                "directionality": "directed",
                "canonical_content": CONTENT,
                "provenance": PROVENANCE,
                **states,
            },
        )

    def about(self, of: Document, **more: Any) -> Document:
        """A request about the subject of an answer."""
        name = f"{self.kind}_id"
        return {
            "scope_id": self.writer.scope,
            name: of[name],
            "expected_version_id": of["version_id"],
            "policy_basis": "test",
            **more,
        }

    async def move(self, of: Document, dimension: str, target: str) -> Answer:
        """The answer of a transition that brings everything that an edge may ask for."""
        more: Document = {"provenance": PROVENANCE}
        if (dimension, target) == ("availability", "available"):
            more["canonical_content"] = CONTENT
        return await self.writer.call("transition", self.about(of, dimension=dimension, target_state=target, **more))

    async def at(self, dimension: str, state: str) -> Document:
        """One in that state, by the way that leads there."""
        if dimension in ("lifecycle", "validation"):
            return await self.make(**{f"{dimension}_state": state})
        made = await self.make()
        if state in ("available", "retained"):
            return made
        if dimension == "retention":
            answer = await self.move(made, dimension, state)
            assert answer.status == 200, answer.body
            return dict(orjson.loads(answer.body))
        if state == "deleted":
            return await self.writer.ok("delete", self.about(made))
        target = {"whole": True} if state == "redacted" else {"paths": ["/text"]}
        return await self.writer.ok("redact", self.about(made, redaction_target=target))


def expected(edge: tuple[str, str, str], *, opened: bool) -> tuple[int, str | None]:
    """Status and code by the requirements, for a transition that brings what its edge may ask for."""
    dimension, current, target = edge
    if dimension == "availability":
        if target == "partially_redacted":
            return 400, "invalid_request"
        if current == "deleted":
            return 410, "object_deleted"
        if (current, target) == ("redacted", "redacted"):
            return 410, "object_redacted"
    if target in OPEN[dimension][current] or (opened and edge in BY_POLICY):
        return 200, None
    return 409, "invalid_state_transition"


@pytest.mark.parametrize("kind", ["object", "relationship"])
@pytest.mark.parametrize("opened", [False, True], ids=["strict", "every override"])
@pytest.mark.parametrize("dimension", DIMENSIONS)
async def test_every_edge_of_every_table(shared: Writer, kind: str, dimension: str, opened: bool) -> None:
    subject = Subject(shared, kind)
    await subject.prepare()
    if opened:
        change = {"scope_id": shared.scope, "policy": POLICY, "expected_policy_version": 0, "policy_basis": "test"}
        await shared.ok("update_scope", change)

    async def check(current: str, target: str) -> None:
        made = await subject.at(dimension, current)
        answer = await subject.move(made, dimension, target)
        status, code = expected((dimension, current, target), opened=opened)
        body = orjson.loads(answer.body)
        assert (answer.status, body.get("error", {}).get("code")) == (status, code), (dimension, current, target)
        if status == 200:
            before, after = made["envelope"], body["envelope"]
            assert after[f"{dimension}_state"] == target
            others = [name for name in NAMES if name != f"{dimension}_state"]
            assert [after[name] for name in others] == [before[name] for name in others]
        elif code == "invalid_state_transition" and (dimension, current, target) in BY_POLICY:
            assert body["error"]["policy_rule_id"] == "scope-policy/0/overrides"

    for current in OPEN[dimension]:
        await asyncio.gather(*(check(current, target) for target in sorted(ALL_STATES)))
    await shared.check_scope()


@pytest.mark.parametrize("kind", ["object", "relationship"])
async def test_nothing_of_a_tombstone_moves_any_more(shared: Writer, kind: str) -> None:
    subject = Subject(shared, kind)
    await subject.prepare()
    made = await subject.at("availability", "deleted")
    for dimension in DIMENSIONS:
        for target in sorted(OPEN[dimension]):
            answer = await subject.move(made, dimension, target)
            by_redact = (dimension, target) == ("availability", "partially_redacted")
            code = "invalid_request" if by_redact else "object_deleted"
            assert orjson.loads(answer.body)["error"]["code"] == code, (dimension, target)
    for operation, more in (("delete", {}), ("redact", {"redaction_target": {"whole": True}})):
        assert (await shared.refused(operation, subject.about(made, **more)))["code"] == "object_deleted"


@pytest.mark.parametrize("kind", ["object", "relationship"])
async def test_what_is_held_is_never_removed(shared: Writer, kind: str) -> None:
    """S12: while retention is legal_hold; each edge out of it is itself the release."""
    subject = Subject(shared, kind)
    await subject.prepare()
    for out in ("retained", "expired", "pending_deletion"):
        made = await subject.at("retention", "legal_hold")
        for operation, more in (
            ("delete", {}),
            ("redact", {"redaction_target": {"whole": True}}),
            ("redact", {"redaction_target": {"paths": ["/text"]}}),
        ):
            assert (await shared.refused(operation, subject.about(made, **more)))["code"] == "legal_hold"
        for target in ("redacted", "deleted"):
            answer = await subject.move(made, "availability", target)
            assert orjson.loads(answer.body)["error"]["code"] == "legal_hold"
        released = await subject.move(made, "retention", out)
        assert released.status == 200
        await shared.ok("delete", subject.about(orjson.loads(released.body)))
