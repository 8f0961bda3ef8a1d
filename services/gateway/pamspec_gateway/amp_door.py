"""The door for the Agent Memory Protocol: `/amp/v1`, in front of the operation door and behind the same guard.

Invariant: a request is admitted by its key like any other, and what it does are operations that go through the
operation door with that key. Without a key it is let in only where an operator has named one for development.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qs

from pamspec_amp.app import BODY_BYTES, HEALTH, Door, Principal, Request, nothing_there, told
from pamspec_amp.model.errors import AmpError, CellTooLarge, RateLimited, Unauthenticated
from pamspec_amp.settings import Settings as AmpSettings
from pamspec_common.asgi import ASGIApp, ClientGone, Receive, Scope, Send, read_body, send_answer
from pamspec_common.calls import Answer
from pamspec_common.errors import InvalidRequest, PamspecError
from pamspec_common.errors import Unauthenticated as NotAdmitted
from pamspec_common.principal import RIGHT_ASSERT_ACTOR
from pamspec_gateway.authentication import Guard
from pamspec_gateway.door import CHALLENGE, Load, address_of, headers_of, with_headers
from pamspec_gateway.settings import Settings
from pamspec_gateway.through import Messages, Through

_PATH = "/amp/v1"
_PLATFORM = "platform"


class AmpDoor:
    """Answers `/amp/v1/...`; everything else goes to `rest`."""

    def __init__(self, settings: Settings, guard: Guard, load: Load, rest: ASGIApp) -> None:
        key = settings.amp_development_key
        self._guard, self._load, self._rest = guard, load, rest
        self._development = None if key is None else key.get_secret_value().encode()
        self._messages = Messages(max(1, load.limits.requests // 4))
        interval_s = max(1, -(-settings.retention_poll_ms // 1000))
        self._door = Door(AmpSettings(settings.amp_scope, key is not None, settings.amp_embedding_space, interval_s))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if scope["type"] != "http" or not (path == _PATH or path.startswith(_PATH + "/")):
            await self._rest(scope, receive, send)
            return
        try:
            answer = await self._answer(scope, receive, path[len(_PATH) :])
        except ClientGone:
            return
        except AmpError as error:
            answer = told(error)
        except PamspecError as error:
            answer = told(_refused(error))
        self._load.answered["amp", answer.status] += 1
        if answer.status == Unauthenticated.status:
            answer = with_headers(answer, CHALLENGE)
        await send_answer(send, answer)

    async def _answer(self, scope: Scope, receive: Receive, path: str) -> Answer:
        if path.strip("/") == "health":
            return HEALTH if scope["method"] in ("GET", "HEAD") else nothing_there("GET")
        # A message waits like a poll does: what it asks of operations is what takes places.
        with self._load.admitted(waits=True) as room:
            headers = headers_of(scope)
            _check_once(scope)
            credential, keyed = self._credential(headers)
            admission = await self._guard.admit({b"authorization": credential}, address_of(scope))
            with self._messages.room(admission.holder):
                body = await read_body(receive, BODY_BYTES, room.take)
                carried = [(b"authorization", credential)]
                carried += [(name, value) for name, value in scope["headers"] if name == b"traceparent"]
                rights = admission.principal
                principal = Principal(
                    Through(self._rest, carried, scope.get("client")),
                    rights.actor_id,
                    rights.has(RIGHT_ASSERT_ACTOR) or _PLATFORM in rights.roles,
                    keyed,
                )
                return await self._door.answer(_request(scope, path, headers, body), principal)

    def _credential(self, headers: Mapping[bytes, bytes]) -> tuple[bytes, bool]:
        """The credential of a request as the guard takes it, and whether the request brought it."""
        for name in (b"x-amp-api-key", b"x-api-key"):
            if name in headers:
                return b"Bearer " + headers[name], True
        if b"authorization" in headers:
            return headers[b"authorization"], True
        if self._development is None:
            raise Unauthenticated
        return b"Bearer " + self._development, False


def _check_once(scope: Scope) -> None:
    """Unauthenticated where a request says twice who it is."""
    names = [name for name, _ in scope["headers"] if name.startswith(b"x-amp-")]
    if len(names) != len(set(names)):
        raise Unauthenticated


def _request(scope: Scope, path: str, headers: Mapping[bytes, bytes], body: bytes) -> Request:
    return Request(
        scope["method"],
        path,
        parse_qs(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True),
        _text(headers.get(b"x-amp-agent-id")),
        body,
        _text(headers.get(b"idempotency-key")),
    )


def _text(header: bytes | None) -> str | None:
    """A header as text; one that is no UTF-8 is nobody's name."""
    if header is None:
        return None
    try:
        return header.decode()
    except UnicodeDecodeError:
        raise Unauthenticated from None


def _refused(error: PamspecError) -> AmpError:
    """What the gateway's own refusals are called here."""
    if isinstance(error, NotAdmitted):
        return Unauthenticated()
    if isinstance(error, InvalidRequest):
        return CellTooLarge() if error.http_status == CellTooLarge.status else Unauthenticated()
    return RateLimited(error.retry_after or 1)
