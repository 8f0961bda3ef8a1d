"""Sharing: several gateways tell one another through Valkey what of a budget they have charged.

Invariants: no request waits for Valkey; what this process charged counts here whatever Valkey says or loses; when
Valkey is away, slow or empty, each process goes by what it charged itself. Only Valkey's own clock and the steady clock
of this process are used, so no two clocks are ever compared.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from pamspec_common.service import Background
from pamspec_common.telemetry.metrics import LIMITS_SHARED
from pamspec_gateway.limits.budgets import Budget

_log = logging.getLogger(__name__)
_AT_ONCE = 500
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.25, 5.0
_SHORTEST_S = 0.01
_PREFIX = "{pamspec-budget}:"
_LOST = (RedisError, OSError, TimeoutError)

# Of each key: what this process charged, and how far ahead the budget can be spent, in microseconds. A moment beyond
# that comes from a clock that was set back. The answer is how far ahead each budget is spent now.
SHARE_LUA = """
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local found = {}
for i, key in ipairs(KEYS) do
  local charged, cap = tonumber(ARGV[2 * i - 1]), tonumber(ARGV[2 * i])
  local spent = tonumber(redis.call('GET', key) or '0')
  spent = math.min(math.max(spent, now), now + cap) + charged
  spent = math.min(spent, now + cap)
  if spent > now then
    redis.call('SET', key, string.format('%.0f', spent), 'PX', math.ceil((spent - now) / 1000) + 1000)
  end
  found[i] = math.floor(spent - now)
end
return found
"""


class Sharing:
    """Tells Valkey what was charged, many budgets in one call, and learns what others charged."""

    def __init__(
        self,
        url: str | None,
        *,
        interval_s: float,
        timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._interval_s, self._timeout_s, self._clock = interval_s, timeout_s, clock
        self._client: Redis | None = None
        if url is not None:
            self._client = Redis.from_url(
                url,
                socket_timeout=timeout_s,
                socket_connect_timeout=timeout_s,
                retry=Retry(NoBackoff(), 0),
                max_connections=2,
            )
            self._script = self._client.register_script(SHARE_LUA)
        self._charged: list[Budget] = []
        self._wake = asyncio.Event()
        self.up = False
        """Whether the last exchange came about."""

    def charged(self, budget: Budget, now: float) -> None:
        """A budget was charged; one that is spent quickly, or was not shared for long, is shared at once."""
        if self._client is None:
            return
        if not budget.queued:
            budget.queued = True
            self._charged.append(budget)
        if budget.unsent >= budget.urgent or now - budget.learned_at > self._interval_s:
            self._wake.set()

    async def run(self, background: Background) -> None:
        """Share until the process stops."""
        if self._client is None:
            await background.stopping.wait()
            return
        pause = _FIRST_PAUSE_S
        while not await self._pause(background):
            if not self._charged:
                continue
            if await self._share_all():
                pause = _FIRST_PAUSE_S
                await background.pause(_SHORTEST_S)
            else:
                await background.pause(pause)
                pause = min(2 * pause, _LAST_PAUSE_S)

    async def _pause(self, background: Background) -> bool:
        """Wait for the interval or something urgent; True when stopping."""
        try:
            async with asyncio.timeout(self._interval_s):
                await self._wake.wait()
        except TimeoutError:
            return background.stopping.is_set()
        self._wake.clear()
        return background.stopping.is_set()

    async def _share_all(self) -> bool:
        """Whether everything that was charged could be shared; what could not counts here alone."""
        charged, self._charged = self._charged, []
        for budget in charged:
            budget.queued = False
        for start in range(0, len(charged), _AT_ONCE):
            try:
                await self._share([budget for budget in charged[start : start + _AT_ONCE] if budget.per_s])
            except _LOST as error:
                for budget in charged[start:]:
                    budget.unsent = 0.0
                self._say(False, error)
                return False
        self._say(True, None)
        return True

    async def _share(self, budgets: Sequence[Budget]) -> None:
        if not budgets:
            return
        sent = [budget.unsent for budget in budgets]
        for budget in budgets:
            budget.unsent = 0.0
        arguments = [
            round(seconds * 1e6)
            for budget, charged in zip(budgets, sent, strict=True)
            for seconds in (charged, budget.cap)
        ]
        # The rate is part of the name: a budget with another rate begins anew for all.
        keys = [f"{_PREFIX}{budget.name}:{budget.per_s}:{round(budget.depth * 1e6)}" for budget in budgets]
        async with asyncio.timeout(self._timeout_s):
            found = await self._script(keys=keys, args=arguments)
        now = self._clock()
        for budget, ahead in zip(budgets, found, strict=True):
            budget.learn(now, ahead / 1e6)

    def _say(self, up: bool, error: Exception | None) -> None:
        LIMITS_SHARED.set(1 if up else 0)
        if up != self.up and error is not None:
            extra = {"action": "limits_alone"}
            _log.warning("Valkey does not answer; each gateway limits by itself: %s", type(error).__name__, extra=extra)
        elif up != self.up:
            _log.info("limits are shared through Valkey", extra={"action": "limits_shared"})
        self.up = up

    async def close(self) -> None:
        """End the connections."""
        if self._client is not None:
            await self._client.aclose()
