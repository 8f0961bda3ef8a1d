"""Whether time tells what may not be known: refusals of what is hidden, beside those of what is missing.

One caller, one request at a time, in random turns; each figure compares 1,000 latencies with 1,000.
"""

import itertools
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import aiohttp
import orjson

from pamspec_cli.bench.environment import Environment, Product
from pamspec_cli.bench.figures import Figure
from pamspec_client import AsyncClient

SCOPE, ELSEWHERE = "bench:seen", "bench:elsewhere"
REQUESTS = 2000
WARM = 200
OBJECTS = 200
MAX_AUC = 0.55
MAX_APART = 0.05
_GUEST = "agent:bench-guest"
_RULE = (
    f'@id("hidden") forbid (principal == Agent::"{_GUEST}", action == Action::"read", resource) '
    'when { resource.object_type == "decision" };'
)
_PROVENANCE = {"activity": "bench"}

Make = Callable[[str], dict[str, Any]]
PLACES = ("hidden", "elsewhere")
OPERATIONS: dict[str, Make] = {
    "read": lambda name: {"object_id": name},
    "inspect_history": lambda name: {"object_id": name},
    "update": lambda name: {
        "object_id": name,
        "expected_version_id": "ver:any",
        "canonical_content": {"statement": "x"},
        "provenance": _PROVENANCE,
    },
}


async def oracle(environment: Environment) -> list[Figure]:
    """Of reads, histories and updates: hidden objects of the scope, and objects of another scope of the tenant."""
    async with environment.product() as product, environment.client(product) as client:
        hidden = await _furnished(client, SCOPE)
        foreign = await _furnished(client, ELSEWHERE)
        key = await _guest(client)
        figures = []
        async with aiohttp.ClientSession() as session:
            asking = _Asking(session, product, key)
            for operation in OPERATIONS:
                for where, names in zip(PLACES, (hidden, foreign), strict=True):
                    figures.append(await _figure(asking, operation, where, names))
        return figures


class _Asking:
    """One caller."""

    def __init__(self, session: aiohttp.ClientSession, product: Product, key: str) -> None:
        self._session, self._url = session, product.url
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    async def seconds(self, operation: str, name: str) -> float:
        """How long it took to be told that there is no such object; RuntimeError for any other answer."""
        body = orjson.dumps({"scope_id": SCOPE, **OPERATIONS[operation](name)})
        began = time.perf_counter()
        async with self._session.post(f"{self._url}/v1/{operation}", data=body, headers=self._headers) as answer:
            told = await answer.read()
        took = time.perf_counter() - began
        if answer.status != 404 or b'"object_not_found"' not in told:
            raise RuntimeError(f"{operation} answered {answer.status}: {told[:300]!r}")
        return took


async def _figure(asking: _Asking, operation: str, where: str, names: Sequence[str]) -> Figure:
    turns = [True, False] * ((REQUESTS + WARM) // 2)
    random.Random(operation + where).shuffle(turns)
    there, missing = itertools.cycle(names), _missing()
    seen: dict[bool, list[float]] = {True: [], False: []}
    for number, is_there in enumerate(turns):
        took = await asking.seconds(operation, next(there if is_there else missing))
        if number >= WARM:
            seen[is_there].append(took)
    told = auc(seen[True], seen[False])
    medians = statistics.median(seen[True]), statistics.median(seen[False])
    apart = abs(medians[0] / medians[1] - 1)
    details = {"median_ms": medians[0] * 1000, "missing_median_ms": medians[1] * 1000, "medians_apart": apart}
    return Figure(
        f"oracle.{operation}.{where}",
        told,
        "AUC",
        None,
        None,
        f"AUC <= {MAX_AUC}, medians within {MAX_APART:.0%}",
        told <= MAX_AUC and apart <= MAX_APART,
        details=details,
        note=f"medians {medians[0] * 1000:.3f} ms and, of what is missing, {medians[1] * 1000:.3f} ms",
    )


def auc(some: Sequence[float], others: Sequence[float]) -> float:
    """How well a threshold tells a member of `some` from one of `others`: 0.5 not at all, 1 always."""
    ranked = sorted([(value, True) for value in some] + [(value, False) for value in others])
    ranks, at = 0.0, 0
    while at < len(ranked):
        end = at
        while end < len(ranked) and ranked[end][0] == ranked[at][0]:
            end += 1
        ranks += sum(is_one for _, is_one in ranked[at:end]) * (at + 1 + end) / 2
        at = end
    share = (ranks - len(some) * (len(some) + 1) / 2) / (len(some) * len(others))
    return max(share, 1 - share)


def _missing() -> Iterator[str]:
    """Ids of the form that the service mints, of objects that do not exist."""
    rng = random.Random(1)
    return (f"obj:01997d4c-3f5e-7a31-8f2e-{rng.getrandbits(48):012x}" for _ in itertools.count())


async def _furnished(client: AsyncClient, scope_id: str) -> list[str]:
    """A scope with decisions; their ids."""
    await client.create_scope(scope_id=scope_id, scope_kind="bench")
    item = {
        "operation": "create",
        "scope_id": scope_id,
        "object_type": "decision",
        "canonical_content": {"statement": "a decision"},
        "provenance": _PROVENANCE,
    }
    answer = await client.call("batch", {"scope_id": scope_id, "items": [item] * OBJECTS})
    return [result["object_id"] for result in orjson.loads(answer.body)["results"]]


async def _guest(client: AsyncClient) -> str:
    """The key of an actor that may write in the scope, and may not see a decision there."""
    made = await client.call(
        "create_key", {"actor_id": _GUEST, "actor_kind": "agent", "roles": [], "policy_basis": "bench"}
    )
    bound = {"scope_id": SCOPE, "actor_id": _GUEST, "role": "curator", "policy_basis": "bench"}
    await client.call("bind_role", bound)
    rules = {"scope_id": SCOPE, "rules": _RULE, "expected_rules_version": 0, "policy_basis": "bench"}
    await client.call("set_access_rules", rules)
    return str(orjson.loads(made.body)["secret"])
