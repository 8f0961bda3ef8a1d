"""Figures of reads on much data: queries of a million objects, the history of an object of 10,000 versions."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import orjson

import pamspec_query.app
from pamspec_cli.bench import version_rows
from pamspec_cli.bench.environment import Environment
from pamspec_cli.bench.figures import Figure, percentile
from pamspec_cli.deployment import in_environment
from pamspec_common.calls import Call
from pamspec_common.peers import LocalPeer
from pamspec_query.settings import Settings

SMALL, LARGE = 10_000, 1_000_000
TWICE = 2.0
ROUNDS, WARM = 60, 10
VERSIONS, PAGE = 10_000, 50
READS = 300
WITHIN = 1.2


def _where(field: str, op: str, value: Any) -> dict[str, Any]:
    return {"kind": "structured", "trust": "working", "where": {"field": field, "op": op, "value": value}}


def _temporal(basis: str, start: Any, end: Any) -> dict[str, Any]:
    return {"kind": "temporal", "trust": "working", "temporal_basis": basis, "range": {"from": start, "to": end}}


def _filters(trust: str, **filters: Any) -> dict[str, Any]:
    return {"kind": "structured", "trust": trust, "filters": filters}


QUERIES: Mapping[str, dict[str, Any]] = {
    "default": {"kind": "structured"},
    "working": {"kind": "structured", "trust": "working"},
    "type": _filters("working", object_type=["claim"]),
    "rare type": _filters("working", object_type=["task"]),
    "rare state": _filters("all", retention_state=["legal_hold"]),
    "provenance": _filters("all", provenance_id=["prov:b-00004321"]),
    "object": _where("object_id", "eq", "obj:bench-00004321"),
    "version": _where("version_id", "eq", "ver:b-00004321"),
    "actor": _where("actor.actor_id", "eq", "agent:visitor"),
    "schema": _where("schema_id", "eq", "https://bench.example/schema"),
    "observed": _temporal("observed_at", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"),
    "committed": _temporal("committed_at", "2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z"),
    "sequence": _temporal("sequence", 2_000, 3_000),
    "content in 5": _where("content:/speaker", "eq", "speaker 2"),
    "content in 100": _where("content:/topic", "eq", "topic 2"),
    "content in 1000": _where("content:/place/harbour", "eq", "berth 2"),
    "content, ten": _where("content:/party", "eq", "party 123"),
    "content, one": _where("content:/turn", "eq", 4321),
    "content, none": _where("content:/turn", "eq", "none"),
    "element": _where("content:/tags", "contains", ["tag 5"]),
    "part": _where("content:", "contains", {"place": {"harbour": "berth 7"}}),
}


class Reader:
    """The query service in this process, called as the gateway calls it."""

    def __init__(self, peer: LocalPeer, environment: Environment) -> None:
        self._peer, self._environment = peer, environment

    async def timed(self, operation: str, document: Mapping[str, Any]) -> tuple[float, bytes]:
        """Milliseconds that an answer took, and its body; RuntimeError for one that is no success."""
        call = Call(operation, self._environment.principal(), orjson.dumps(document))
        started = time.perf_counter()
        answer = await self._peer.call(call)
        took = (time.perf_counter() - started) * 1000
        if answer.status != 200:
            raise RuntimeError(f"{operation} answered {answer.status}: {answer.body[:300]!r}")
        return took, answer.body


@asynccontextmanager
async def query_reader(environment: Environment) -> AsyncIterator[Reader]:
    with in_environment(environment.deployment.variables("query")):
        service = pamspec_query.app.build(Settings())
    await service.start()
    try:
        yield Reader(LocalPeer(service), environment)
    finally:
        await service.stop()


async def structured(environment: Environment) -> Figure:
    """A page of every kind of query: at 1,000,000 objects at most twice as slow as at 10,000."""
    await version_rows.fill(environment.database_url, "bench:small", SMALL, version_rows.objects)
    await version_rows.fill(environment.database_url, "bench:large", LARGE, version_rows.objects)
    took: dict[tuple[str, str], list[float]] = {}
    async with query_reader(environment) as reader:
        for number in range(WARM + ROUNDS):
            for name, scope_id in itertools.product(QUERIES, ("bench:small", "bench:large")):
                one, _ = await reader.timed("query", {"scope_id": scope_id, "query": QUERIES[name]})
                if number >= WARM:
                    took.setdefault((name, scope_id), []).append(one)
    small, large = (
        percentile([one for (_, scope_id), each in took.items() if scope_id == wanted for one in each], 0.95)
        for wanted in ("bench:small", "bench:large")
    )
    medians = {
        name: {
            str(size): round(statistics.median(took[name, scope_id]), 3)
            for scope_id, size in (("bench:small", SMALL), ("bench:large", LARGE))
        }
        for name in QUERIES
    }
    return Figure(
        name="query.structured",
        value=large,
        unit="ms",
        floor=small,
        ratio=large / small,
        target=f"<= {TWICE:g} x floor",
        ok=large <= small * TWICE,
        note=f"p95 of {len(QUERIES)} kinds of query at {LARGE:,} objects; floor: at {SMALL:,}",
        details={"median_ms": medians},
    )


async def long_object(environment: Environment) -> Figure:
    """The last page of a long history takes as long as the first."""
    rows = version_rows.versions(VERSIONS)
    await version_rows.fill(environment.database_url, "bench:history", VERSIONS, rows)
    request = {"scope_id": "bench:history", "object_id": version_rows.LONG_OBJECT}
    first: dict[str, Any] = {**request, "pagination": {"limit": PAGE}}
    async with query_reader(environment) as reader:
        last, cursor = first, await _cursor(reader, first)
        while cursor is not None:
            last = {**request, "pagination": {"limit": PAGE, "cursor": cursor}}
            cursor = await _cursor(reader, last)
        took: tuple[list[float], list[float]] = ([], [])
        for number in range(WARM + READS):
            for page, document in zip(took, (first, last), strict=True):
                one, body = await reader.timed("inspect_history", document)
                if len(orjson.loads(body)["events"]) != PAGE:
                    raise RuntimeError("a page is not full")
                if number >= WARM:
                    page.append(one)
    beginning, end = (statistics.median(page) for page in took)
    return Figure(
        name="history.long_object",
        value=end,
        unit="ms a page",
        floor=beginning,
        ratio=end / beginning,
        target=f"<= {WITHIN:g} x floor",
        ok=end <= beginning * WITHIN,
        note=f"last page of {PAGE} of an object with {VERSIONS:,} versions; floor: its first; median of {READS}",
    )


async def _cursor(reader: Reader, document: Mapping[str, Any]) -> str | None:
    found: str | None = orjson.loads((await reader.timed("inspect_history", document))[1])["next_cursor"]
    return found
