"""The ranked part of a query: what is looked for, in which lists, ordered by which profile (PAMSPEC P120-P123, S25).

Invariant: every member of a request is honoured or refused here. Whether an embedding space exists, and has so many
dimensions, is for the store to say.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pamspec_common.errors import EmbeddingSpaceMismatch, InvalidRequest
from pamspec_query.documents import Expression, Mode, Ordering, Query
from pamspec_query.model.fields import FIELDS
from pamspec_query.model.ordering import OrderKey, column
from pamspec_query.model.ranking import PROFILES, Profile

MAX_TEXT = 8192
"""So many characters of a text are looked for; the rest is left out, and the answer says so."""
MAX_DIMENSIONS = 16_000
RANKED = frozenset({"semantic", "hybrid"})
_HYBRID: tuple[Mode, ...] = ("lexical", "vector")
_SCORES = frozenset({"score", "semantic_score"})


@dataclass(frozen=True, slots=True)
class Ranked:
    """What a query of a ranked kind looks for."""

    kind: str
    modes: tuple[Mode, ...]
    text: str | None
    text_clamped: bool
    vector: Sequence[float] | None
    embedding_space_id: str | None
    exact: bool
    explain: bool
    rerank: bool
    profile: Profile
    by_semantic_score: bool
    """Whether equal scores are told apart by the semantic score first."""
    tie_break: tuple[OrderKey, ...]
    """What tells equal scores apart, down to a key that no two items share."""
    said: tuple[str, ...]
    """The same as the answer says it."""

    @property
    def needs_embedding(self) -> bool:
        """Whether the text has to become a vector first."""
        return "vector" in self.modes and self.vector is None


def ranked(request: Query) -> Ranked | None:
    """The ranked part of a request; None for the other kinds, which take nothing of it."""
    if request.query.kind not in RANKED:
        _refuse_beside(request, request.query)
        return None
    modes = _modes(request.query)
    _check_space(request, modes)
    _check_sources(request, modes)
    text, clamped = _text(request.query.text)
    if request.count == "exact":
        raise InvalidRequest(
            "A ranked query counts as far as it ranks; send count bounded.", details={"field": "count"}
        )
    by_score, keys, said = _tie_break(request.ordering)
    return Ranked(
        kind=request.query.kind,
        modes=modes,
        text=text,
        text_clamped=clamped,
        vector=_vector(request.query.vector),
        embedding_space_id=request.embedding_space_id,
        exact=request.exact,
        explain=request.explain_ranking,
        rerank=request.rerank,
        profile=PROFILES[(request.ordering and request.ordering.profile) or "relevance"],
        by_semantic_score=by_score,
        tie_break=keys,
        said=said,
    )


def _refuse_beside(request: Query, expression: Expression) -> None:
    for name in ("text", "vector", "modes"):
        if getattr(expression, name) is not None:
            raise InvalidRequest(
                f"query.{name} belongs to the kinds semantic and hybrid; filter with query.where instead.",
                details={"field": f"query.{name}"},
            )
    for name in ("explain_ranking", "rerank"):
        if getattr(request, name):
            raise InvalidRequest(
                f"{name} belongs to the kinds semantic and hybrid; nothing is ranked here.", details={"field": name}
            )
    if request.ordering is not None and request.ordering.profile is not None:
        raise InvalidRequest(
            "ordering.profile belongs to the kinds semantic and hybrid; order by fields with ordering.by.",
            details={"field": "ordering.profile"},
        )
    if request.embedding_space_id is not None:
        raise EmbeddingSpaceMismatch(
            "Nothing is compared by vector in this kind; leave embedding_space_id out, or send the kind semantic."
        )


def _modes(expression: Expression) -> tuple[Mode, ...]:
    given = expression.modes
    if expression.kind == "semantic":
        if given is not None and list(given) != ["vector"]:
            raise InvalidRequest(
                "A semantic query compares vectors alone; send the kind hybrid for other modes.",
                details={"field": "query.modes"},
            )
        return ("vector",)
    if given is None:
        return _HYBRID
    if len(set(given)) != len(given):
        raise InvalidRequest("query.modes names one mode twice; name each once.", details={"field": "query.modes"})
    return tuple(sorted(given))


def _check_space(request: Query, modes: Sequence[Mode]) -> None:
    """S25."""
    if "vector" in modes and request.embedding_space_id is None:
        less = ', or leave vectors out with modes ["lexical"]' if request.query.kind == "hybrid" else ""
        raise InvalidRequest(
            "A query by vector names its space; send embedding_space_id beside query, as GET /v1/embedding_spaces "
            f"lists it{less}.",
            details={"field": "embedding_space_id"},
        )
    if "vector" not in modes and request.embedding_space_id is not None:
        raise InvalidRequest(
            "These modes compare no vectors; leave embedding_space_id out, or add the mode vector.",
            details={"field": "embedding_space_id"},
        )


def _check_sources(request: Query, modes: Sequence[Mode]) -> None:
    """Each mode has what it starts from, and nothing is sent that no mode looks at."""
    expression = request.query
    if "vector" in modes and expression.vector is None and expression.text is None:
        raise InvalidRequest("Nothing to look for; send query.text or query.vector.", details={"field": "query.text"})
    if "lexical" in modes and expression.text is None:
        raise InvalidRequest(
            "The mode lexical looks for words; send query.text, or other modes.",
            details={"field": "query.text"},
        )
    if "vector" not in modes and expression.vector is not None:
        raise InvalidRequest(
            "These modes compare no vectors; leave query.vector out, or add the mode vector.",
            details={"field": "query.vector"},
        )
    if request.traverse is not None and request.traverse.paths:
        raise InvalidRequest(
            "A ranked answer tells no paths; leave traverse.paths out.", details={"field": "traverse.paths"}
        )
    if "graph" in modes and request.traverse is None:
        raise InvalidRequest(
            "The mode graph goes along relationships; send traverse with the objects to start from.",
            details={"field": "traverse"},
        )


def _text(text: str | None) -> tuple[str | None, bool]:
    if text is None:
        return None, False
    if not text.strip():
        raise InvalidRequest("query.text is empty; say what to look for.", details={"field": "query.text"})
    return text[:MAX_TEXT], len(text) > MAX_TEXT


def _vector(vector: Sequence[Any] | None) -> list[float] | None:
    if vector is None:
        return None
    if not 1 <= len(vector) <= MAX_DIMENSIONS:
        raise InvalidRequest(f"query.vector has 1 to {MAX_DIMENSIONS} numbers.", details={"field": "query.vector"})
    return [finite(value, f"query.vector[{index}]") for index, value in enumerate(vector)]


def finite(value: Any, field: str) -> float:
    """A number of a request; InvalidRequest for anything else."""
    try:
        number = math.nan if isinstance(value, bool | str) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise InvalidRequest(f"{field} is no finite number; send one.", details={"field": field})
    return number


def _tie_break(ordering: Ordering | None) -> tuple[bool, tuple[OrderKey, ...], tuple[str, ...]]:
    """Whether the semantic score counts, the columns, and both as the answer names them."""
    if ordering is not None and ordering.by is not None:
        raise InvalidRequest(
            "A ranked answer is ordered by its score; choose ordering.profile, and tie_break for equal scores.",
            details={"field": "ordering.by"},
        )
    names = [] if ordering is None else list(ordering.tie_break or [])
    keys: list[OrderKey] = []
    said = ["score", *(["semantic_score"] if "semantic_score" in names else [])]
    for index, name in enumerate(names):
        if name in _SCORES:
            continue
        keys.append(OrderKey(column(name, f"ordering.tie_break[{index}]"), False))
        said.append(name)
        if keys[-1].field.unique:
            return "semantic_score" in names, tuple(keys), tuple(said)
    keys.append(OrderKey(FIELDS["ledger_sequence"], True))
    return "semantic_score" in names, tuple(keys), (*said, "ledger_sequence")
