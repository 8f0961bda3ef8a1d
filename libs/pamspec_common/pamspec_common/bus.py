"""NATS: one way to connect, and the streams of contracts/streams.yaml created as written there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import nats
from nats.aio.client import Client
from nats.errors import Error as NatsError
from pydantic import SecretStr

from pamspec_common.settings import CommonSettings
from pamspec_common.tls import client_context

_log = logging.getLogger(__name__)

PING_INTERVAL_S = 15
RECONNECT_WAIT_S = 0.25

HEADER_EVENT_ID = "Pamspec-Event-Id"
HEADER_EPOCH = "Pamspec-Ledger-Epoch"
HEADER_SEQUENCE = "Pamspec-Ledger-Sequence"


async def connect(
    settings: CommonSettings,
    name: str,
    *,
    seed: SecretStr | None = None,
    on_closed: Callable[[], Awaitable[None]] | None = None,
    on_disconnect: Callable[[], Awaitable[None]] | None = None,
    on_reconnect: Callable[[], Awaitable[None]] | None = None,
) -> Client:
    """A connection that never gives up, once it is there; the call itself waits until the server is there.

    A service that must start during a bus outage therefore awaits this in a background task. It logs in with `seed`,
    or as services do. Only a server that refuses the login closes it for good (`on_closed`).
    """

    async def failed(error: Exception) -> None:
        _log.info("bus: %s", error, extra={"action": "bus_error"})

    async def nothing() -> None:
        return None

    seed = seed or settings.nats_nkey_seed
    tls = settings.tls()
    return await nats.connect(
        settings.nats_url.split(","),
        name=f"pamspec-{name}",
        nkeys_seed_str=seed.get_secret_value() if seed else None,
        tls=client_context(tls) if tls else None,
        max_reconnect_attempts=-1,
        reconnect_time_wait=RECONNECT_WAIT_S,
        ping_interval=PING_INTERVAL_S,
        max_outstanding_pings=2,
        allow_reconnect=True,
        error_cb=failed,
        closed_cb=on_closed or nothing,
        disconnected_cb=on_disconnect or nothing,
        reconnected_cb=on_reconnect or nothing,
        pending_size=8 * 1024 * 1024,
        drain_timeout=5,
    )


async def close(client: Client | None, timeout_s: float = 2.0) -> None:
    """Close a connection within a bound, also while the server is away; None and a closed one are fine."""
    if client is None or client.is_closed:
        return
    try:
        async with asyncio.timeout(timeout_s):
            await client.close()
    except (NatsError, OSError, TimeoutError, RuntimeError) as error:
        # The client writes what is pending to a transport that may be gone: the event loop answers with RuntimeError.
        _log.info("bus: closed without a farewell: %s", error, extra={"action": "bus_closed"})


def wake_subject(partition: int) -> str:
    """The core subject on which a commit wakes the relay of a partition."""
    return f"pamspec.wake.{partition}"


def ledger_subject(partition: int, tenant_token: str, scope_token: str, event_type: str) -> str:
    """The ingest subject of an event (contracts/streams.yaml)."""
    return f"pamspec.ledger.{partition}.{tenant_token}.{scope_token}.{event_type}"


def event_subject(tenant_token: str, scope_token: str, event_type: str) -> str:
    """The republished topic of an event; `>` as the type stands for all of a scope."""
    return f"pamspec.events.{tenant_token}.{scope_token}.{event_type}"


def deliver_subject(principal_token: str, subscription_token: str) -> str:
    """The delivery subject of a subscription over NATS."""
    return f"pamspec.deliver.{principal_token}.{subscription_token}"
