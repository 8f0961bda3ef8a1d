"""The operation door: what it passes on, what it refuses, and what it holds."""
import asyncio
import orjson
import pytest
from pamspec_common import contracts
from pamspec_common.calls import Answer

async def test_operation_passes_as_it_came(door):
    status, body, headers = await door.post("/v1/create", b'{ "a" : 1.0 }', Idempotency_Key="k-1", traceparent="00-aa-bb-01")
    assert (status, body) == (200, b'{"told":true}')
    assert headers["Pamspec-Ledger-Sequence"] == "7"
    told = door.behind.calls[0]
    assert (told.operation, told.body, told.idempotency_key, told.traceparent) == ("create", b'{ "a" : 1.0 }', "k-1", "00-aa-bb-01")
    assert told.principal.actor_id == "agent:a"
