"""Live events of the followed scopes, taken from the bus as hints and completed from the ledger.

Invariants: a scope's subscribers see its entries in order and without a hole after the position at which they joined;
an entry is tested once per distinct filter; entries of another ledger epoch never pass. The bus is only the fast way:
a comparison of the heads of all followed scopes, one query an interval, finds whatever it lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as Interest
from nats.errors import Error as NatsError

from pamspec_common.bus import HEADER_EPOCH, HEADER_SEQUENCE, event_subject
from pamspec_common.errors import PamspecError
from pamspec_common.ids import subject_token
from pamspec_common.telemetry import tracing
from pamspec_common.telemetry.metrics import SUBSCRIPTION_LAG
from pamspec_subscription.entries import Entry
from pamspec_subscription.matching import Matcher
from pamspec_subscription.model import Head
from pamspec_subscription.store import Store

_log = logging.getLogger(__name__)

_EARLY_LIMIT = 2000
_FILL_ROWS = 1000
EPOCHS_FRESH_S = 0.25
"""How old the knowledge of authorization epochs may be when an event goes out, in seconds."""
_GRACE_S = 0.1
"""How long the bus may be behind the ledger before what it owes is read from the ledger."""


class Subscriber:
    """A channel or a waiting poll: its bounded buffer of live entries, and why it has to end."""

    def __init__(self, key: tuple[str, str], matcher: Matcher, limit: int, channel_epoch: int = 0) -> None:
        self.key, self.matcher, self.limit, self.channel_epoch = key, matcher, limit, channel_epoch
        self.scope: FollowedScope | None = None
        self.joined_at = 0
        self.buffer: deque[Entry] = deque()
        self.overflowed = False
        self.ended: str | None = None
        self.wake = asyncio.Event()

    def push(self, entry: Entry) -> None:
        """Take a live entry; beyond the limit everything is dropped and has to be read from the ledger."""
        if not self.overflowed:
            if len(self.buffer) >= self.limit:
                self.buffer.clear()
                self.overflowed = True
            else:
                self.buffer.append(entry)
        self.wake.set()

    def end(self, reason: str) -> None:
        """Ask it to end; the first reason stays."""
        if self.ended is None:
            self.ended = reason
        self.wake.set()

    def going(self) -> bool:
        """Whether nothing has asked it to end."""
        return self.ended is None

    async def wait(self, timeout_s: float) -> bool:
        """Wait for an entry, an end or a call; False after the timeout."""
        if not self.wake.is_set():
            try:
                async with asyncio.timeout(max(0.0, timeout_s)):
                    await self.wake.wait()
            except TimeoutError:
                return False
        self.wake.clear()
        return True


class FollowedScope:
    """What the process knows of a scope that somebody here listens to."""

    def __init__(self, scope_key: int, tenant_id: str, scope_id: str) -> None:
        self.scope_key, self.tenant_id = scope_key, tenant_id
        self.subject = event_subject(subject_token(tenant_id), subject_token(tenant_id, scope_id), ">")
        self.last = 0
        self.epoch = 0
        self.epochs = (0, 0)
        self.confirmed, self.confirmed_at = 0, -1e9
        self.confirming: asyncio.Task[None] | None = None
        self.groups: dict[Matcher, set[Subscriber]] = {}
        self.early: dict[int, Entry] = {}
        self.before_start: list[tuple[int, Entry]] = []
        self.interest: Interest | None = None
        self.filling: asyncio.Task[None] | None = None
        self.ready: asyncio.Task[None] | None = None
        self.users = 0
        self.left_at = 0.0

    def accept(self, entry: Entry) -> None:
        """The next entry in order: to everybody whose filter takes it, and to a subscription that it closes."""
        self.last = entry.sequence
        for matcher, subscribers in self.groups.items():
            if matcher.matches(entry):
                for subscriber in subscribers:
                    subscriber.push(entry)
        if entry.event_type == "subscription_closed":
            for matcher, subscribers in self.groups.items():
                for subscriber in subscribers:
                    if entry.closes(subscriber.key[1]) and not matcher.matches(entry):
                        subscriber.push(entry)

    def offer(self, entry: Entry) -> bool:
        """An entry from the bus, perhaps a duplicate or ahead of a hole; False when the ledger must be asked."""
        if entry.sequence <= self.last:
            return True
        if entry.sequence > self.last + 1:
            if len(self.early) < _EARLY_LIMIT:
                self.early[entry.sequence] = entry
            return False
        self.accept(entry)
        self.take_early()
        return True

    def take_early(self) -> None:
        """Entries that came ahead of a hole which is now filled."""
        while self.early and (entry := self.early.pop(self.last + 1, None)) is not None:
            self.accept(entry)
        if self.early and min(self.early) <= self.last:
            self.early = {sequence: entry for sequence, entry in self.early.items() if sequence > self.last}

    def start_over(self, head: Head) -> None:
        """Another ledger epoch: what was delivered live belongs to the old one, and everybody has to come again."""
        self.last, self.epoch = head.last_seq, head.ledger_epoch
        self.early.clear()
        for subscribers in self.groups.values():
            for subscriber in subscribers:
                subscriber.end("outdated")


class Fanout:
    """All followed scopes of a process."""

    def __init__(self, store: Store, linger_s: float) -> None:
        self._store, self._linger_s = store, linger_s
        self._scopes: dict[int, FollowedScope] = {}
        self._bus: Client | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.lag = 0
        """Largest distance of a followed scope from its head at the last comparison."""

    @property
    def bus_connected(self) -> bool:
        """Whether hints can arrive."""
        return self._bus is not None and self._bus.is_connected

    async def use_bus(self, bus: Client) -> None:
        """Take hints from a connection from now on."""
        self._bus = bus
        for scope in list(self._scopes.values()):
            await self._listen(scope)

    async def follow(self, scope_key: int, tenant_id: str, scope_id: str) -> FollowedScope:
        """The scope, known up to its head; every caller gives it back by `unfollow`."""
        scope = self._scopes.get(scope_key)
        if scope is None:
            scope = self._scopes[scope_key] = FollowedScope(scope_key, tenant_id, scope_id)
            scope.ready = asyncio.create_task(self._start(scope))
        scope.users += 1
        try:
            if scope.ready is not None:
                await asyncio.shield(scope.ready)
        except BaseException:
            self.unfollow(scope)
            if scope.ready is not None and scope.ready.done() and self._scopes.get(scope_key) is scope:
                self._forget(scope)
            raise
        return scope

    def unfollow(self, scope: FollowedScope) -> None:
        """One user less; the last one leaves the scope followed for a while."""
        scope.users -= 1
        scope.left_at = asyncio.get_running_loop().time()

    @staticmethod
    def join(scope: FollowedScope, subscriber: Subscriber) -> None:
        """From now on the subscriber gets every matching entry after `joined_at`."""
        subscriber.buffer.clear()
        subscriber.overflowed = False
        subscriber.scope, subscriber.joined_at = scope, scope.last
        scope.groups.setdefault(subscriber.matcher, set()).add(subscriber)

    @staticmethod
    def leave(subscriber: Subscriber) -> None:
        """The subscriber gets nothing more; leaving twice is fine."""
        scope, subscriber.scope = subscriber.scope, None
        group = scope.groups.get(subscriber.matcher) if scope is not None else None
        if scope is not None and group is not None:
            group.discard(subscriber)
            if not group:
                del scope.groups[subscriber.matcher]

    async def _start(self, scope: FollowedScope) -> None:
        await self._listen(scope)
        head = (await self._store.heads([(scope.scope_key, scope.tenant_id)]))[scope.scope_key]
        scope.last, scope.epoch, scope.epochs = head.last_seq, head.ledger_epoch, head.epochs
        waiting, scope.before_start = scope.before_start, []
        for epoch, entry in waiting:
            if epoch == scope.epoch:
                scope.offer(entry)

    async def _listen(self, scope: FollowedScope) -> None:
        """Register interest; a failure costs speed only."""
        if self._bus is None or scope.interest is not None:
            return

        async def arrived(message: Msg) -> None:
            self._hint(scope, message)

        try:
            scope.interest = await self._bus.subscribe(scope.subject, cb=arrived)
            if self._bus.is_connected:
                await self._bus.flush(timeout=1)
        except (NatsError, TimeoutError, OSError) as error:
            _log.info("no hints for a scope: %s", error, extra={"action": "follow_without_bus"})

    def _hint(self, scope: FollowedScope, message: Msg) -> None:
        headers = message.headers or {}
        try:
            epoch, sequence = int(headers[HEADER_EPOCH]), int(headers[HEADER_SEQUENCE])
            entry = Entry.hinted(sequence, message.data, tracing.valid(headers.get(tracing.HEADER)))
        except (KeyError, ValueError):
            _log.warning("a message that is no event is dropped", extra={"action": "hint_dropped"})
            return
        if not scope.epoch:
            scope.before_start = [*scope.before_start[-_EARLY_LIMIT:], (epoch, entry)]
        elif epoch == scope.epoch and not scope.offer(entry):
            self._fill_later(scope, sequence)

    async def compare_heads(self) -> None:
        """Compare all followed scopes with the ledger once, and read what the bus did not bring."""
        self._forget_idle()
        ready = [scope for scope in self._scopes.values() if scope.ready is not None and scope.ready.done()]
        if not ready:
            self._note_lag(0)
            return
        if self.bus_connected:
            await asyncio.gather(*(self._listen(scope) for scope in ready if scope.interest is None))
        heads = await self._store.heads([(scope.scope_key, scope.tenant_id) for scope in ready])
        behind = []
        for scope in ready:
            head = heads.get(scope.scope_key)
            if head is None:
                continue
            moved, scope.epochs = scope.epochs != head.epochs, head.epochs
            if head.ledger_epoch != scope.epoch:
                scope.start_over(head)
            elif head.last_seq > scope.last:
                behind.append((scope, head.last_seq))
            if moved:
                _wake_all(scope)
        if behind and self.bus_connected:
            await asyncio.sleep(_GRACE_S)
        late = [(scope, to) for scope, to in behind if scope.last < to]
        self._note_lag(max((to - scope.last for scope, to in late), default=0))
        for scope, to in late:
            self._fill_later(scope, to)

    async def confirm(self, scope: FollowedScope, sequence: int) -> None:
        """Know the epochs as they were after an entry was written; one look serves all who wait for it together.

        PamspecError while the store is away.
        """
        now = asyncio.get_running_loop().time()
        for _ in range(2):
            if scope.confirmed >= sequence and now - scope.confirmed_at < EPOCHS_FRESH_S:
                return
            if scope.confirming is None or scope.confirming.done():
                scope.confirming = asyncio.create_task(self._confirm(scope))
            await asyncio.shield(scope.confirming)

    async def _confirm(self, scope: FollowedScope) -> None:
        to, at = scope.last, asyncio.get_running_loop().time()
        head = (await self._store.heads([(scope.scope_key, scope.tenant_id)])).get(scope.scope_key)
        if head is None:
            return
        if scope.epochs != head.epochs:
            scope.epochs = head.epochs
            _wake_all(scope)
        scope.confirmed, scope.confirmed_at = max(scope.confirmed, to), at

    def _note_lag(self, lag: int) -> None:
        self.lag = lag
        SUBSCRIPTION_LAG.set(lag)

    def _fill_later(self, scope: FollowedScope, to: int) -> None:
        if scope.filling is None or scope.filling.done():
            scope.filling = asyncio.create_task(self._fill(scope, to))
            self._tasks.add(scope.filling)
            scope.filling.add_done_callback(self._tasks.discard)

    async def _fill(self, scope: FollowedScope, to: int) -> None:
        """Read the ledger up to a position and pass on what is missing."""
        try:
            while scope.last < to:
                page = await self._store.page(scope.scope_key, scope.tenant_id, scope.last, _FILL_ROWS, None)
                if page.head.ledger_epoch != scope.epoch or not page.entries:
                    return
                for entry in page.entries:
                    if entry.sequence == scope.last + 1:
                        scope.accept(entry)
                scope.take_early()
                to = max(to, max(scope.early, default=0))
        except PamspecError as error:
            _log.info("a hole stays until the next comparison: %s", error, extra={"action": "fill_failed"})

    def _forget_idle(self) -> None:
        now = asyncio.get_running_loop().time()
        for scope in [one for one in self._scopes.values() if one.users <= 0 and now - one.left_at > self._linger_s]:
            self._forget(scope)

    def _forget(self, scope: FollowedScope) -> None:
        del self._scopes[scope.scope_key]
        if scope.interest is not None and self._bus is not None and not self._bus.is_closed:
            task = asyncio.create_task(_silence(scope.interest))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End what runs."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _wake_all(scope: FollowedScope) -> None:
    """Rights may have changed: everybody decides again, also those that have nothing to deliver."""
    for subscribers in scope.groups.values():
        for subscriber in subscribers:
            subscriber.wake.set()


async def _silence(interest: Interest) -> None:
    try:
        await interest.unsubscribe()
    except (NatsError, OSError) as error:
        _log.info("interest stays until the connection ends: %s", error, extra={"action": "unfollow_failed"})
