"""What waits for a group commit: in its order within a tenant, and tenant by tenant in turn.

Invariant: a tenant that sends much, or large batches, is one of those that wait: the next group takes from each of them
before it takes more of the same.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator

from pamspec_common.calls import Answer
from pamspec_write.model.commands import Work


class Waiting:
    """A piece of work and who waits for its answer."""

    __slots__ = ("future", "work")

    def __init__(self, work: Work) -> None:
        self.work = work
        self.future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def answer(self, answer: Answer) -> None:
        """Hand the answer over, once."""
        if not self.future.done():
            self.future.set_result(answer)


class Queue:
    """The work that waits for one lane, or for one set of scopes."""

    __slots__ = ("_by_tenant",)

    def __init__(self) -> None:
        self._by_tenant: dict[str, deque[Waiting]] = {}
        """In the order of their turns."""

    def __bool__(self) -> bool:
        return bool(self._by_tenant)

    def __iter__(self) -> Iterator[Waiting]:
        for waiting in self._by_tenant.values():
            yield from waiting

    def append(self, waiting: Waiting) -> None:
        """Work that came last of its tenant's."""
        tenant_id = waiting.work.scope.tenant_id
        queue = self._by_tenant.get(tenant_id)
        if queue is None:
            queue = self._by_tenant[tenant_id] = deque()
        queue.append(waiting)

    @property
    def first(self) -> Waiting:
        """What `popleft` would take."""
        return next(iter(self._by_tenant.values()))[0]

    def popleft(self) -> Waiting:
        """Take the first of the tenant whose turn it is, which then waits behind the others."""
        tenant_id, queue = next(iter(self._by_tenant.items()))
        waiting = queue.popleft()
        if not queue:
            del self._by_tenant[tenant_id]
        elif len(self._by_tenant) > 1:
            self._by_tenant[tenant_id] = self._by_tenant.pop(tenant_id)
        return waiting

    def clear(self) -> None:
        """Forget everything."""
        self._by_tenant.clear()
