"""One hot grant with a limit, in process: creates under it and checks that use it, beside the creates of figure 1.

A round that spends more or less than it carries out, or leaves another number of entries, fails the figure: a limit is
exact or it is none.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import asyncpg
import orjson

from pamspec_cli.bench.create_inprocess import SECONDS, writing
from pamspec_cli.bench.environment import Environment
from pamspec_cli.bench.figures import Figure, Measured, in_turns
from pamspec_cli.bench.operations import Operations
from pamspec_cli.bench.scopes import create_scopes
from pamspec_common.calls import Call
from pamspec_common.peers import LocalPeer
from pamspec_common.service import Service

PER_SECOND = 300
_DELEGATE = {"actor_id": "agent:bench-delegate", "actor_kind": "agent"}
_LIMIT = 10**9
_SPENT_SQL = """
SELECT d.used, (SELECT count(*) FROM core.ledger l WHERE l.scope_key = d.scope_key
  AND l.event_type = 'delegation_exercised' AND convert_from(l.event, 'UTF8')::jsonb #>> '{payload,delegation_id}' = $1)
FROM core.delegation d WHERE d.delegation_id = $1
"""


async def hot_grant(environment: Environment) -> Sequence[Figure]:
    """At least 300 uses a second of either kind, each counted and told once."""
    async with writing(environment) as writer:
        scopes = list(await create_scopes(environment, writer.service, "delegation", 1))
        measured = Operations(environment, writer, scopes[0])

        async def creates() -> float:
            return await writer.creates_per_second(scopes, SECONDS)

        await creates()
        figures = []
        for name, operation, more in (
            ("delegation.exercise", "create", _created(scopes[0])),
            ("delegation.check", "check_delegation", {"operation": "create"}),
        ):
            grant = await _grant(environment, writer.service, scopes[0])
            uses = _Uses(grant, {**more, "delegation_id": grant, "actor": _DELEGATE})

            async def round_of(operation: str = operation, uses: _Uses = uses) -> float:
                rate = await measured.per_second(operation, uses.body, SECONDS)
                await uses.check(environment.database_url)
                return rate

            await round_of()
            figures.append(_figure(name, *await in_turns(round_of, creates)))
        return figures


class _Uses:
    """The uses of one grant so far."""

    def __init__(self, delegation_id: str, document: dict[str, Any]) -> None:
        self._delegation_id, self._document = delegation_id, document
        self._sent, self._done = itertools.count(), 0

    def body(self) -> tuple[bytes, Callable[[bytes], None]]:
        """The next use."""
        key = {"idempotency_key": f"{self._delegation_id}-{next(self._sent):012d}"}
        return orjson.dumps(self._document | key), self._learn

    def _learn(self, answer: bytes) -> None:
        self._done += 1

    async def check(self, database_url: str) -> None:
        """Raise RuntimeError unless every use was counted and told, once."""
        conn = await asyncpg.connect(database_url)
        try:
            spent = await conn.fetchrow(_SPENT_SQL, self._delegation_id)
        finally:
            await conn.close()
        if spent is None or tuple(spent) != (self._done, self._done):
            raise RuntimeError(f"{self._done} uses were answered, (counted, told) are {spent and tuple(spent)}")


def _created(scope_id: str) -> dict[str, Any]:
    content = {"object_type": "claim", "canonical_content": {"statement": "a bench claim"}}
    return {"scope_id": scope_id, "provenance": {"activity": "bench"}, **content}


async def _grant(environment: Environment, service: Service, scope_id: str) -> str:
    document = {
        "scope_id": scope_id,
        "delegated_actor": _DELEGATE,
        "granted_operations": ["create"],
        "policy_basis": "bench",
        "not_before": "2001-01-01T00:00:00Z",
        "not_after": "2099-01-01T00:00:00Z",
        "usage_limit": _LIMIT,
    }
    call = Call("grant_delegation", environment.principal(), orjson.dumps(document))
    answer = await LocalPeer(service).call(call)
    if answer.status != 201:
        raise RuntimeError(f"grant_delegation answered {answer.status}: {answer.body[:300]!r}")
    return str(orjson.loads(answer.body)["delegation_id"])


def _figure(name: str, rate: Measured, floor: Measured) -> Figure:
    ok = rate.median >= PER_SECOND
    note = "64 callers, one grant with a limit, every use counted and told once; floor: creates"
    return Figure(
        name, rate.median, "uses/s", floor.median, rate.median / floor.median, f">= {PER_SECOND} uses/s", ok,
        rate.spread, floor.spread, note,
    )  # fmt: skip
