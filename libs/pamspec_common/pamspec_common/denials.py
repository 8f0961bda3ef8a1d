"""Denials: refused access on its way into the ledger, gathered by principal and minute (PAMSPEC P173).

Invariants: to note one waits for nothing, asks the store nothing, and does the same whether what was named exists. What
is held is bounded, whoever asks for whatever: beyond the bounds refusals are counted by principal, then by tenant.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import orjson

from pamspec_common.calls import Answer, Call
from pamspec_common.errors import TREE, AccessDenied, PamspecError, PolicyDenied, ScopeNotFound
from pamspec_common.ids import is_id, mint
from pamspec_common.instants import wire
from pamspec_common.principal import RIGHT_ASSERT_ACTOR, RIGHT_SERVICE, Principal, TokenSigner, service_principal
from pamspec_common.service import Background
from pamspec_common.strict_json import dumps
from pamspec_common.telemetry import metrics

WINDOWS = 10_000
"""Windows of one process; beyond them refusals are counted by tenant."""
PRINCIPAL_WINDOWS = 16
"""Windows of one principal: so many pairs of scope and actor are told apart within a minute."""
SCOPE_WINDOWS = 64
"""Windows of one scope: so many entries a minute can be caused in it by those who may do nothing there."""
MISSING_RIGHT = "missing_right"
_AT_ONCE = 16
_LOOK_EVERY_S = 1.0
_WORD = re.compile(r"[a-z][a-z0-9_]{0,63}\Z")
_DENIALS = (AccessDenied, PolicyDenied, ScopeNotFound)

_log = logging.getLogger(__name__)

Send = Callable[[Call], Awaitable[Answer]]
"""Calls the write service."""
Key = tuple[str, str, str, str, str | None]
"""Tenant, principal, actor, its kind, and the scope that was named."""
Place = tuple[str, str, str]


@dataclass(slots=True)
class _Window:
    """What one entry will tell."""

    operation: str
    reason: str
    policy_rule_id: str | None
    first: float
    last: float
    operations: set[str]
    count: int = 1


class _Entry(NamedTuple):
    """An entry on its way, the same at every attempt."""

    tenant_id: str
    body: bytes
    refusals: int


class Denials:
    """The refusals of one process that no entry tells of yet."""

    def __init__(
        self,
        service: str,
        signer: TokenSigner,
        send: Send,
        window_s: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._service, self._signer, self._send = service, signer, send
        self._window_s, self._clock = window_s, clock
        self._windows: dict[Key, _Window] = {}
        self._due: list[_Entry] = []
        self._open: Counter[Place] = Counter()

    @property
    def held(self) -> int:
        """Entries that are still to be made."""
        return len(self._windows) + len(self._due)

    def note(self, principal: Principal, operation: str, document: Any, error: PamspecError) -> None:
        """Count a refusal where it is one of access; anything else is no matter of rights."""
        if not isinstance(error, _DENIALS) or principal.has(RIGHT_SERVICE):
            return
        named = document if isinstance(document, dict) else {}
        key, now = self._key(principal, named), self._clock()
        window = self._windows.get(key)
        if window is None:
            rule = rule_name(error.policy_rule_id)
            self._windows[key] = _Window(operation, _reason(error), rule, now, now, {operation})
            self._open.update(_places(key))
            return
        window.count += 1
        window.last = now
        window.operations.add(operation)

    def note_answer(self, principal: Principal, operation: str, document: Any, body: bytes) -> None:
        """Count what an answer refuses: its own error, or those of a batch's results."""
        found = orjson.loads(body)
        for result in found.get("results", (found,)):
            error = result.get("error", {})
            kind = _BY_CODE.get(error.get("code"))
            if kind is not None:
                refused = kind(details=error["details"], policy_rule_id=error.get("policy_rule_id"))
                self.note(principal, operation, document, refused)

    def _key(self, principal: Principal, document: dict[str, Any]) -> Key:
        """The window of a refusal; where too many are open, that of the principal, then that of the tenant."""
        tenant_id, scope_id = principal.tenant_id, document.get("scope_id")
        exact: Key = (
            tenant_id, principal.actor_id, *_actor(principal, document), scope_id if _is_name(scope_id) else None
        )  # fmt: skip
        if exact in self._windows or self._has_room(exact):
            return exact
        alone: Key = (tenant_id, principal.actor_id, principal.actor_id, principal.actor_kind, None)
        if alone in self._windows or self.held < WINDOWS:
            return alone
        own = f"service:{self._service}"
        return (tenant_id, own, own, "service", None)

    def _has_room(self, key: Key) -> bool:
        places = zip(_places(key), (PRINCIPAL_WINDOWS, SCOPE_WINDOWS), strict=False)
        return self.held < WINDOWS and all(self._open[place] < most for place, most in places)

    async def run(self, background: Background) -> None:
        """Send what is older than a window, until the service stops."""
        while not await background.pause(min(_LOOK_EVERY_S, self._window_s)):
            await self.flush(self._clock() - self._window_s)

    async def close(self, timeout_s: float) -> None:
        """Send all that is held, within the time; what is left then is lost, and said to be."""
        try:
            async with asyncio.timeout(timeout_s):
                held = 0
                while self.held != held:
                    held = self.held
                    await self.flush(math.inf)
        except TimeoutError:
            _log.warning("refusals are recorded too slowly", extra={"action": "denials_late"})
        lost = sum(entry.refusals for entry in self._due) + sum(window.count for window in self._windows.values())
        if lost:
            metrics.DENIALS.add(self._service, "lost", amount=lost)
            _log.warning("refusals are lost", extra={"action": "denials_lost", "count": lost})

    async def flush(self, before: float) -> None:
        """Send the windows that were opened by then; what cannot be sent now is sent the next time."""
        for key, window in list(self._windows.items()):
            if window.first > before or len(self._due) >= WINDOWS:
                break
            self._due.append(_entry(key, window))
            del self._windows[key]
            self._open -= Counter(_places(key))
        waiting, self._due = self._due, []
        try:
            while waiting:
                group = waiting[:_AT_ONCE]
                done = await asyncio.gather(*map(self._told, group))
                del waiting[:_AT_ONCE]
                waiting_again = [entry for entry, told in zip(group, done, strict=True) if not told]
                if waiting_again:
                    self._due += waiting_again
                    break
        finally:
            self._due += waiting

    async def _told(self, entry: _Entry) -> bool:
        """Whether the entry is settled: made, or refused for good."""
        token = self._signer.sign(service_principal(self._service, entry.tenant_id))
        answer = await self._send(Call("record_denial", token, entry.body))
        if answer.status in (429, 500, 503):
            return False
        if answer.status >= 400:
            code = str(orjson.loads(answer.body).get("error", {}).get("code"))
            _log.error("a refusal is not recorded", extra={"action": "denial_refused", "error": code})
        metrics.DENIALS.add(self._service, "lost" if answer.status >= 400 else "recorded", amount=entry.refusals)
        return True


