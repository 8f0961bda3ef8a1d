"""Clocks that jump and zones that differ: order, leases, tokens and answers stay what they are."""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp

from pamspec_cli.processes import ServiceProcess
from tests.integration.checks import drained, whole
from tests.integration.clocks import MovableClock
from tests.integration.harness import Fleet, until
from tests.integration.load import make_scopes, notes, ordeal

HOUR_S = 3600
ZONES = ("America/Los_Angeles", "Asia/Kolkata")
STORE_ZONE = "Asia/Kathmandu"


def door(fleet: Fleet, name: str, variables: Mapping[str, str]) -> list[ServiceProcess]:
    """A gateway, the last, with a write, a query and a subscription process of its own, under these variables."""
    services: list[ServiceProcess] = []
    urls: dict[str, str] = {}
    for service in ("write", "query", "subscription", "gateway"):
        services.append(fleet.add(service, f"{service}-{name}", {**variables, **urls}))
        urls[f"PAMSPEC_{service.upper()}_URL"] = services[-1].url
    return services


async def test_the_clock_of_the_services_jumps_to_and_fro(fleet: Fleet, tmp_path: Path) -> None:
    """Python's clock of all services of a door, an hour ahead, then two back, then right again."""
    clock = MovableClock(tmp_path)
    services = door(fleet, "jumps", clock.variables)
    async with fleet.extra(*services), ordeal(fleet, "services-jump", gateways=[services[-1].instance]) as load:
        for ahead in (HOUR_S, -HOUR_S, 0):
            clock.move(ahead)
            async with asyncio.timeout(60):
                await load.more(150)
        assert load.slowest_s < 30.0


async def test_the_clock_of_the_store_jumped_back(fleet: Fleet) -> None:
    """To a ledger whose last entry lies an hour ahead, time stands still; it never goes back."""
    client = fleet.client()
    (scope_id,) = await make_scopes(client, "store-jump", 1)
    more = notes([scope_id], "store-jump")
    await client.create(**next(more))
    async with fleet.database() as connection:
        await connection.execute(
            "UPDATE core.scope_head SET last_at = last_at + interval '1 hour', revision = revision + 1"
            " WHERE scope_key = (SELECT scope_key FROM core.scope WHERE scope_id = $1)",
            scope_id,
        )
    for _ in range(5):
        await client.create(**next(more))
    await whole(fleet, [scope_id])
    async with fleet.database() as connection:
        times = await connection.fetch(
            "SELECT recorded_at FROM core.ledger JOIN core.scope USING (scope_key) WHERE scope_id = $1"
            " ORDER BY sequence",
            scope_id,
        )
    instants = [row[0] for row in times]
    assert instants == sorted(set(instants)), "later entries have later times"
    assert (instants[1] - instants[0]).total_seconds() > HOUR_S
    assert (instants[-1] - instants[1]).total_seconds() < 1


async def test_leases_survive_jumps_of_the_stores_clock(fleet: Fleet) -> None:
    """Back: a lease seems to last an hour more, its living owner puts that right. Forward: another takes it at once."""
    async with fleet.extra(fleet.add("relay", "relay-2")), ordeal(fleet, "lease-jump") as load:
        await jump_leases(fleet, HOUR_S)
        await load.more(100)

        async def put_right() -> bool:
            async with fleet.database() as connection:
                return bool(
                    await connection.fetchval(
                        "SELECT bool_and(expires_at < clock_timestamp() + interval '1 minute') FROM relay.lease"
                    )
                )

        await until(put_right, 60, "the owner renews by the new time")
        fleet.kill("relay")
        await load.more(100)
        await drained(fleet, 60)
        await fleet["relay"].start()
        for _ in range(3):
            await jump_leases(fleet, -HOUR_S)
            await load.more(100)


async def jump_leases(fleet: Fleet, seconds: int) -> None:
    """What leases look like after the store's clock has jumped back by so much, or forward."""
    async with fleet.database() as connection:
        for table, column in (
            ("relay.lease", "expires_at"),
            ("relay.member", "expires_at"),
            ("subscription.subscription", "lease_expires_at"),
        ):
            await connection.execute(f"UPDATE {table} SET {column} = {column} + make_interval(secs => $1)", seconds)


