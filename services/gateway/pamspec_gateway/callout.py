"""Logins of agents to the bus: the server asks, the gateway that is free answers.

Invariants: a credential is checked by the code that checks it for HTTP; what a connection may do is made of its
principal alone; the permission ends with the credential, and after `login_s` at the latest. Services never pass here,
so a callout that is away stops new logins of agents and nothing else. Where it can't be told whether a credential is
valid, no answer is given: the server then lets the client try again.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import time

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from pamspec_common.errors import ServiceUnavailable, Unauthenticated
from pamspec_gateway.authentication import Clock, Guard
from pamspec_gateway.bus_tokens import BusTokens, LoginRequest, NotAsked, Permissions
from pamspec_gateway.connections import Connections
from pamspec_gateway.logins import Login, LoginNames

SUBJECT = "$SYS.REQ.USER.AUTH"
QUEUE = "pamspec-gateway"
WHOAMI = "pamspec.op.whoami"
PAYLOAD = 4 * 1024 * 1024
SUBSCRIPTIONS = 1000

_AT_ONCE = 128
_WAITING = 8192
_INBOX = re.compile(r"(?:^|/)([a-z2-7]{26})\Z")
_TOO_MANY_GUESSES = 429

_log = logging.getLogger(__name__)


def permissions(token: str, name: str) -> Permissions:
    """What a principal's connection may do: call operations on its own subjects, hear its deliveries and inboxes.

    A connection whose name ends in 26 letters of its own choice may use the inbox `_INBOX.<letters>` too, so that a
    client can ask who it is.
    """
    subscribe = [f"pamspec.deliver.{token}.>", f"_INBOX_{token}.>"]
    own = _INBOX.search(name)
    if own is not None:
        subscribe.append(f"_INBOX.{own[1]}.>")
    return Permissions([WHOAMI, f"pamspec.op.{token}.*"], subscribe, SUBSCRIPTIONS, PAYLOAD)


class Callout:
    """Answers login requests."""

    def __init__(
        self,
        tokens: BusTokens,
        guard: Guard,
        names: LoginNames,
        connections: Connections,
        *,
        login_s: float,
        wall: Clock = time.time,
    ) -> None:
        self._tokens, self._guard, self._names, self._connections = tokens, guard, names, connections
        self._login_s, self._wall = login_s, wall
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._answering: set[asyncio.Task[None]] = set()

    async def attach(self, client: Client) -> None:
        """Listen on a connection in the account of the callout."""

        async def arrived(message: Msg) -> None:
            await self._room.acquire()
            task = asyncio.create_task(self._answer(client, message))
            self._answering.add(task)
            task.add_done_callback(self._done)

        await client.subscribe(SUBJECT, queue=QUEUE, cb=arrived, pending_msgs_limit=_WAITING)
        await client.flush()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._answering.discard(task)
        self._room.release()

    async def _answer(self, client: Client, message: Msg) -> None:
        try:
            request = self._tokens.read(message.data, message.headers or {}, self._wall())
        except NotAsked as error:
            _log.warning("a login request is %s", error, extra={"action": "callout_refused"})
            return
        try:
            answer = await self._decide(request)
            if answer is not None:
                await client.publish(message.reply, answer)
        except (NatsError, OSError) as error:
            _log.info("a login is not answered: %s", error, extra={"action": "callout_unanswered"})
        except Exception:
            _log.exception("a login failed", extra={"action": "callout_failed"})

    async def _decide(self, request: LoginRequest) -> bytes | None:
        now = self._wall()
        try:
            identity = await self._guard.identify(request.credential, request.host)
        except Unauthenticated:
            return self._tokens.refuse(request, "no valid credential", int(now))
        except ServiceUnavailable as error:
            if error.http_status == _TOO_MANY_GUESSES:
                return self._tokens.refuse(request, "too many wrong credentials from this address", int(now))
            _log.info("a login waits: %s", error, extra={"action": "callout_waits"})
            return None
        life_s = min(self._login_s * random.uniform(0.9, 1.0), identity.ends_in_s)
        if life_s < 1.0:
            return self._tokens.refuse(request, "the credential ends now", int(now))
        login = Login(now + life_s, identity.principal, identity.key_id)
        self._connections.add(request.server_id, request.connection_id, login)
        may = permissions(login.token, request.name)
        return self._tokens.admit(request, self._names.write(login), may, int(now), int(login.expires))

    async def close(self) -> None:
        """End what is under way."""
        for task in list(self._answering):
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)
