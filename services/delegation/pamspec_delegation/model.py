"""The rules of the service, without any I/O: what a check asks and answers, and how long an answer may be repeated.

Invariant: only a permission without any limit of uses is ever repeated; a denial is decided anew each time, and so a
grant that has just come into force is not kept out.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from pamspec_common.authorization.rights import Epochs
from pamspec_common.delegation.grants import Chain, Grant, is_party, remaining_uses
from pamspec_common.delegation.verdicts import Use, Verdict
from pamspec_common.documents import Actor
from pamspec_common.errors import ObjectNotFound
from pamspec_common.instants import wire
from pamspec_common.strict_json import Fragment, dumps
from pamspec_delegation.documents import Check, Explain


def use_of(request: Check | Explain, actor: Actor, chain: Chain, found: tuple[str, str] | None) -> Use:
    """What a request asks of a grant; `found` is the kind and type of the object that it names, where there is one.

    A relationship has no type that a grant could name; of what is not there the request's own word counts.
    """
    types: tuple[str | None, ...] = ()
    if request.object_id is not None:
        types = (request.object_type if found is None else found[1] if found[0] == "o" else None,)
    elif request.object_type is not None:
        types = (request.object_type,)
    return Use(
        request.operation,
        actor.actor_id,
        actor.actor_kind,
        request.scope_id or chain[-1].target_scope_id,
        () if request.object_id is None else (request.object_id,),
        types,
    )


def no_such_grant() -> ObjectNotFound:
    """The refusal of a grant that is missing, of another tenant, or none of the caller's business, in one wording."""
    return ObjectNotFound(
        "No such delegation is visible here; check delegation_id, or leave it out.", details={"field": "delegation_id"}
    )


class Permission(NamedTuple):
    """A check that permitted, which may be repeated while what it rests on stands."""

    before: bytes
    after: bytes
    """The body on both sides of its operation_id."""
    ledger_epoch: int
    scope_key: int
    epochs: Epochs
    not_after: datetime
    """The last moment at which every grant of the chain is in force."""
    decided_at: datetime
    """By PostgreSQL's clock; rights that rest on credentials are looked up again after a while."""

    def body(self, operation_id: str) -> bytes:
        """The answer to an operation."""
        return self.before + dumps(operation_id) + self.after


def permission(
    chain: Chain, envelope: bytes, ledger_epoch: int, epochs: Epochs, decided_at: datetime
) -> tuple[Permission, bool]:
    """What a check answers, and whether it may be repeated."""
    last, remaining = chain[-1], remaining_uses(chain)
    before = b'{"delegation_id":' + dumps(last.delegation_id) + b',"envelope":' + envelope + b',"operation_id":'
    after = b',"remaining_uses":' + dumps(remaining) + b"}"
    until = min(grant.terms.not_after for grant in chain)
    made = Permission(before, after, ledger_epoch, last.target_key, epochs, until, decided_at)
    return made, remaining is None


def stands(made: Permission, epochs: Epochs, now: datetime, elapsed_s: float, lifetime_s: float) -> bool:
    """Whether a permission may be repeated, by a clock and epochs that were read `elapsed_s` ago at the longest."""
    latest = now + timedelta(seconds=elapsed_s)
    return epochs == made.epochs and latest <= min(made.not_after, made.decided_at + timedelta(seconds=lifetime_s))


def explanation(
    chain: Chain, found: Sequence[Verdict], now: datetime, viewer: str, exercised: dict[str, int], *, everything: bool
) -> dict[str, Any]:
    """The chain, each grant with its rules; the terms of those alone that the viewer is a party of, or may audit."""
    failed = next((verdict for verdict in found if not verdict.kept), None)
    return {
        "delegation_id": chain[-1].delegation_id,
        "permitted": failed is None,
        "reason": None if failed is None else failed.reason,
        "decided_at": wire(now),
        "remaining_uses": remaining_uses(chain),
        "chain": [
            _link(grant, found, shown=everything or is_party(chain[: place + 1], viewer))
            for place, grant in enumerate(chain)
        ],
        "exercised": exercised,
    }


def _link(grant: Grant, found: Sequence[Verdict], *, shown: bool) -> dict[str, Any]:
    link: dict[str, Any] = {
        "delegation_id": grant.delegation_id,
        "rules": [
            {"rule": verdict.reason, "kept": verdict.kept}
            for verdict in found
            if verdict.delegation_id == grant.delegation_id
        ],
    }
    if shown:
        terms = grant.terms
        link |= {
            "granting_actor_id": grant.grantor.actor_id,
            "delegated_actor_id": grant.delegate.actor_id,
            "scope_id": grant.scope_id,
            "target_scope_id": grant.target_scope_id,
            "granted_operations": sorted(terms.operations),
            "not_before": wire(terms.not_before),
            "not_after": wire(terms.not_after),
            "revoked": grant.revoked,
            "remaining_uses": grant.remaining,
            "redelegation_depth": terms.redelegation_depth,
        }
    return link


def listing(items: Sequence[dict[str, Any]], next_cursor: str | None) -> bytes:
    """The body of a list."""
    return dumps({"delegations": list(items), "next_cursor": next_cursor})


def listed(envelope: bytes, remaining: int | None, depth: int, *, in_force: bool) -> dict[str, Any]:
    """A grant in a list."""
    return {
        "envelope": Fragment(envelope),
        "remaining_uses": remaining,
        "redelegation_depth": depth,
        "in_force": in_force,
    }
