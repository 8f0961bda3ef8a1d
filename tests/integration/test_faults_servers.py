"""PostgreSQL and NATS restarted, hung, emptied or away while writers and followers go on."""

import asyncio
import shutil
import signal

import aiohttp
import pytest

from tests.integration.checks import drained, lag
from tests.integration.harness import Fleet, until
from tests.integration.load import Load, ordeal

LAG_BACK_TO_ZERO_S = 90.0
RESUMES_S = 60.0


async def writes_go_on(load: Load, number: int = 50, within_s: float = 60.0) -> None:
    async with asyncio.timeout(within_s):
        await load.more(number)


async def not_well(fleet: Fleet) -> dict[str, object]:
    """The parts that are not well, by their names."""
    parts = (await fleet.readiness()).get("parts", {})
    assert isinstance(parts, dict)
    return {name: part for name, part in parts.items() if not part["ok"]}


async def gauge(url: str, name: str) -> float:
    """The sum of a metric over its labels."""
    async with aiohttp.ClientSession() as session, session.get(f"{url}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


@pytest.mark.parametrize("how", ["ordered", "killed"])
async def test_postgres_restarts_under_load(fleet: Fleet, how: str) -> None:
    async with ordeal(fleet, f"postgres-{how}") as load:
        for _ in range(3):
            if how == "killed":
                fleet.postgres.process.kill()
            else:
                await fleet.postgres.stop()
            await fleet.postgres.start()
            await writes_go_on(load)
        await fleet.ready(within_s=LAG_BACK_TO_ZERO_S)
    await drained(fleet, LAG_BACK_TO_ZERO_S)


async def test_writes_go_on_without_the_bus_and_readiness_names_what_lags(fleet: Fleet) -> None:
    """M080."""
    async with ordeal(fleet, "bus-away", per_second=100) as load:
        fleet.nats.process.kill()
        before = load.done

        async def told() -> bool:
            return {"relay.bus", "relay.outbox", "subscription.bus"} <= set(await not_well(fleet))

        await until(told, 60, "readiness says that the bus is away and that the outbox lags")
        assert (await fleet.readiness())["status"] == "degraded"
        await load.reached(before + 400)
        assert await lag(fleet) >= 400
        assert await gauge(fleet["relay"].url, "pamspec_outbox_depth") >= 100
        assert await gauge(fleet["relay"].url, "pamspec_outbox_age_seconds") > 1
        await fleet.nats.start()
        await drained(fleet, LAG_BACK_TO_ZERO_S)
        await fleet.ready()


async def test_followers_over_http_get_events_while_the_bus_is_away(fleet: Fleet) -> None:
    async with ordeal(fleet, "ledger-only", channels=("poll", "sse", "websocket")) as load:
        fleet.nats.process.kill()
        await writes_go_on(load, 200)
        await fleet.nats.start()


async def test_a_hung_bus_holds_up_nobody_but_itself(fleet: Fleet) -> None:
    async with ordeal(fleet, "bus-hung") as load:
        fleet.nats.process.send(signal.SIGSTOP)
        try:
            await writes_go_on(load, 400)
        finally:
            fleet.nats.process.send(signal.SIGCONT)
        await drained(fleet)


async def test_the_directory_of_jetstream_is_deleted(fleet: Fleet) -> None:
    async with ordeal(fleet, "wiped") as load:
        fleet.nats.process.kill()
        shutil.rmtree(fleet.nats.store)
        await writes_go_on(load)
        await fleet.nats.start()
        await drained(fleet)


async def test_a_stream_is_deleted_while_everything_runs(fleet: Fleet) -> None:
    """B36."""
    async with ordeal(fleet, "deleted") as load:
        async with fleet.bus() as client:
            await client.jetstream().delete_stream("PAMSPEC_LEDGER_0")
        await writes_go_on(load)
        await drained(fleet)


async def test_the_bus_restarts_five_times_and_everybody_resumes(fleet: Fleet) -> None:
    """B33."""
    async with ordeal(fleet, "five-times") as load:
        for _ in range(5):
            await fleet.restart_nats()
            await writes_go_on(load, 20, RESUMES_S)

            async def all_connected() -> bool:
                return not [name for name in await not_well(fleet) if name.endswith(".bus")]

            await until(all_connected, RESUMES_S, "everybody is connected again")


async def test_the_relay_starts_with_an_empty_memory(fleet: Fleet) -> None:
    """B18: without its position it reads back instead of publishing everything again."""
    async with ordeal(fleet, "forgotten") as load:
        fleet.kill("relay")
        async with fleet.database() as connection:
            await connection.execute("DELETE FROM relay.position; DELETE FROM relay.mark; DELETE FROM relay.lease")
        await fleet["relay"].start()
        await writes_go_on(load)
