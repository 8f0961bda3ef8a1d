"""Following: what is due of each object of a scope, looked at anew when it changed or the policy did.

Invariant: how far a scope was looked at moves in the transaction that notes what is due, so a killed process's work
goes on where it was. A new policy begins at the first object; what was due by the old one stands until it was looked
at.
"""

from __future__ import annotations

from collections.abc import Iterable

from pamspec_retention_sweeper.model.steps import Facts, Step, next_step
from pamspec_retention_sweeper.queries import objects, scopes
from pamspec_retention_sweeper.queries.scopes import DueScope, Followed, Rules
from pamspec_retention_sweeper.store import Store

_HEADS = 500
_PAGES_A_TURN = 20
"""After so many pages the next scope has its turn, however much is left of this one."""


async def follow(store: Store, scope: DueScope, held: Followed, rules: Rules) -> bool:
    """Look at what changed; whether more is left."""
    key = scope.scope_key
    if (held.policy_version, held.ledger_epoch) != (rules.policy_version, rules.ledger_epoch):
        async with store.scoped([key]) as conn:
            held = await scopes.take_in(conn, key, rules)
    done = held.followed_seq
    for _ in range(_PAGES_A_TURN):
        async with store.scoped([key]) as conn:
            if rules.retention.acts:
                heads = await objects.next_heads(conn, key, done, rules.last_seq, _HEADS)
                found = await objects.facts(conn, key, heads.object_ids, scored(rules))
                await objects.set_steps(conn, key, steps_of(rules, found))
                done, ended = heads.until, heads.ended
            else:
                done, ended = rules.last_seq, True
            await scopes.followed(conn, key, done, rules.policy_version)
        if ended:
            return False
    return True


def steps_of(rules: Rules, found: Iterable[Facts]) -> dict[str, Step | None]:
    """The next step of each of these objects."""
    return {facts.object_id: next_step(rules.retention, facts, rules.now) for facts in found}


def scored(rules: Rules) -> bool:
    """Whether a rule asks for what a score is made of."""
    return any(rule.scores for rule in rules.retention.rules())
