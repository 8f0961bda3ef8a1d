"""The servers and databases that every test stands on."""

import asyncio

import asyncpg
import nats as nats_client
import pytest
import uvloop
from nats.errors import Error as NatsError
from nats.errors import NoServersError
from redis.asyncio import Redis

from pamspec_cli.servers.databases import Database
from pamspec_cli.servers.nats import NatsAddress
from pamspec_common.nkey import Kind, new_seed


async def test_clones_are_separate_and_every_role_can_log_in(database: Database) -> None:
    for dsn in database.roles.values():
        connection = await asyncpg.connect(dsn)
        assert await connection.fetchval("SELECT current_database()") == database.name
        await connection.close()
    assert isinstance(asyncio.get_running_loop(), uvloop.Loop)


async def test_the_agent_hears_its_own_subjects_and_says_nothing(nats: NatsAddress) -> None:
    token = "testprincipaltoken00000000"
    refused: asyncio.Queue[str] = asyncio.Queue()

    async def note(error: Exception) -> None:
        refused.put_nowait(str(error).lower())

    service = await nats_client.connect(nats.url, nkeys_seed_str=nats.service_seed)
    agent = await nats_client.connect(
        nats.url, nkeys_seed_str=nats.agent_seed, inbox_prefix=f"_INBOX_{token}".encode(), error_cb=note
    )
    own = await agent.subscribe(f"pamspec.deliver.{token}.>")
    await agent.flush()
    await service.publish(f"pamspec.deliver.{token}.s", b"frame")
    assert (await own.next_msg(60)).data == b"frame"
    for subject in ("pamspec.deliver.>", "pamspec.deliver.other.>", "_INBOX.>", "pamspec.events.>", "$JS.API.>"):
        await agent.subscribe(subject)
        assert "permissions violation for subscription" in await asyncio.wait_for(refused.get(), 60)
    for subject in ("pamspec.op.x.read", "$JS.API.INFO", f"pamspec.deliver.{token}.s", "pamspec.ledger.0.a.b.c"):
        await agent.publish(subject, b"")
        assert "permissions violation for publish" in await asyncio.wait_for(refused.get(), 60)
    await agent.close()
    await service.close()


async def test_an_unknown_key_is_refused(nats: NatsAddress) -> None:
    # Whom the server does not know it asks the callout about, and there is none here.
    with pytest.raises((NatsError, NoServersError, TimeoutError)):
        await nats_client.connect(
            nats.url,
            nkeys_seed_str=new_seed(Kind.USER),
            allow_reconnect=False,
            max_reconnect_attempts=0,
            connect_timeout=2,
        )


async def test_valkey_answers_behind_its_password(valkey_server: str) -> None:
    client: Redis = Redis.from_url(valkey_server)
    await client.set("key", "value", ex=60)
    assert await client.get("key") == b"value"
    await client.aclose()
