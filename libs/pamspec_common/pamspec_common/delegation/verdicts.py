"""Verdicts: each rule that a use of a grant must keep, with its outcome; the first one that fails is the reason.

Invariant: a use is permitted exactly when every verdict is kept. What is asked about names and terms comes first, since
it never changes; whether the grant is in force follows, those above it before their like of the grant itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import msgspec

from pamspec_common.authorization.rights import Rights
from pamspec_common.authorization.vocabulary import TRANSITIONS
from pamspec_common.delegation.grants import Chain, Grant
from pamspec_common.errors import AccessDenied

_DELEGATED: dict[str, tuple[str, ...]] = {"transition": TRANSITIONS, "unsubscribe": ("subscribe",)}
"""The actions that a delegated operation may turn out to be, where it is not the one of its name."""

_ANCESTOR = "ancestor_"
_MESSAGES = {
    "delegate": "The grant is another actor's; act as the one to whom it was given.",
    "scope": "The grant does not work in this scope; see its target_scope_id, or its scope_id where it has none.",
    "operation": "The grant does not name this operation; ask its grantor for one that does.",
    "object_type": "The grant does not name this type of object; ask its grantor for one that does.",
    "object_id": "The grant does not name this object; ask its grantor for one that does.",
    "revoked": "The grant was revoked; ask its grantor for a new one.",
    "not_before": "The grant is not yet in force; wait for its not_before.",
    "not_after": "The grant has run out; ask its grantor for a new one.",
    "usage_limit": "The grant was used as often as it may be; ask its grantor for a new one.",
    "grantor_rights": "The grantor may not do this here any more, so nobody may under its grant.",
}
REASONS = (*_MESSAGES, *(_ANCESTOR + name for name in ("revoked", "not_before", "not_after", "usage_limit")))
"""What `details.reason` of a refusal may be."""


class Use(msgspec.Struct, frozen=True):
    """What somebody wants to do under a grant."""

    operation: str
    actor_id: str
    actor_kind: str
    scope_id: str
    object_ids: tuple[str | None, ...] = ()
    """What it touches; None stands for an id that is yet to be minted."""
    object_types: tuple[str | None, ...] = ()
    """The types of what it touches, as far as they matter here; None stands for one that nobody knows."""
    count: int = 1


class Verdict(msgspec.Struct, frozen=True):
    """What one rule says of a use."""

    delegation_id: str
    reason: str
    """The rule, in the word that a refusal gives as its reason."""
    kept: bool


def holds(rights: Rights, operation: str) -> bool:
    """Whether somebody with these rights may carry the operation out on some memory of the scope."""
    return any(not rights.decision(action).never for action in _DELEGATED.get(operation, (operation,)))


def verdicts(chain: Chain, use: Use, now: datetime, rights: Rights | None) -> Iterator[Verdict]:
    """Every rule in its order; `now` is PostgreSQL's clock, `rights` the first grantor's, None to leave that out."""
    yield from term_verdicts(chain, use)
    yield from standing_verdicts(chain, now)
    if rights is not None:
        yield Verdict(chain[0].delegation_id, "grantor_rights", holds(rights, use.operation))
    yield from usage_verdicts(chain, use.count)


def term_verdicts(chain: Chain, use: Use) -> Iterator[Verdict]:
    """What follows from the terms alone, which no grant of a chain widens."""
    last = chain[-1]
    terms = last.terms
    mine = (last.delegate.actor_id, last.delegate.actor_kind) == (use.actor_id, use.actor_kind)
    yield Verdict(last.delegation_id, "delegate", mine)
    yield Verdict(last.delegation_id, "scope", use.scope_id == last.target_scope_id)
    yield Verdict(last.delegation_id, "operation", use.operation in terms.operations)
    ids, types = terms.object_ids, terms.object_types
    yield Verdict(last.delegation_id, "object_id", ids is None or all(one in ids for one in use.object_ids))
    yield Verdict(last.delegation_id, "object_type", types is None or all(one in types for one in use.object_types))


def standing_verdicts(chain: Chain, now: datetime) -> Iterator[Verdict]:
    """Whether every grant of the chain is in force: not revoked, and within its window, both ends included."""
    for grant in chain:
        place = "" if grant is chain[-1] else _ANCESTOR
        yield Verdict(grant.delegation_id, place + "revoked", not grant.revoked)
        yield Verdict(grant.delegation_id, place + "not_before", grant.terms.not_before <= now)
        yield Verdict(grant.delegation_id, place + "not_after", now <= grant.terms.not_after)


def usage_verdicts(chain: Chain, count: int = 1) -> Iterator[Verdict]:
    """Whether every limit of the chain leaves room for that many uses: a use counts against each of them."""
    for grant in chain:
        place = "" if grant is chain[-1] else _ANCESTOR
        yield Verdict(grant.delegation_id, place + "usage_limit", _leaves(grant, count))


def require(found: Iterator[Verdict]) -> None:
    """Raise AccessDenied by the first rule that is not kept."""
    for verdict in found:
        if not verdict.kept:
            raise denied(verdict.reason)


def denied(reason: str) -> AccessDenied:
    """The refusal that gives this reason."""
    message = _MESSAGES.get(reason) or (
        "A grant above this one is not in force any more: " + _MESSAGES[reason.removeprefix(_ANCESTOR)]
    )
    return AccessDenied(message, details={"reason": reason})


def _leaves(grant: Grant, count: int) -> bool:
    return grant.remaining is None or grant.remaining >= count
