"""The rules of a scope or a tenant: put in force, shown, and explained for an actor.

Invariant: rules are refused that could not apply, that tell too many cases apart together with those they stand beside,
or that would lock out their author.
"""

from __future__ import annotations

import time
from typing import Any

from pamspec_common.authorization.decisions import decide
from pamspec_common.authorization.policies import Policies, PolicyRefused, combined, default_text, parse
from pamspec_common.authorization.rights import Authorizer
from pamspec_common.authorization.vocabulary import ACTIONS, ATTRIBUTES
from pamspec_common.calls import Answer
from pamspec_common.documents import Actor
from pamspec_common.errors import InvalidRequest, ObjectNotFound, VersionConflict
from pamspec_common.instants import wire
from pamspec_common.postgres import Connection
from pamspec_common.principal import Principal
from pamspec_write.documents import administration as requests
from pamspec_write.handlers.access import Access, asker_of
from pamspec_write.handlers.administering import Asked, RolledBack, record
from pamspec_write.queries import administration as queries


class AccessRules:
    """The operations on rules that weigh the rights of somebody."""

    def __init__(self, access: Access, authorizer: Authorizer) -> None:
        self._access, self._authorizer = access, authorizer

    async def set_access_rules(self, conn: Connection, asked: Asked, request: requests.SetAccessRules) -> Answer:
        """Another version of the rules, after the expected one; with dry_run only checked."""
        await queries.raise_epoch(conn, asked.place)
        current = await queries.access_rules(conn, asked.place)
        if current.version != request.expected_rules_version:
            raise VersionConflict(
                "The rules are those of another version; read them again, then decide.",
                details={
                    "current_rules_version": current.version,
                    "expected_rules_version": request.expected_rules_version,
                },
            )
        policies = _accepted(request.rules, await queries.neighbours(conn, asked.place), asked.scope is not None)
        rights = await self._access.rights(asked.principal, asked.actor, asked.scope)
        if decide(policies, rights.subject, "administer", int(time.time())).never:
            raise InvalidRequest(
                "Under these rules you could not administer any more; leave yourself that right.",
                details={"field": "rules", "reason": "lock_out"},
            )
        if request.dry_run:
            raise RolledBack(asked.answer(dry_run=True, rules_version=current.version))
        version = current.version + 1
        await conn.execute(
            queries.INSERT_RULES_SQL, *asked.place, version, request.rules, request.policy_basis, asked.actor.actor_id
        )
        await record(conn, asked, request.policy_basis, None, str(version))
        return asked.answer(dry_run=False, rules_version=version)

    async def explain_access(self, asked: Asked, request: requests.ExplainAccess) -> Answer:
        """What the rules in force say of an actor, an action and a memory with these attributes."""
        if request.action not in ACTIONS:
            raise InvalidRequest("action is no action of rules.", details={"field": "action", "actions": list(ACTIONS)})
        asker = asker_of(
            Principal(asked.principal.tenant_id, request.actor_id, request.actor_kind),
            Actor(request.actor_id, request.actor_kind),
        )
        rights = await self._authorizer.rights(asker, asked.place.scope_key, again=True)
        decision = rights.decision(request.action)
        memory = _memory(request)
        allowed = decision.allows(memory) if memory is not None else not decision.never
        body: dict[str, Any] = {"allowed": allowed, "always": decision.always, "roles": sorted(rights.subject.roles)}
        rule = None if memory is None or allowed else decision.rule(memory)
        if rule is not None:
            body["policy_rule_id"] = rule
        return asked.answer(**body)


async def get_access_rules(conn: Connection, asked: Asked, request: requests.GetAccessRules) -> Answer:
    """The rules in force, or an earlier version of them."""
    rules = await queries.access_rules(conn, asked.place, request.rules_version)
    if rules.record is None:
        if request.rules_version is not None:
            raise ObjectNotFound("There is no such version of the rules.", details={"field": "rules_version"})
        return asked.answer(rules_version=0, rules="")
    return asked.answer(
        rules_version=rules.version,
        rules=rules.text,
        policy_basis=rules.record["policy_basis"],
        changed_by=rules.record["actor_id"],
        changed_at=wire(rules.record["changed_at"]),
    )


def _accepted(text: str, beside: list[str], in_scope: bool) -> Policies:
    """What holds in the place under these rules; InvalidRequest naming each rule that cannot apply.

    Beside a scope's rules stand those of its tenant; those of a tenant hold beside the rules of each of its scopes.
    """
    try:
        own, roles = parse(text), parse(default_text())
        together = [combined([roles, own, parse(other)]) for other in beside]
        return together[0] if in_scope and together else combined([roles, own])
    except PolicyRefused as refused:
        problems = [{"rule": rule, "problem": problem} for rule, problem in refused.problems[:20]]
        raise InvalidRequest(
            "The rules cannot apply; details.problems says which and why.",
            details={"field": "rules", "problems": problems},
        ) from None


def _memory(request: requests.ExplainAccess) -> dict[str, str] | None:
    if request.memory is None:
        return None
    unknown = sorted(request.memory.keys() ^ ATTRIBUTES.keys())
    if unknown:
        raise InvalidRequest(
            f"memory names exactly {', '.join(ATTRIBUTES)}.", details={"field": "memory", "members": unknown}
        )
    return request.memory
