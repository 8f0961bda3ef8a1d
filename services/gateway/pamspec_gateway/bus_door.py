"""The operation door over the bus: a request to `pamspec.op.<principal token>.<operation>`, one answer to its inbox.

Invariants: the caller is the login that the server names with the request, and the token in the subject is its own; the
document goes on as it came and the answer comes back as it is, with the bytes that HTTP would carry; every answer has
the header Pamspec-Status, which no frame of a channel has, so that an answer that somebody had sent to a foreign inbox
is never taken for an event. Requests don't wait for one another.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

import orjson
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from pamspec_common.calls import Answer, refusal
from pamspec_common.errors import InternalError, InvalidRequest, PamspecError, Unauthenticated
from pamspec_common.ids import mint
from pamspec_common.instants import wire
from pamspec_common.telemetry import tracing
from pamspec_gateway.authentication import Guard, still_holds
from pamspec_gateway.callout import QUEUE, WHOAMI
from pamspec_gateway.door import (
    Load,
    Route,
    check_content_type,
    make_call,
    refused,
    too_large,
    while_admitted,
    with_headers,
)
from pamspec_gateway.logins import Login, LoginNames, Logins
from pamspec_gateway.traced import traced_message

SUBJECT = "pamspec.op.*.*"
STATUS = "Pamspec-Status"
MESSAGE_BYTES = 3_670_016
"""3.5 MiB: where bodies, answers and pages end."""
_HEAD_BYTES = 64 * 1024
_INFO = "Nats-Request-Info"

_log = logging.getLogger(__name__)


class BusDoor:
    """Answers the operations in `routes`; those of `over_http_alone` say so."""

    def __init__(
        self,
        routes: Mapping[str, Route],
        over_http_alone: frozenset[str],
        logins: Logins,
        names: LoginNames,
        guard: Guard,
        load: Load,
    ) -> None:
        self._routes, self._over_http_alone = dict(routes), over_http_alone
        self._logins, self._names, self._guard, self._load = logins, names, guard, load
        self._subscriptions: list[Subscription] = []
        self._answering: set[asyncio.Task[None]] = set()
        self._limit = MESSAGE_BYTES

    async def attach(self, client: Client) -> None:
        """Listen on a connection in the account of the services."""
        self._limit = min(MESSAGE_BYTES, client.max_payload - _HEAD_BYTES)

        async def arrived(message: Msg) -> None:
            # Without a reply subject nobody could learn what became of it.
            if message.reply:
                task = asyncio.create_task(self._serve(client, message))
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)

        self._subscriptions = [await client.subscribe(one, queue=QUEUE, cb=arrived) for one in (SUBJECT, WHOAMI)]
        await client.flush()

    async def _serve(self, client: Client, message: Msg) -> None:
        operation = message.subject.rpartition(".")[2]
        if tracing.enabled and operation in self._routes:
            with traced_message(operation, message.headers) as span:
                answer = await self._answered(operation, message)
                span.answered(answer)
        else:
            answer = await self._answered(operation, message)
        if operation in self._routes:
            self._load.answered[operation, answer.status] += 1
        try:
            await client.publish(message.reply, answer.body, headers={**answer.headers, STATUS: str(answer.status)})
        except (NatsError, OSError) as error:
            _log.info("an answer was lost: %s", error, extra={"action": "answer_lost", "operation": operation})

    async def _answered(self, operation: str, message: Msg) -> Answer:
        """The answer, refusals too."""
        try:
            return await self._answer(operation, message)
        except PamspecError as error:
            await self._load.limiter.put_off(error)
            return refused(error)
        except Exception:
            _log.exception("the door failed", extra={"action": "door_failed", "operation": operation})
            return refused(InternalError())

    async def _answer(self, operation: str, message: Msg) -> Answer:
        headers = {name.lower().encode(): value.encode() for name, value in (message.headers or {}).items()}
        name = _connection(message.headers or {})
        if message.subject == WHOAMI:
            return _whoami(self._names.read(name))
        route = self._routes.get(operation)
        with self._load.admitted(route is not None and route.waits) as room:
            admit = partial(self._logins.admit, name, message.subject.split(".")[2])
            admission = await admit()
            if route is None:
                raise self._unknown(operation)
            limit = min(self._limit, room.claim(admission.holder))
            if len(message.data) > limit:
                raise too_large(limit)
            check_content_type(headers)
            room.take(len(message.data))
            call = make_call(route, admission, bytes(message.data), headers, self._limit)
            calling = self._load.limiter.call(admission.holder, route.peer, call, waits=route.waits)
            if route.waits:
                answer = await while_admitted(self._guard, calling, lambda: still_holds(admit()))
            else:
                answer = await calling
            return answer if len(answer.body) <= self._limit else _cut(answer, self._limit)

    def _unknown(self, operation: str) -> InvalidRequest:
        if operation in self._over_http_alone:
            return InvalidRequest("This operation streams lines; it is there over HTTP alone.", status=404)
        return InvalidRequest("No such operation; /docs of the gateway lists them.", status=404)

    async def drain(self, timeout_s: float) -> None:
        """Take no more requests, and give those under way their answers."""
        for subscription in self._subscriptions:
            with suppress(NatsError, OSError, TimeoutError):
                await subscription.unsubscribe()
        self._subscriptions = []
        if self._answering:
            await asyncio.wait(self._answering, timeout=timeout_s)

    async def close(self) -> None:
        """End what is under way."""
        for task in list(self._answering):
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)


def _connection(headers: Mapping[str, str]) -> str:
    """The name of the connection as the server tells it."""
    info = headers.get(_INFO)
    if info is None:
        raise Unauthenticated("The bus does not say whose request this is; its import needs 'share: true'.")
    try:
        name = orjson.loads(info)["user"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        name = ""
    if not isinstance(name, str):
        raise Unauthenticated
    return name


def _whoami(login: Login) -> Answer:
    principal = login.principal
    document = {
        "actor_id": principal.actor_id,
        "actor_kind": principal.actor_kind,
        "expires_at": wire(datetime.fromtimestamp(login.expires, UTC)),
        "principal_token": login.token,
        "tenant_id": principal.tenant_id,
    }
    return Answer(200, orjson.dumps(document))


def _cut(answer: Answer, limit: int) -> Answer:
    """The refusal of an answer that no message can carry; positions stay, for the operation may have written."""
    document: Any = orjson.loads(answer.body)
    named = document.get("operation_id") if isinstance(document, dict) else None
    wrote = "Pamspec-Ledger-Sequence" in answer.headers
    error = InvalidRequest(
        f"The answer is larger than {limit} bytes; "
        + ("the write was carried out: read its version over HTTP." if wrote else "ask for less, or over HTTP."),
        details={"reason": "answer_too_large", "limit": limit},
        status=413,
    )
    return with_headers(refusal(error, named if isinstance(named, str) else mint("op")), answer.headers)
