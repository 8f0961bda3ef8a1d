"""The door of imports: a file of any length in, one answer out.

Invariant: a client that leaves while its file comes leaves nothing behind; once the whole file is there, the import
goes on without its client, who finds it by its operation or sends the same file again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec

from pamspec_common.asgi import ClientGone, Receive, Scope, Send, send_answer
from pamspec_common.calls import Answer, refusal
from pamspec_common.documents import Actor, own_operation_id, take_header_key
from pamspec_common.errors import InternalError, InvalidRequest, PamspecError
from pamspec_common.ids import mint
from pamspec_common.policy import acting_actor
from pamspec_common.principal import PRINCIPAL_HEADER, Principal, TokenVerifier
from pamspec_common.strict_json import dumps
from pamspec_write.documents.decoding import check_members, decode
from pamspec_write.documents.transfer import Import, from_query
from pamspec_write.handlers.importing import Asked, Chunks

PATH = "/v1/import"

Run = Callable[[Asked, Chunks], Awaitable[Answer]]

_log = logging.getLogger(__name__)


class ImportDoor:
    """`POST /v1/import`."""

    def __init__(self, verifier: TokenVerifier, run: Run) -> None:
        self._verifier, self._run = verifier, run
        self._under_way: set[asyncio.Task[Answer]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != PATH or scope["method"] != "POST":
            await send_answer(send, refusal(InvalidRequest("No such path in this service.", status=404)))
            return
        running = asyncio.create_task(self._answer(scope, receive), name="import")
        self._under_way.add(running)
        running.add_done_callback(self._under_way.discard)
        await send_answer(send, await asyncio.shield(running))

    async def _answer(self, scope: Scope, receive: Receive) -> Answer:
        operation_id = None
        try:
            headers = dict(scope["headers"])
            principal = self._verifier.verify(headers.get(PRINCIPAL_HEADER, b"").decode("latin-1"))
            document = from_query(scope.get("query_string", b""))
            operation_id = own_operation_id(document)
            asked = _asked(document, principal, headers.get(b"idempotency-key"))
            operation_id = asked.operation_id
            return await self._run(asked, _chunks(receive))
        except PamspecError as error:
            return refusal(error, operation_id)
        except ClientGone:
            _log.debug("a client left", extra={"action": "client_left", "path": PATH})
            return refusal(InvalidRequest("The file did not come to its end."), operation_id)
        except Exception:
            _log.exception("an import failed", extra={"action": "operation_failed", "operation": "import"})
            return refusal(InternalError(), operation_id)


def _asked(document: dict[str, Any], principal: Principal, header_key: bytes | None) -> Asked:
    check_members(document)
    request = decode(Import, dumps(document))
    take_header_key(request, None if header_key is None else header_key.decode("latin-1"))
    if not isinstance(request.actor, msgspec.UnsetType):
        acting_actor(principal, msgspec.to_builtins(decode(Actor, request.actor, where="actor")))
    return Asked(request, principal, request.operation_id or mint("op"))


async def _chunks(receive: Receive) -> AsyncIterator[bytes]:
    """The body as it comes; ClientGone when it does not come to its end."""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientGone
        yield message.get("body", b"")
        if not message.get("more_body"):
            return
