"""assemble: a context for a model from what a query finds, along the read path of the field guide (C14).

Invariant: what a context shows, the query of the same request shows too; relationships only take away (what is
superseded), join (equal contents) and tell (contradictions between what the caller may see).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec
import orjson

from pamspec_common.calls import HEADER_AS_OF_SEQUENCE, Answer
from pamspec_common.documents import STATES, Pagination
from pamspec_common.errors import InvalidRequest
from pamspec_common.postgres import Connection
from pamspec_common.strict_json import dumps
from pamspec_query.documents import Assemble, Budget, Query
from pamspec_query.handlers.context import Context
from pamspec_query.handlers.placing import seen
from pamspec_query.handlers.query import query
from pamspec_query.model.assembly import Assembled, Finding, Relation, Wanted
from pamspec_query.model.assembly import assemble as assembled
from pamspec_query.model.plan import Plan, plan
from pamspec_query.model.ranked import RANKED, finite
from pamspec_query.queries import traversal
from pamspec_query.queries.traversal import Step, Walk

SPARE = 3
"""So many times the blocks that are wanted are looked at, since some give way to others."""
MAX_RELATIONS = 1_000
_ERASED = ("redacted", "deleted")
_SUPERSEDES, _CONTRADICTS = "supersedes", "contradicts"


_ABSENT = msgspec.Raw(b"")


class _Content(msgspec.Struct):
    canonical_content: msgspec.Raw


class _Explanation(msgspec.Struct):
    lists: dict[str, msgspec.Raw]


class _Item(msgspec.Struct):
    envelope: msgspec.Raw
    score: float | None = None
    semantic_score: float | None = None
    explanation: _Explanation | None = None

    def fits(self, lowest: float) -> bool:
        """Whether it was found by more than its vector, or that is near enough."""
        found_by = {"vector"} if self.explanation is None else self.explanation.lists.keys()
        return found_by != {"vector"} or self.semantic_score is None or self.semantic_score >= lowest


class _Found(msgspec.Struct):
    items: list[_Item]
    hint: str | None = None
    index: msgspec.Raw = _ABSENT


async def assemble(context: Context, request: Assemble) -> Answer:
    """What the query finds, authorized, valid and within the budget; InvalidRequest where relationships are asked for.

    An erased memory is no content, so a query that also asks for tombstones gets none here.
    """
    if request.query.filters is not None and request.query.filters.relationship_type is not None:
        raise InvalidRequest(
            "A context is made of objects; leave filters.relationship_type out, or send traverse.",
            details={"field": "query.filters.relationship_type"},
        )
    lowest = _lowest(request)
    budget = request.budget or Budget()
    asked = _query(request, min(SPARE * budget.max_items, 1000))
    answer = await query(context, asked)
    found = msgspec.json.decode(answer.body, type=_Found)
    fitting = found.items if lowest is None else [item for item in found.items if item.fits(lowest)]
    findings = [one for one in map(_finding, fitting) if one is not None]
    position = int(answer.headers[HEADER_AS_OF_SEQUENCE])
    contradictions, supersessions = await _relations(context, asked, findings, position)
    wanted = Wanted(request.scope_id, budget.max_tokens, budget.max_items, frozenset(request.instruction_types))
    made = assembled(findings, contradictions, supersessions, wanted)
    if lowest is not None:
        made.omitted["unrelated"] = len(found.items) - len(fitting)
    return Answer(200, _body(made, budget.max_tokens, found), answer.headers)


def _lowest(request: Assemble) -> float | None:
    """The score below which a vector alone counts for nothing; InvalidRequest for one of no space, or no number."""
    given = request.min_semantic_score
    if given is None:
        return None
    if request.embedding_space_id is None:
        raise InvalidRequest(
            "min_semantic_score belongs to queries that compare vectors; leave it out, or name embedding_space_id.",
            details={"field": "min_semantic_score"},
        )
    return finite(given, "min_semantic_score")


def _query(request: Assemble, limit: int) -> Query:
    """The query of the request, for one page; it says which lists found what, where that counts."""
    shared = {name: getattr(request, name) for name in Query.__struct_fields__ if hasattr(request, name)}
    shared["explain_ranking"] = request.min_semantic_score is not None and request.query.kind in RANKED
    return Query(**{**shared, "pagination": Pagination(limit=limit)})


def _finding(item: _Item) -> Finding | None:
    envelope: dict[str, Any] = orjson.loads(bytes(item.envelope))
    if "object_id" not in envelope or envelope["availability_state"] in _ERASED:
        return None
    raw = bytes(msgspec.json.decode(item.envelope, type=_Content).canonical_content)
    content = envelope["canonical_content"]
    return Finding(envelope, content if isinstance(content, str) else raw.decode(), item.score)


async def _relations(
    context: Context, asked: Query, findings: Sequence[Finding], position: int
) -> tuple[list[Relation], list[Relation]]:
    """What contradicts a finding, and what supersedes one, as far as it may be seen."""
    scope_id = asked.scope_id
    found = sorted({one.object_id for one in findings if one.envelope["scope_id"] == scope_id})
    if not found:
        return [], []
    async with context.moment(asked) as (conn, scope_key, _, rights):
        wanted = await seen(context, conn, scope_key, rights, asked, plan(asked))
        passing = wanted.states.lists()
        replacing = await _hop(conn, scope_key, found, position, wanted, _walk(wanted, _SUPERSEDES, passing))
        shown = [tuple(states) for states in STATES.values()]
        shown[0], shown[3] = ("active",), tuple(state for state in shown[3] if state != "rejected")
        against = await _hop(conn, scope_key, found, position, wanted, _walk(wanted, _CONTRADICTS, shown))
        far = sorted({step.object_id for step in (*replacing, *against)})
        there = await traversal.visible(conn, scope_key, far, position, wanted.pinned, wanted.sight)
    return _told(against, there), _told(replacing, there)


def _told(steps: Sequence[Step], there: Collection[str]) -> list[Relation]:
    """Each relationship once, from what lies at its far end to what was found."""
    return list(
        {
            step.relationship_id: Relation(step.relationship_id, step.object_id, step.near_id)
            for step in steps
            if step.object_id in there and step.object_id != step.near_id
        }.values()
    )


def _walk(wanted: Plan, relationship_type: str, states: Sequence[Sequence[str]]) -> Walk:
    """Along relationships of one type: from what is superseded to what replaces it, or between what contradicts."""
    return Walk(relationship_type == _CONTRADICTS, True, [relationship_type], states, wanted.valid_at, wanted.pinned)


async def _hop(
    conn: Connection, scope_key: int, found: Sequence[str], position: int, wanted: Plan, walk: Walk
) -> list[Step]:
    steps = await traversal.hop(conn, scope_key, found, position, walk, wanted.sight, MAX_RELATIONS)
    return [step for step in steps if step.scope_id is None]


def _body(made: Assembled, max_tokens: int, found: _Found) -> bytes:
    """The answer's bytes, members in the order of their names."""
    members = {
        "budget": dumps({"max_tokens": max_tokens, "used_tokens": made.used_tokens}),
        "conflicts": dumps(made.conflicts),
        "evidence": dumps(made.evidence),
        "hint": None if found.hint is None else dumps(found.hint),
        "index": bytes(found.index),
        "instructions": dumps(made.instructions),
        "omitted": dumps(made.omitted),
        "text": dumps(made.text),
    }
    return b"{" + b",".join(b'"' + name.encode() + b'":' + said for name, said in members.items() if said) + b"}"
