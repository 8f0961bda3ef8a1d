"""Rights: what one subject may do in one scope, decided once for each action and kept while it holds.

Invariant: rights are told apart by the authorization epochs of tenant and scope. Whoever acts on kept rights compares
their epochs with those that it reads together with the state that it acts on, and loads them again when one has moved.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pamspec_common.authorization.decisions import NOTHING, Decision, Subject, decide
from pamspec_common.authorization.policies import Policies, combined, default_text, parse
from pamspec_common.authorization.vocabulary import IN_SIGHT
from pamspec_common.errors import AccessDenied, ScopeNotFound

_KEPT = 50_000
_RULES = 5_000

Memory = Mapping[str, str]


class Epochs(NamedTuple):
    """The authorization epochs that rights rest on."""

    scope: int
    tenant: int


@dataclass(frozen=True)
class Stored:
    """What the store knows of a subject's rights in a scope."""

    epochs: Epochs
    roles: Mapping[str, frozenset[str]]
    """By actor: the roles bound to it, in the scope and in the whole tenant; an actor without any is not in it."""
    rules: Sequence[tuple[str, str]]
    """(key, text) of the tenant's and the scope's own rules; a key names one version of one text for good."""


Load = Callable[[str, int, Sequence[str]], Awaitable[Stored]]
"""(tenant, scope_key, actors): what is stored of their rights there."""


class Asker(NamedTuple):
    """Who asks for rights: the actor, and the principal with the roles that its credentials carry in the tenant."""

    tenant_id: str
    actor_id: str
    actor_kind: str
    principal_id: str
    credential_roles: frozenset[str]
    delegation_id: str | None = None
    by_role: bool = False
    """Whether the principal may act for this actor only by a role of its own that allows assert_actor (S9)."""
    principal_kind: str = "agent"


class Rights:
    """A subject's rights in a scope."""

    __slots__ = ("_clock", "_decisions", "_policies", "asker", "by", "epochs", "joined", "subject")

    def __init__(
        self,
        asker: Asker,
        subject: Subject,
        policies: Policies,
        epochs: Epochs,
        clock: Callable[[], float] = time.time,
        decisions: dict[str, Decision] | None = None,
        by: Rights | None = None,
    ) -> None:
        self.by = by
        """The rights of the principal, where acting for the subject takes one of them."""
        self.asker, self.subject, self.epochs = asker, subject, epochs
        self._policies, self._clock = policies, clock
        self._decisions: dict[str, Decision] = {} if decisions is None else decisions
        self.joined: dict[tuple[str, ...], tuple[tuple[Decision, ...], Any]] = {}
        """What was made of several decisions, by their actions, kept for as long as these are the same (`sight.py`)."""

    def decision(self, action: str) -> Decision:
        """The decision of an action, for every memory."""
        if self.unasserted:
            return NOTHING
        kept = self._decisions.get(action)
        if kept is None or (kept.until is not None and kept.until <= self._clock()):
            kept = self._decisions[action] = decide(self._policies, self.subject, action, int(self._clock()))
        return kept

    def allows(self, action: str, memory: Memory) -> bool:
        """Whether the subject may do this to a memory with these attributes."""
        return self.decision(action).allows(memory)

    @property
    def unasserted(self) -> bool:
        """Whether the principal may not act for this subject, so that it may do nothing."""
        return self.by is not None and self.by.decision("assert_actor").never

    def check_assertion(self, *, in_scope: bool = True) -> None:
        """Raise when the principal may not act for this subject: ScopeNotFound where it sees no scope itself."""
        if self.by is None or not self.unasserted:
            return
        if in_scope and not self.by.sees_scope:
            raise ScopeNotFound
        raise AccessDenied(
            "The body names another actor than the key belongs to; leave `actor` out.",
            details={"action": "assert_actor"},
        )

    @property
    def sees_scope(self) -> bool:
        """Whether the subject may do anything here; to others the scope does not exist."""
        return any(not self.decision(action).never for action in IN_SIGHT)


