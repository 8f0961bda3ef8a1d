"""How any operation is called: named once, answered in type, and within a session never older than what was seen."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from pamspec_client.bus import Bus, NatsLogin
from pamspec_client.bus_transport import BusTransport, is_bus
from pamspec_client.documents import FollowChannel
from pamspec_client.errors import InvalidRequest
from pamspec_client.models.document import D
from pamspec_client.positions import REPLAYED, Positions
from pamspec_client.transport import Names, Reply, RetryPolicy, Transport
from pamspec_client.wire import encode, uuid7

DEFAULT_URL = "http://127.0.0.1:8080"
SESSION_WAIT_MS = 5000
PAGE = 200

_WRITES = frozenset(
    {
        "create",
        "update",
        "transition",
        "redact",
        "delete",
        "relate",
        "promote",
        "batch",
        "seal_snapshot",
        "create_scope",
        "update_scope",
        "register_schema",
        "register_embedding_space",
        "bind_role",
        "unbind_role",
        "set_access_rules",
        "create_key",
        "rotate_key",
        "revoke_key",
        "delete_scope",
        "forget",
        "create_tenant",
        "suspend_tenant",
        "resume_tenant",
        "offboard_tenant",
        "set_quotas",
        "replay_parked_entries",
        "grant_delegation",
        "revoke_delegation",
        "check_delegation",
        "place_hold",
        "release_hold",
        "subscribe",
        "unsubscribe",
    }
)
_FLOORED = frozenset({"read", "query", "assemble", "inspect_history"})


class Caller:
    """Connections to one gateway as one principal; `AsyncClient` says what holds for every call."""

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        session: bool = False,
        retry: RetryPolicy | None = None,
        timeout_s: float = 30.0,
        nats: NatsLogin | None = None,
    ) -> None:
        url = base_url or os.environ.get("PAMSPEC_URL") or DEFAULT_URL
        key = api_key or os.environ.get("PAMSPEC_API_KEY")
        self._transport: Transport
        self.bus: Bus | None = None
        """The connection to the bus, where the client has one."""
        if is_bus(url):
            self.bus = Bus(nats or NatsLogin(url), key)
            self._transport = BusTransport(self.bus, retry or RetryPolicy(), timeout_s)
        else:
            self.bus = Bus(nats, key) if nats is not None else None
            self._transport = Transport(url, key, retry or RetryPolicy(), timeout_s)
        self._own_channel: FollowChannel = "nats" if is_bus(url) else "poll"
        self._positions = Positions()
        self._session = session

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections; followers end with the loss of theirs."""
        await self._transport.close()
        if self.bus is not None:
            await self.bus.close()

    @property
    def base_url(self) -> str:
        """The address of the gateway."""
        return self._transport.base_url

    @property
    def transport(self) -> Transport:
        """The connections that a follower shares."""
        return self._transport

    async def call(self, operation: str, document: Mapping[str, Any]) -> Reply:
        """Any operation by its name; the answer as it comes. The methods below are typed forms of this one."""
        request = dict(document)
        if operation in _WRITES or (operation == "check_delegation" and request.get("consume", True)):
            name_write(request)
        scope_id = request.get("scope_id")
        floored = self._add_floor(operation, request)
        if "limit" in request or "cursor" in request:
            limit, cursor = request.pop("limit", None), request.pop("cursor", None)
            request["pagination"] = {"limit": limit or PAGE} | ({"cursor": cursor} if cursor else {})
        wait_s = (request.get("wait_ms") or 0) / 1000
        names = Names(operation, request.get("operation_id"), request.get("idempotency_key"))
        try:
            reply = await self._transport.post(f"/v1/{operation}", encode(request), names, wait_s)
        except InvalidRequest as error:
            if floored is not None and error.reason == "position_outdated":
                # A restore ended the epoch of what this session saw: the caller learns of it once, then goes on anew.
                self._positions.forget(floored)
            raise
        if scope_id is not None:
            self._positions.note(scope_id, reply)
        return reply

    def _add_floor(self, operation: str, request: dict[str, Any]) -> str | None:
        """Have a session's read say what it must not fall behind; the scope, where it does."""
        scope_id = request.get("scope_id")
        if not self._session or operation not in _FLOORED or not isinstance(scope_id, str):
            return None
        floor = self._positions.floor(scope_id)
        if floor is None or "min_sequence" in request or "ledger_epoch" in request:
            return None
        request["ledger_epoch"], request["min_sequence"] = floor
        request.setdefault("wait_ms", SESSION_WAIT_MS)
        return scope_id

    async def _typed(self, model: type[D], operation: str, request: Mapping[str, Any]) -> D:
        reply = await self.call(operation, request)
        answer = model.of(reply.body)
        answer.__dict__["replayed"] = reply.headers.get(REPLAYED) == "true"
        return answer


def name_write(request: dict[str, Any]) -> None:
    """Mint what a write is named by; an operation_id of the caller alone acts as the key."""
    if request.get("operation_id") is None:
        request["operation_id"] = f"op:{uuid7()}"
        if request.get("idempotency_key") is None:
            request["idempotency_key"] = uuid7()