async def script(session: aiohttp.ClientSession, url: str, scope_id: str) -> list[Any]:
    """The same writes and reads; their answers without what is new in each."""

    async def ask(operation: str, **document: Any) -> Any:
        async with session.post(f"{url}/v1/{operation}", json={"scope_id": scope_id, **document}) as answer:
            return await answer.json()

    answers = []
    times = [
        "2024-03-10T02:30:00-08:00",
        "2024-11-03T01:30:00-07:00",
        "2024-06-30T23:59:59.5+05:30",
        "2000-02-29T00:00:00Z",
        "2024-12-31T23:59:59.999999-12:00",
    ]
    for number, time in enumerate(times):
        made = await ask(
            "create",
            object_id=f"obj:at-{number}",
            object_type="observation",
            canonical_content={"at": time},
            provenance={"activity": "test"},
            observed_at=time,
            valid_from=time,
        )
        answers.append(made)
        answers.append(
            await ask(
                "update",
                object_id=f"obj:at-{number}",
                expected_version_id=made["version_id"],
                canonical_content={"at": time, "again": True},
                provenance={"activity": "test"},
                valid_until="2025-01-01T00:00:00Z",
            )
        )
        answers.append(await ask("read", object_id=f"obj:at-{number}"))
    for start, end in (("2024-03-10T00:00:00-08:00", "2024-07-01T00:00:00+05:30"), (times[3], times[4])):
        answers.append(
            await ask(
                "query",
                query={
                    "kind": "temporal",
                    "trust": "all",
                    "temporal_basis": "observed_at",
                    "range": {"from": start, "to": end},
                },
            )
        )
    return answers


def masked(value: Any) -> Any:
    """Without ids and with the form of the times of the commit instead of their values."""
    new = {"version_id", "event_id", "operation_id", "provenance_id", "scope_id", "transformation_parent"}
    if isinstance(value, list):
        return [masked(item) for item in value]
    if not isinstance(value, dict):
        return value
    found = {}
    for name, item in value.items():
        if name in ("committed_at", "recorded_at"):
            assert item.endswith("Z")
            assert len(item) == len("2024-01-01T00:00:00.000000Z")
        elif name not in new:
            found[name] = masked(item)
    return found


async def test_processes_in_different_zones_give_the_same_answers(fleet: Fleet) -> None:
    """M073: Los Angeles, Kolkata, and a store in Kathmandu."""
    async with fleet.database() as connection:
        await connection.execute(f"ALTER DATABASE pamspec SET timezone TO '{STORE_ZONE}'")
    try:
        async with AsyncExitStack() as stack:
            session = await stack.enter_async_context(aiohttp.ClientSession(headers=fleet.headers))
            doors = [door(fleet, f"zone-{number}", {"TZ": zone}) for number, zone in enumerate(ZONES)]
            await stack.enter_async_context(fleet.extra(*doors[0], *doors[1]))
            urls = [services[-1].url for services in doors]
            scopes = await make_scopes(fleet.client(), "zones", 2)
            west, east = [await script(session, url, scope_id) for url, scope_id in zip(urls, scopes, strict=True)]
            assert "error" not in str(west), west
            assert masked(west) == masked(east)
            assert [len(answer["items"]) for answer in west[-2:]] == [2, 4]
            for scope_id in scopes:
                for number in range(5):
                    read = {"scope_id": scope_id, "object_id": f"obj:at-{number}"}
                    bodies = set()
                    for url in urls:
                        async with session.post(f"{url}/v1/read", json=read) as answer:
                            bodies.add(await answer.read())
                    assert len(bodies) == 1, "a version is the same bytes at both doors"
    finally:
        async with fleet.database() as connection:
            await connection.execute("ALTER DATABASE pamspec RESET timezone")
    await whole(fleet, scopes)
