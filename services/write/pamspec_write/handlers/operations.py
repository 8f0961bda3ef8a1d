"""The operations of the write service: verify the principal, admit, commit, answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

import msgspec

from pamspec_common.calls import Answer, Call, Operations, refusal
from pamspec_common.denials import Denials
from pamspec_common.documents import own_operation_id
from pamspec_common.errors import PamspecError, ServiceUnavailable, VersionConflict
from pamspec_common.principal import Principal, TokenVerifier
from pamspec_common.telemetry import metrics, tracing
from pamspec_write.documents import REQUESTS
from pamspec_write.documents.decoding import decode
from pamspec_write.documents.scopes import CreateScope
from pamspec_write.handlers.access import Access
from pamspec_write.handlers.administration import KINDS, Administration, administer
from pamspec_write.handlers.admission.acting import actor_of
from pamspec_write.handlers.admission.batches import admit_batch
from pamspec_write.handlers.admission.commands import admit, parse
from pamspec_write.handlers.denials import DenialRecords
from pamspec_write.handlers.forgetting import Forgets
from pamspec_write.handlers.lanes import Lanes
from pamspec_write.handlers.lookup import Lookup
from pamspec_write.handlers.outbox import OutboxBound
from pamspec_write.handlers.parked import OPERATIONS as PARKED
from pamspec_write.handlers.parked import ParkedEntries
from pamspec_write.handlers.quotas import OPERATIONS as QUOTAS
from pamspec_write.handlers.quotas import TenantQuotas
from pamspec_write.handlers.scopes import Scopes
from pamspec_write.handlers.spaces import OPERATIONS as SPACES
from pamspec_write.handlers.spaces import EmbeddingSpaces

COMMANDS = tuple(REQUESTS)
CONFLICT = b'"version_conflict"'
DENIALS = (b'"access_denied"', b'"policy_denied"')
OPERATIONS = (
    *COMMANDS,
    *KINDS,
    *QUOTAS,
    *SPACES,
    *PARKED,
    "batch",
    "create_scope",
    "get_operation",
    "record_denial",
    "begin_forget",
)

_LARGE_BYTES = 64 * 1024
_LARGE_AT_ONCE = 2

_log = logging.getLogger(__name__)

Admit = Callable[[Call, dict[str, Any], Principal], Awaitable[Awaitable[Answer]]]
"""Checks a document and returns the work that it asks for, which needs the document no more."""


def _count(operation: str, answer: Answer) -> None:
    """Count the outcome; a stale command is everyday business: one line in the log, no traceback."""
    if answer.status < 400:
        metrics.COMMANDS.add(operation, "done")
        if operation != "batch" or CONFLICT not in answer.body:
            return
    codes = _codes(answer)
    if answer.status >= 400:
        metrics.COMMANDS.add(operation, codes[0])
    conflicts = codes.count(VersionConflict.code)
    if conflicts:
        metrics.VERSION_CONFLICTS.add(conflicts, {"operation": operation})
        _log.info("version conflict", extra={"action": "version_conflict", "operation": operation, "count": conflicts})


class _Failure(msgspec.Struct):
    code: str


class _Result(msgspec.Struct):
    error: _Failure | None = None


class _Results(msgspec.Struct):
    results: list[_Result]


def _codes(answer: Answer) -> list[str]:
    """The error codes of an answer, or of a batch's results; content in it is passed over unread."""
    if answer.status >= 400:
        results = [msgspec.json.decode(answer.body, type=_Result)]
    else:
        results = msgspec.json.decode(answer.body, type=_Results).results
    return [result.error.code for result in results if result.error is not None]


