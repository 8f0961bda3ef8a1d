"""A real server takes the streams and consumers as the contract asks for them, and republishes as it says."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import nats as nats_client
import pytest
import pytest_asyncio
from nats.aio.client import Client

from pamspec_cli.servers.nats import NatsAddress
from pamspec_common import contracts
from pamspec_common.contracts.catalogues import Consumer


@pytest_asyncio.fixture(loop_scope="session")
async def service(nats: NatsAddress) -> AsyncIterator[Client]:
    client = await nats_client.connect(nats.url, nkeys_seed_str=nats.service_seed)
    yield client
    await client.close()


async def ask(client: Client, api: str, document: dict[str, Any]) -> dict[str, Any]:
    reply = await client.request(f"$JS.API.{api}", json.dumps(document).encode(), timeout=60)
    answer: dict[str, Any] = json.loads(reply.data)
    assert "error" not in answer, answer
    return answer


@pytest.mark.parametrize("name", ["ledger", "checkpoints", "erasures"])
async def test_the_server_keeps_every_setting(service: Client, name: str) -> None:
    wanted = contracts.streams().stream_request(name, 3)
    made = await ask(service, f"STREAM.CREATE.{wanted['name']}", wanted)
    assert {name: made["config"][name] for name in wanted} == wanted
    again = await ask(service, f"STREAM.UPDATE.{wanted['name']}", wanted)
    assert {name: again["config"][name] for name in wanted} == wanted


async def test_the_bucket_of_checkpoints_is_a_key_value_bucket(service: Client) -> None:
    wanted = contracts.streams().stream_request("checkpoints", 0)
    await ask(service, f"STREAM.CREATE.{wanted['name']}", wanted)
    key = f"{'a' * 26}.{'b' * 26}"
    bucket = await service.jetstream().key_value("PAMSPEC_CHECKPOINTS")
    await bucket.put(key, b"{}")
    assert (await bucket.get(key)).value == b"{}"
    assert (
        contracts.streams().subjects["checkpoint"].subject(tenant_token="a" * 26, scope_token="b" * 26)
        == f"$KV.PAMSPEC_CHECKPOINTS.{key}"
    )


async def test_a_stored_event_is_republished_without_its_partition(service: Client) -> None:
    wanted = contracts.streams().stream_request("ledger", 0)
    await ask(service, f"STREAM.CREATE.{wanted['name']}", wanted)
    subjects = contracts.streams().subjects
    names = {"tenant_token": "a" * 26, "scope_token": "b" * 26, "event_type": "object_created"}
    listener = await service.subscribe(subjects["events"].filter(tenant_token=names["tenant_token"]))
    await service.request(subjects["ledger"].subject(partition="0", **names), b"{}", timeout=60)
    message = await listener.next_msg(timeout=60)
    assert message.subject == subjects["events"].subject(**names)
    assert message.headers is not None
    assert message.headers["Nats-Stream"] == wanted["name"]
    assert message.headers["Nats-Subject"] == subjects["ledger"].subject(partition="0", **names)


async def test_the_file_can_carry_a_services_consumers(service: Client) -> None:
    entry = {
        "name": "indexing_{partition}",
        "service": "indexing",
        "description": "Feeds the derived indexes.",
        "ack_wait_seconds": 30,
        "max_ack_pending": 1000,
        "max_deliver": -1,
    }
    contracts.check("streams#/$defs/consumer", entry)
    consumer = msgspec.convert(entry, Consumer)
    stream = contracts.streams().stream_request("ledger", 1)
    await ask(service, f"STREAM.CREATE.{stream['name']}", stream)
    durable, config = consumer.durable(1), consumer.request(1)
    made = await ask(
        service,
        f"CONSUMER.DURABLE.CREATE.{stream['name']}.{durable}",
        {"stream_name": stream["name"], "config": config},
    )
    assert made["name"] == "indexing_1"
    assert {name: made["config"][name] for name in config} == config