def _entry(key: Key, window: _Window) -> _Entry:
    tenant_id, principal_id, actor_id, actor_kind, scope_id = key
    payload: dict[str, Any] = {
        "operation": window.operation,
        "reason": window.reason,
        "count": window.count,
        "window_start": _at(window.first),
        "window_end": _at(window.last),
    }
    if len(window.operations) > 1:
        payload["operations"] = sorted(window.operations)
    if window.policy_rule_id is not None:
        payload["policy_rule_id"] = window.policy_rule_id
    document: dict[str, Any] = {
        "operation_id": mint("op"),
        "actor": {"actor_id": actor_id, "actor_kind": actor_kind},
        "payload": payload,
    }
    if principal_id != actor_id:
        document["asked_by"] = principal_id
    if scope_id is not None:
        document["scope_id"] = scope_id
    return _Entry(tenant_id, dumps(document), window.count)


_BY_CODE = {kind.code: kind for kind in TREE if kind in _DENIALS}


def rule_name(policy_rule_id: str | None) -> str | None:
    """The id of a rule as an event can carry it; None where there is none, or none that it can."""
    named = policy_rule_id if policy_rule_id is None or is_id(policy_rule_id) else f"rule:{policy_rule_id}"
    return named if named is not None and is_id(named) else None


def _is_name(value: Any) -> bool:
    """Whether a member of a body that may be wrong elsewhere names something."""
    return isinstance(value, str) and is_id(value)


def _places(key: Key) -> list[Place]:
    """What is bounded: the windows of the principal, and those of the scope."""
    tenant_id, principal_id, _, _, scope_id = key
    principal: Place = (tenant_id, "principal", principal_id)
    return [principal] if scope_id is None else [principal, (tenant_id, "scope", scope_id)]


def _actor(principal: Principal, document: dict[str, Any]) -> tuple[str, str]:
    """Who was refused: the principal itself, or the actor for whom it may speak."""
    asserted = document.get("actor")
    if principal.has(RIGHT_ASSERT_ACTOR) and isinstance(asserted, dict):
        actor_id, kind = asserted.get("actor_id"), asserted.get("actor_kind")
        if isinstance(actor_id, str) and is_id(actor_id) and isinstance(kind, str):
            return actor_id, kind[:64]
    return principal.actor_id, principal.actor_kind


def _reason(error: PamspecError) -> str:
    """Why, as a word."""
    given = error.details.get("reason")
    if isinstance(given, str) and _WORD.match(given):
        return given
    return MISSING_RIGHT if isinstance(error, AccessDenied) else error.code


def _at(seconds: float) -> str:
    return wire(datetime.fromtimestamp(seconds, UTC))
