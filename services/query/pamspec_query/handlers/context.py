"""What a handler works with beside its request."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from pamspec_common.errors import ObjectNotFound, ScopeNotFound
from pamspec_common.policy import authorize
from pamspec_common.postgres import Connection
from pamspec_common.principal import RIGHT_ADMIN, RIGHT_AUDIT, Principal
from pamspec_query.documents import Common, Scoped
from pamspec_query.model.cursors import Cursor, Cursors, binding
from pamspec_query.model.positions import Head, check_epoch, cursor_error, stale
from pamspec_query.queries.heads import scope_head
from pamspec_query.store import Store


@dataclass(frozen=True, slots=True)
class Context:
    """One call: who calls, what was sent, and the store."""

    store: Store
    cursors: Cursors
    principal: Principal
    actor_id: str
    operation: str
    document: Mapping[str, Any]

    @property
    def parties(self) -> Sequence[str] | None:
        """Whose restricted entries may be shown; None shows everybody's."""
        if self.principal.has(RIGHT_AUDIT) or self.principal.has(RIGHT_ADMIN):
            return None
        return sorted({self.actor_id, self.principal.actor_id})

    def authorize(self, head: Head) -> None:
        """Raise unless the principal may do this here, on the rights that hold at the moment that is read."""
        authorize(self.principal, self.operation, self.principal.tenant_id, epoch_authz=head.epoch_authz)

    async def scope_key(self, scope_id: str) -> int:
        """The key of a scope of the principal's tenant; ScopeNotFound when it has none of that name."""
        return await self.store.scope_key(self.principal.tenant_id, scope_id)

    @asynccontextmanager
    async def moment(
        self, request: Scoped, narrowing: Sequence[str] = ()
    ) -> AsyncIterator[tuple[Connection, int, Head]]:
        """A snapshot of the request's scope at or beyond its floor: the connection, the scope's key and its head.

        The floor says how far the store must be. A cursor or as_of then names its own position, which may lie below:
        a session that sends its floor with every call can still page and look back.
        """
        scope_key = await self.scope_key(request.scope_id)
        floor = request.min_sequence
        if floor is not None:
            await self.store.floors.reach(scope_key, floor, request.wait_ms, request.ledger_epoch)
        async with self.store.snapshot(scope_key, narrowing) as conn:
            head = await scope_head(conn, scope_key)
            if head is None:
                raise ScopeNotFound
            check_epoch(head, request.ledger_epoch)
            if floor is not None and head.last_seq < floor:
                raise stale(head, floor)
            self.authorize(head)
            yield conn, scope_key, head

    def read_cursor(self, text: str) -> Cursor:
        """The cursor of this request."""
        return self.cursors.read(text, self._bound())

    def write_cursor(self, cursor: Cursor) -> str:
        """The text of a cursor for the next page of this request."""
        return self.cursors.write(cursor, self._bound())

    def _bound(self) -> bytes:
        who = (self.principal.tenant_id, self.principal.actor_id, self.actor_id)
        return binding(self.operation, who, self.document)


def check_cursor(cursor: Cursor, head: Head) -> None:
    """Raise InvalidRequest for a cursor of another epoch or of a position that the scope does not have."""
    if cursor.epoch != head.ledger_epoch:
        raise cursor_error("position_outdated" if cursor.epoch < head.ledger_epoch else "position_future", head)
    if cursor.position > head.last_seq:
        raise cursor_error("position_future", head)


def refuse_grant(request: Common) -> None:
    """Raise ObjectNotFound for a grant to act under: there is none yet."""
    if request.delegation_id is not None or (request.actor is not None and request.actor.delegation_id is not None):
        raise ObjectNotFound(
            "No such delegation is visible here; leave delegation_id out.", details={"field": "delegation_id"}
        )