class Authorizer:
    """Rights by tenant, scope and subject, loaded when they are missing."""

    def __init__(self, load: Load, clock: Callable[[], float] = time.time) -> None:
        self._load, self._clock = load, clock
        self._waiting: dict[tuple[Asker, int], asyncio.Future[Rights]] = {}
        self._kept: OrderedDict[tuple[Asker, int], Rights] = OrderedDict()
        self._rules: OrderedDict[tuple[str, ...], Policies] = OrderedDict()
        self._decided: OrderedDict[tuple[Subject, tuple[str, ...]], dict[str, Decision]] = OrderedDict()

    def held(self, asker: Asker, scope_key: int, epochs: Epochs | None = None) -> Rights | None:
        """Rights that were loaded before, under these epochs where they are given."""
        kept = self._kept.get((asker, scope_key))
        return kept if kept is not None and epochs in (None, kept.epochs) else None

    async def rights(
        self,
        asker: Asker,
        scope_key: int,
        epochs: Epochs | None = None,
        load: Load | None = None,
        *,
        again: bool = False,
    ) -> Rights:
        """The rights, loaded when none are held under these epochs, or `again` in any case.

        `load` is for a caller that is in a transaction. Callers who find none at the same moment share one look-up.
        """
        held = None if again else self.held(asker, scope_key, epochs)
        if held is not None:
            return held
        if load is not None or again or epochs is not None:
            return await self._loaded(asker, scope_key, load or self._load)
        waiting = self._waiting.get((asker, scope_key))
        if waiting is None:
            waiting = asyncio.ensure_future(self._loaded(asker, scope_key, self._load))
            self._waiting[asker, scope_key] = waiting
            waiting.add_done_callback(lambda done: self._done((asker, scope_key), done))
        return await asyncio.shield(waiting)

    def _done(self, key: tuple[Asker, int], done: asyncio.Future[Rights]) -> None:
        self._waiting.pop(key, None)
        if not done.cancelled():
            done.exception()

    async def _loaded(self, asker: Asker, scope_key: int, load: Load) -> Rights:
        actors = sorted({asker.actor_id, asker.principal_id})
        stored = await load(asker.tenant_id, scope_key, actors)
        subject = Subject(asker.actor_id, asker.actor_kind, _roles(asker, stored), asker.delegation_id)
        policies, decisions = self._policies(stored.rules), self._decisions(subject, stored.rules)
        by = self._principal_of(asker, stored, policies) if asker.by_role else None
        made = Rights(asker, subject, policies, stored.epochs, self._clock, decisions, by)
        self._kept[asker, scope_key] = made
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return made

    def _principal_of(self, asker: Asker, stored: Stored, policies: Policies) -> Rights:
        """The rights of the principal itself."""
        held = stored.roles.get(asker.principal_id, frozenset()) | asker.credential_roles
        subject = Subject(asker.principal_id, asker.principal_kind, held)
        return Rights(asker, subject, policies, stored.epochs, self._clock, self._decisions(subject, stored.rules))

    def _decisions(self, subject: Subject, rules: Sequence[tuple[str, str]]) -> dict[str, Decision]:
        """The decisions of a subject, which are the same in all scopes with the same rules."""
        of = (subject, tuple(key for key, _ in rules))
        kept = self._decided.get(of)
        if kept is None:
            kept = self._decided[of] = {}
            if len(self._decided) > _KEPT:
                self._decided.popitem(last=False)
        return kept

    def _policies(self, rules: Sequence[tuple[str, str]]) -> Policies:
        keys = tuple(key for key, _ in rules)
        kept = self._rules.get(keys)
        if kept is None:
            kept = self._rules[keys] = combined(
                [parse(text) for text in (default_text(), *(text for _, text in rules))]
            )
            if len(self._rules) > _RULES:
                self._rules.popitem(last=False)
        return kept


def _roles(asker: Asker, stored: Stored) -> frozenset[str]:
    """An asserted actor without roles of its own acts with those of its principal (S9)."""
    own = stored.roles.get(asker.actor_id, frozenset())
    if asker.actor_id == asker.principal_id:
        return own | asker.credential_roles
    return own or stored.roles.get(asker.principal_id, frozenset()) | asker.credential_roles
