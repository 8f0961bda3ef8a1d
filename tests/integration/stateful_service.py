"""The service under a state machine: calls from its thread, and crashes before, after and in the middle of a call."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import aiohttp

from tests.integration.harness import Fleet

T = TypeVar("T")
Document = dict[str, Any]
Target = Literal["write", "query", "postgres"]
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Answer:
    """An answer that decides: a success or a refusal, never "try again"."""

    body: bytes
    document: Document

    @property
    def code(self) -> str | None:
        """The code of a refusal."""
        error = self.document.get("error")
        return str(error["code"]) if error else None


@dataclass
class Service:
    """A fleet, called from a thread other than that of its event loop."""

    fleet: Fleet
    session: aiohttp.ClientSession
    loop: asyncio.AbstractEventLoop
    outcomes: Counter[str] = field(default_factory=Counter)
    """How often each operation was answered how."""

    def call(self, operation: str, document: Document, key: str | None = None) -> Answer:
        """The answer; what is not available now is asked again, under the same id and key."""
        return self._wait(self._patient(operation, document, key))

    def crash_during(
        self, target: Target, delay_s: float, operation: str, document: Document, key: str
    ) -> Answer | None:
        """The answer to a call in whose middle a process is killed, or None where it was lost; it runs again then."""
        return self._wait(self._crash_during(target, delay_s, operation, document, key))

    def new_scope(self) -> str:
        """A scope of its own."""
        scope_id = f"scope:stateful-{secrets.token_hex(6)}"
        answer = self.call("create_scope", {"scope_id": scope_id, "scope_kind": "workspace"})
        assert answer.code is None, answer
        return scope_id

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE_S * 2)

    async def _patient(self, operation: str, document: Document, key: str | None) -> Answer:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                answer = await self._once(operation, document, key)
                if answer is not None:
                    self.outcomes[f"{operation} {answer.code or 'ok'}"] += 1
                    return answer
                await asyncio.sleep(0.05)

    async def _once(self, operation: str, document: Document, key: str | None) -> Answer | None:
        """None where it is open what became of the call."""
        headers = {**self.fleet.headers, **({"Idempotency-Key": key} if key else {})}
        url = f"{self.fleet['gateway'].url}/v1/{operation}"
        try:
            async with self.session.post(url, json=document, headers=headers) as got:
                body = await got.read()
        except (aiohttp.ClientError, OSError):
            return None
        answer = Answer(body, json.loads(body))
        return None if answer.code == "service_unavailable" else answer

    async def _crash_during(
        self, target: Target, delay_s: float, operation: str, document: Document, key: str
    ) -> Answer | None:
        under_way = asyncio.create_task(self._once(operation, document, key))
        await asyncio.sleep(delay_s)
        if target == "postgres":
            self.fleet.postgres.process.kill()
            await self.fleet.postgres.start()
        else:
            self.fleet.kill(target)
            await self.fleet[target].start()
        answer = await under_way
        self.outcomes[f"crash of {target}: {'answered' if answer else 'lost'}"] += 1
        return answer
