"""check_delegation and explain_delegation: whether a use would be permitted now, and by which rule it is not.

Invariant: a check without `consume` changes nothing; one that uses the grant is a command of the write service. A
permission is repeated from a cache only under epochs that were confirmed within the bound, within every window of the
chain, and never where a limit of uses stands in it.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from msgspec import structs

from pamspec_common.asked import Asked
from pamspec_common.authorization.rights import Authorizer, Epochs
from pamspec_common.calls import HEADER_LEDGER_EPOCH, Answer
from pamspec_common.delegation.grants import authority, is_party
from pamspec_common.delegation.verdicts import Verdict, require, verdicts
from pamspec_common.documents import Actor
from pamspec_common.peers import Peer
from pamspec_common.principal import TokenSigner
from pamspec_common.strict_json import dumps
from pamspec_common.telemetry.metrics import DELEGATION_CHECK_SECONDS, DELEGATION_CHECKS
from pamspec_delegation.confirming import Confirmations, own_clock
from pamspec_delegation.documents import Check, Explain, checked
from pamspec_delegation.handlers.asked import audits, rights_of
from pamspec_delegation.model import Permission, explanation, no_such_grant, permission, stands, use_of
from pamspec_delegation.queries.grants import Facts, fetch_exercises
from pamspec_delegation.shared_cache import Name, SharedCache
from pamspec_delegation.store import Store

_KEPT = 100_000


@dataclass
class Checking:
    """The operations, and what they stand on."""

    store: Store
    write: Peer
    signer: TokenSigner
    """Signs callers anew whose check is a command of the write service."""
    authorizer: Authorizer
    confirmations: Confirmations
    shared: SharedCache
    lifetime_s: float
    _permissions: OrderedDict[Name, Permission] = field(default_factory=OrderedDict)

    async def check(self, asked: Asked[Check]) -> Answer:
        """The grant, when the actor may carry the operation out under it now; AccessDenied with the reason else."""
        if asked.request.consume:
            DELEGATION_CHECKS.add("consumed")
            call = structs.replace(asked.call, principal=self.signer.sign(asked.principal, "write"))
            return await self.write.call(call)
        checked(asked.request)
        began, name = own_clock(), _name(asked)
        held, result = await self._held(name), "kept"
        try:
            if held is None:
                result = "refused"
                held = await self._decide(asked, name)
                result = "decided"
        finally:
            DELEGATION_CHECKS.add(result)
            DELEGATION_CHECK_SECONDS.observe(own_clock() - began)
        return Answer(200, held.body(asked.operation_id), {HEADER_LEDGER_EPOCH: str(held.ledger_epoch)})

    async def explain(self, asked: Asked[Explain]) -> Answer:
        """The chain with every rule's verdict, for its parties, auditors and administrators."""
        request = asked.request
        checked(request)
        facts = await self._facts(asked, auditing=True)
        viewer = asked.principal.actor_id
        everything = audits(await rights_of(self.authorizer, asked.principal, None, *_home(facts)))
        last = facts.chain[-1]
        async with self.store.session() as conn:
            exercised = await fetch_exercises(conn, last.delegation_id, last.target_key)
        found = await self._verdicts(asked, facts)
        told = explanation(facts.chain, found, facts.now, viewer, exercised, everything=everything)
        told["operation_id"] = asked.operation_id
        return Answer(200, dumps(told), {HEADER_LEDGER_EPOCH: str(facts.ledger_epoch)})

    async def _held(self, name: Name) -> Permission | None:
        """A permission that may be repeated."""
        held = self._permissions.get(name) or await self.shared.get(name)
        if held is None:
            return None
        confirmed = await self.confirmations.confirmed(held.scope_key)
        if confirmed is not None and stands(
            held, confirmed.epochs, confirmed.now, own_clock() - confirmed.asked_at, self.lifetime_s
        ):
            self._keep(name, held)
            return held
        self._permissions.pop(name, None)
        return None

    async def _decide(self, asked: Asked[Check], name: Name) -> Permission:
        """Decide anew, and keep what may be kept."""
        facts = await self._facts(asked)
        require(iter(await self._verdicts(asked, facts)))
        made, repeatable = permission(facts.chain, facts.envelope, facts.ledger_epoch, facts.target_epochs, facts.now)
        if repeatable:
            self._keep(name, made)
            await self.shared.put(name, made)
        return made

    def _keep(self, name: Name, made: Permission) -> None:
        self._permissions[name] = made
        if len(self._permissions) > _KEPT:
            self._permissions.popitem(last=False)

    async def _facts(self, asked: Asked[Check] | Asked[Explain], *, auditing: bool = False) -> Facts:
        """What the check rests on; ObjectNotFound for who is no party and may not check, or audit, either."""
        principal, request = asked.principal, asked.request
        facts = await self.store.facts(principal.tenant_id, request.delegation_id, request.object_id)
        if facts is None:
            raise no_such_grant()
        if not is_party(facts.chain, principal.actor_id):
            rights = await rights_of(self.authorizer, principal, None, *_home(facts))
            if rights.decision("check_delegation").never and not (auditing and audits(rights)):
                raise no_such_grant()
        return facts

    async def _verdicts(self, asked: Asked[Check] | Asked[Explain], facts: Facts) -> list[Verdict]:
        principal, request, chain = asked.principal, asked.request, facts.chain
        actor = request.actor or Actor(principal.actor_id, principal.actor_kind)
        found = None if facts.object_kind is None else (facts.object_kind, facts.object_type or "")
        asker = authority(chain, principal.tenant_id)
        rights = await self.authorizer.rights(asker, chain[-1].target_key, facts.target_epochs)
        return list(verdicts(chain, use_of(request, actor, chain, found), facts.now, rights))


def _home(facts: Facts) -> tuple[int, Epochs]:
    return facts.chain[-1].scope_key, facts.home_epochs


def _name(asked: Asked[Check]) -> Name:
    """Everything that tells one check from another."""
    principal, request = asked.principal, asked.request
    actor = request.actor
    return (
        principal.tenant_id,
        principal.actor_id,
        "" if actor is None else actor.actor_id,
        principal.actor_kind if actor is None else actor.actor_kind,
        *sorted(principal.roles),
        request.delegation_id,
        request.operation,
        request.scope_id or "",
        request.object_id or "",
        request.object_type or "",
    )
