"""Streams on a real server: made as the contract says, verified, and read back without a hole."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import nats as nats_client
import orjson
import pytest
import pytest_asyncio
from nats.aio.client import Client
from nats.errors import Error, NoRespondersError

from pamspec_cli.servers.nats import EmbeddedNats, NatsAddress
from pamspec_common import contracts, streams
from pamspec_common.streams import Drift, StoredMessage, StreamInfo, StreamRefused

NAME = "PAMSPEC_LEDGER_3"
SUBJECT = "pamspec.ledger.3.tenant.scope.object_created"


@pytest_asyncio.fixture(loop_scope="session")
async def client(nats: NatsAddress) -> AsyncIterator[Client]:
    connection = await nats_client.connect(nats.url, nkeys_seed_str=nats.service_seed)
    yield connection
    await connection.close()


def request(**changes: Any) -> dict[str, Any]:
    return {**contracts.streams().stream_request("ledger", 3), **changes}


async def fill(client: Client, count: int, size: int = 10) -> None:
    for number in range(count):
        await client.publish(SUBJECT, b"%d" % number + b"x" * size, headers={"N": str(number)})
    await client.request(SUBJECT, b"last", timeout=30)


async def whole(client: Client, after: int = 0) -> list[StoredMessage]:
    info = await streams.inspect(client, NAME)
    assert info is not None
    return [message async for page in streams.read(client, info, after) for message in page]


async def test_a_missing_stream_is_made_as_the_contract_says(client: Client) -> None:
    assert await streams.inspect(client, NAME) is None
    made = await streams.ensure(client, request())
    assert made.made
    assert made.drift == ()
    assert (made.info.first_seq, made.info.last_seq, made.info.messages, made.info.deleted) == (0, 0, 0, 0)
    config = made.info.config
    assert config["max_age"] == 7 * 24 * 3600 * 10**9
    assert config["allow_atomic"]
    assert config["republish"] == {"src": "pamspec.ledger.3.>", "dest": "pamspec.events.>"}
    again = await streams.ensure(client, request())
    assert not again.made
    assert again.drift == ()
    assert again.info.created == made.info.created


async def test_b43_streams_of_the_ledger_count_no_messages(client: Client) -> None:
    """B43: a bound on messages, or on those of a subject, makes the server count subjects; age alone bounds it."""
    config = (await streams.ensure(client, request())).info.config
    assert (config["max_msgs"], config["max_msgs_per_subject"], config["max_bytes"]) == (-1, -1, -1)
    assert config["max_age"] > 0
    assert config["discard"] == "old"


async def test_a_difference_is_reported_and_left_alone(client: Client) -> None:
    await streams.ensure(client, request(max_age=10**9 * 3600, discard="new", allow_direct=False))
    found = await streams.ensure(client, request())
    assert {item.setting for item in found.drift} == {"max_age", "discard", "allow_direct"}
    assert Drift("discard", "old", "new") in found.drift
    assert found.info.config["discard"] == "new"


async def test_a_refusal_says_why(client: Client) -> None:
    with pytest.raises(StreamRefused, match="PAMSPEC_LEDGER_3") as caught:
        await streams.ensure(client, request(num_replicas=3))
    assert caught.value.code
    await streams.ensure(client, request(name="OTHER"))
    with pytest.raises(StreamRefused, match="overlap"):
        await streams.ensure(client, request())


async def test_everything_beyond_a_sequence_is_read_in_order(client: Client) -> None:
    await streams.ensure(client, request())
    assert await whole(client) == []
    await fill(client, 2500)
    messages = await whole(client)
    assert [message.sequence for message in messages] == list(range(1, 2502))
    assert messages[7].data == b"7" + b"x" * 10
    assert messages[7].headers["N"] == "7"
    assert messages[7].subject == SUBJECT
    assert [message.sequence for message in await whole(client, 2499)] == [2500, 2501]
    assert await whole(client, 2501) == []


async def test_pages_are_bounded_by_bytes(client: Client) -> None:
    await streams.ensure(client, request())
    await fill(client, 30, size=500_000)
    info = await streams.inspect(client, NAME)
    assert info is not None
    pages = [page async for page in streams.read(client, info, 0)]
    assert sum(map(len, pages)) == 31
    assert len(pages) > 3


async def test_what_the_stream_no_longer_has_is_no_hole(client: Client) -> None:
    await streams.ensure(client, request(deny_delete=False))
    await fill(client, 99)
    for sequence in (5, 6, 50, 100):
        await client.request(f"$JS.API.STREAM.MSG.DELETE.{NAME}", orjson.dumps({"seq": sequence}))
    await client.request(f"$JS.API.STREAM.PURGE.{NAME}", b'{"seq":4}')
    info = await streams.inspect(client, NAME)
    assert info is not None
    assert (info.first_seq, info.last_seq) == (4, 100)
    assert info.deleted in (3, 4)
    assert [message.sequence for message in await whole(client)] == [4, *range(7, 50), *range(51, 100)]
    await client.request(f"$JS.API.STREAM.PURGE.{NAME}", b"")
    assert await whole(client) == []
    assert [page async for page in streams.read(client, info, 0)] == []


async def test_a_stream_made_anew_under_a_reader_is_noticed(client: Client) -> None:
    made = await streams.ensure(client, request())
    await fill(client, 3)
    info = await streams.inspect(client, NAME)
    assert info is not None
    await client.request(f"$JS.API.STREAM.DELETE.{NAME}")
    with pytest.raises((StreamRefused, NoRespondersError)):
        await _drain(client, info)
    await streams.ensure(client, request())
    with pytest.raises(streams.StreamIncomplete, match="anew"):
        await _drain(client, info)
    assert made.info.created == info.created


async def _drain(client: Client, info: StreamInfo) -> None:
    async for _ in streams.read(client, info, 0):
        continue


async def test_without_a_server_there_is_an_error_at_once(client: Client, nats_process: EmbeddedNats) -> None:
    await streams.ensure(client, request())
    await nats_process.stop()
    with pytest.raises(Error):
        await streams.inspect(client, NAME, 1.0)
