"""Acting: the commands of what is due, in bounded batches, and what came of them.

Invariant: a command is written down before it is sent and its row is cleared in the transaction that counts it, so a
process that is killed at any point leaves either nothing, or a command that the next one sends again under the same id
and gets the first outcome of. What changed meanwhile is looked at again, never overwritten.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import orjson

from pamspec_common.calls import Answer, Call
from pamspec_common.errors import ServiceUnavailable
from pamspec_common.peers import Peer
from pamspec_common.principal import TokenSigner, service_principal
from pamspec_common.service import Background
from pamspec_common.strict_json import dumps
from pamspec_common.telemetry import metrics
from pamspec_retention_sweeper.handlers.following import scored, steps_of
from pamspec_retention_sweeper.model.commands import command_of
from pamspec_retention_sweeper.queries import objects, scopes
from pamspec_retention_sweeper.queries.objects import Claim
from pamspec_retention_sweeper.queries.scopes import DueScope, Rules
from pamspec_retention_sweeper.settings import Settings
from pamspec_retention_sweeper.store import Store

_BATCHES_A_TURN = 10
"""After so many batches the next scope has its turn, however much is left of this one."""
_LOOK_AGAIN = frozenset({"version_conflict", "object_deleted", "object_redacted", "object_not_found"})
"""Refusals that tell of a change: the object is looked at again at once."""
HELD = "legal_hold"
_UNTIL_RELEASED_S = 86_400.0


@dataclass
class _Outcome:
    """What came of a batch: objects that were acted on, that changed, and that were refused, with the error's code."""

    done: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


@dataclass
class Acting:
    """What acts, and on what it stands."""

    store: Store
    write: Peer
    signer: TokenSigner
    settings: Settings
    ahead: timedelta

    async def act(self, scope: DueScope, rules: Rules, background: Background) -> bool:
        """Do what is due of a scope; whether more is left."""
        for _ in range(_BATCHES_A_TURN):
            started = time.monotonic()
            claimed = await self._claimed(scope, rules)
            if not claimed:
                return False
            await self._carry_out(scope, rules, claimed)
            left = len(claimed) / self.settings.retention_objects_per_s - (time.monotonic() - started)
            if await background.pause(left) if left > 0 else background.stopping.is_set():
                return False
        return True

    async def _claimed(self, scope: DueScope, rules: Rules) -> list[Claim]:
        """Commands that were begun and not finished; else those of what is due now, written down."""
        key, limit = scope.scope_key, self.settings.retention_batch
        async with self.store.scoped([key]) as conn:
            await scopes.renew(conn, key, self.settings.retention_lease_s)
            left = await objects.claims(conn, key, limit)
            if left:
                return left
            due = await objects.next_due(conn, key, rules.now, limit)
            found = {one.object_id: one for one in await objects.facts(conn, key, list(due), scored(rules))}
            steps = steps_of(rules, found.values())
            wanted = {one: step for one, step in steps.items() if step is not None and step.at <= rules.now}
            await objects.set_steps(conn, key, {one: steps.get(one) for one in due if one not in wanted})
            # The release of what shows its hold makes a version, which is followed; nothing is asked before.
            held = {one: HELD for one in wanted if found[one].retention_state == HELD}
            await objects.hold_up(conn, key, rules.now, _UNTIL_RELEASED_S, held)
            claims = [
                Claim(one, step.action, step.rule, command_of(found[one], step, rules.policy_version, due[one]))
                for one, step in wanted.items()
                if one not in held
            ]
            await objects.claim(conn, key, claims)
        # Where nothing was really due, the rows were put right; the next look finds what is.
        return claims if claims or not due else await self._claimed(scope, rules)

    async def _carry_out(self, scope: DueScope, rules: Rules, claimed: Sequence[Claim]) -> None:
        key = scope.scope_key
        outcome = _outcome(claimed, await self._send(scope, claimed))
        over = [*outcome.done, *outcome.changed]
        async with self.store.scoped([key]) as conn:
            await objects.unclaim(conn, key, over, outcome.done)
            found = await objects.facts(conn, key, over, scored(rules))
            nothing = dict.fromkeys(over)
            await objects.set_steps(conn, key, nothing | steps_of(rules, found))
            await objects.hold_up(conn, key, rules.now, self.settings.retention_retry_s, outcome.refused)
        done = set(outcome.done)
        for one in claimed:
            how = "refused" if one.object_id in outcome.refused else "done" if one.object_id in done else "changed"
            metrics.RETENTION_STEPS.add(1, {"action": one.action, "outcome": how})

    async def _send(self, scope: DueScope, claimed: Sequence[Claim]) -> Answer:
        """The answer of the batch; ServiceUnavailable where nobody knows what came of it."""
        document = {"scope_id": scope.scope_id, "atomic": False, "items": [one.command for one in claimed]}
        token = self.signer.sign(service_principal("retention_sweeper", scope.tenant_id))
        answer = await self.write.call(Call("batch", token, dumps(document)))
        if answer.status >= 500 or answer.status == 429:
            raise ServiceUnavailable("The write service does not take commands now.")
        return answer


def _outcome(claimed: Sequence[Claim], answer: Answer) -> _Outcome:
    outcome = _Outcome()
    document: Mapping[str, Any] = orjson.loads(answer.body)
    results = document["results"] if answer.status < 400 else [document] * len(claimed)
    for one, result in zip(claimed, results, strict=True):
        error = result.get("error")
        if error is None:
            outcome.done.append(one.object_id)
        elif error["code"] in _LOOK_AGAIN:
            outcome.changed.append(one.object_id)
        else:
            outcome.refused[one.object_id] = error["code"]
    return outcome