class Writes:
    """The handlers, over their collaborators."""

    def __init__(
        self,
        verifier: TokenVerifier,
        access: Access,
        scopes: Scopes,
        lanes: Lanes,
        lookup: Lookup,
        outbox: OutboxBound,
        administration: Administration,
        denials: Denials,
        records: DenialRecords,
        quotas: TenantQuotas,
        forgets: Forgets,
        spaces: EmbeddingSpaces,
        parked: ParkedEntries,
    ) -> None:
        self._verifier, self._scopes, self._lanes = verifier, scopes, lanes
        self._access, self._administration, self._quotas = access, administration, quotas
        self._spaces, self._parked = spaces, parked
        self._lookup, self._outbox = lookup, outbox
        self._denials, self._records, self._forgets = denials, records, forgets
        self._large = asyncio.Semaphore(_LARGE_AT_ONCE)

    def operations(self) -> Operations:
        """Every operation that this service owns."""
        commands = {name: self._handler(self._command) for name in COMMANDS}
        return {
            **commands,
            **{name: self._handler(self._administer) for name in KINDS},
            **{name: self._handler(self._tell_quotas) for name in QUOTAS},
            **{name: self._handler(self._of_spaces) for name in SPACES},
            **{name: self._handler(self._of_parked) for name in PARKED},
            "batch": self._handler(self._batch),
            "create_scope": self._handler(self._create_scope),
            "get_operation": self._handler(self._get_operation),
            "record_denial": self._handler(self._record_denial),
            "begin_forget": self._handler(self._begin_forget),
        }

    def _handler(self, admit_call: Admit) -> Callable[[Call], Awaitable[Answer]]:
        async def handle(call: Call) -> Answer:
            operation_id = principal = None
            named: dict[str, Any] = {}
            try:
                principal = self._verifier.verify(call.principal)
                async with self._room(call):
                    document = parse(call.body)
                    operation_id = own_operation_id(document)
                    named = {name: document[name] for name in ("scope_id", "actor") if name in document}
                    work = await admit_call(call, document, principal)
                    del document
                answer = await work
                if answer.status == 403 or (call.operation == "batch" and any(code in answer.body for code in DENIALS)):
                    self._denials.note_answer(principal, call.operation, named, answer.body)
            except PamspecError as error:
                answer = refusal(error, operation_id)
                if principal is not None:
                    self._denials.note(principal, call.operation, named, error)
            _count(call.operation, answer)
            return answer

        return handle

    def _room(self, call: Call) -> AbstractAsyncContextManager[None]:
        """A parsed document can take thirty times the memory of its text, so few large ones exist at once."""
        return self._large if len(call.body) > _LARGE_BYTES else nullcontext()

    async def _command(self, call: Call, document: dict[str, Any], principal: Principal) -> Awaitable[Answer]:
        self._check_outbox(call)
        command = await admit(call.operation, document, call.body, principal, call.idempotency_key, self._access)
        command.traceparent = tracing.onward(call.traceparent)
        return self._lanes.submit(command)

    async def _batch(self, call: Call, document: dict[str, Any], principal: Principal) -> Awaitable[Answer]:
        self._check_outbox(call)
        batch = await admit_batch(document, call.body, principal, call.idempotency_key, self._access)
        batch.traceparent = tracing.onward(call.traceparent)
        return self._lanes.submit(batch)

    async def _create_scope(self, call: Call, document: dict[str, Any], principal: Principal) -> Awaitable[Answer]:
        request = decode(CreateScope, call.body)
        actor, authenticated_as = actor_of(principal, request, document)
        rights = await self._access.permitted("create_scope", principal, actor, None, now=True)
        version = f"{rights.epochs.tenant}.{rights.epochs.scope}"
        return self._scopes.create(request, principal, actor.actor_id, authenticated_as, version)

    async def _get_operation(self, call: Call, document: dict[str, Any], principal: Principal) -> Awaitable[Answer]:
        return self._lookup.get_operation(document, call.body, principal)

    async def _administer(self, call: Call, document: dict[str, Any], principal: Principal) -> Awaitable[Answer]:
        return administer(self._administration, call, document, principal)

    async def _record_denial(self, call: Call, document: dict[str, Any], principal: Principal) -> Awaitable[Answer]:
        return await self._records.record(document, call.body, principal)

    async def _begin_forget(self, call: Call, document: dict[str, Any], principal: Principal) -> Awaitable[Answer]:
        return await self._forgets.begin(document, call.body, principal)

    async def _tell_quotas(self, call: Call, document: dict[str, Any], principal: Principal) -> Awaitable[Answer]:
        return self._quotas.call(call.operation, document, call.body, principal)

    async def _of_spaces(self, call: Call, document: dict[str, Any], principal: Principal) -> Awaitable[Answer]:
        return self._spaces.call(call.operation, document, call.body, principal, call.idempotency_key)

    async def _of_parked(self, call: Call, document: dict[str, Any], principal: Principal) -> Awaitable[Answer]:
        return self._parked.call(call.operation, document, call.body, principal, call.idempotency_key)

    def _check_outbox(self, call: Call) -> None:
        if self._outbox.full:
            raise ServiceUnavailable(
                "The bus has been away for too long and the outbox is full; writes go on when it drains.",
                details={"reason": "outbox_full"},
                retry_after=5,
            )
