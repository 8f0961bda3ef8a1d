"""What a handler works with beside its request."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from pamspec_common.authorization.loading import load_rights
from pamspec_common.authorization.rights import Asker, Authorizer, Rights, Stored
from pamspec_common.authorization.sight import Narrowing, Sight
from pamspec_common.delegation.grants import Chain, authority
from pamspec_common.errors import ObjectNotFound, ScopeNotFound
from pamspec_common.policy import needs_role
from pamspec_common.postgres import Connection
from pamspec_common.principal import RIGHT_ADMIN, RIGHT_AUDIT, Principal
from pamspec_query.documents import Common, Scoped
from pamspec_query.finding import NO_FINDING, Finding
from pamspec_query.model.cursors import Cursor, Cursors, binding
from pamspec_query.model.permission import check_operation, seen
from pamspec_query.model.positions import Head, check_epoch, cursor_error, stale
from pamspec_query.queries.heads import scope_head
from pamspec_query.store import Store


class Moment(NamedTuple):
    """One moment of a scope: the connection that sees it, the scope's key, its head, and the actor's rights in it."""

    conn: Connection
    scope_key: int
    head: Head
    rights: Rights


@dataclass(frozen=True, slots=True)
class Context:
    """One call: who calls, what was sent, and the store."""

    store: Store
    cursors: Cursors
    authorizer: Authorizer
    principal: Principal
    actor: Mapping[str, Any]
    operation: str
    document: Mapping[str, Any]
    answer_bytes: int | None = None
    """Where pages end when the door carries less than we would answer."""
    grant: Chain | None = None
    """The grant under which the call is made, with those above it."""
    narrowing: Narrowing | None = None
    """What the grant leaves of what its grantor may see."""
    finding: Finding = NO_FINDING
    """What ranked queries ask beside the store."""

    @property
    def page_bytes(self) -> int:
        """Where a page ends; room is left for what stands around its items."""
        own = self.store.settings.page_bytes
        return own if self.answer_bytes is None else min(own, self.answer_bytes * 7 // 8)

    @property
    def actor_id(self) -> str:
        """The actor that the call is made as."""
        return str(self.actor["actor_id"])

    @property
    def asker(self) -> Asker:
        """Whose rights decide: under a grant, those of its first grantor."""
        return self._own_asker if self.grant is None else authority(self.grant, self.principal.tenant_id)

    @property
    def _own_asker(self) -> Asker:
        principal, actor = self.principal, self.actor
        return Asker(
            principal.tenant_id,
            self.actor_id,
            actor["actor_kind"],
            principal.actor_id,
            principal.roles,
            actor.get("delegation_id"),
            needs_role(principal, self.actor_id, actor["actor_kind"]),
            principal.actor_kind,
        )

    def parties(self, rights: Rights) -> Sequence[str] | None:
        """Whose restricted entries may be shown; None shows everybody's, to those who audit or administer."""
        if self.grant is not None:
            return sorted({self.actor_id, self.principal.actor_id})
        if self.principal.has(RIGHT_AUDIT) or self.principal.has(RIGHT_ADMIN):
            return None
        if not (rights.decision("audit").never and rights.decision("administer").never):
            return None
        return sorted({self.actor_id, self.principal.actor_id})

    async def rights(self, scope_key: int, head: Head, conn: Connection | None = None) -> Rights:
        """The rights that hold at the moment of a head, by which the operation is permitted.

        ScopeNotFound where the actor may do nothing, AccessDenied where it may not do this. Rights that have moved are
        loaded again, through `conn` when its moment is what counts.
        """
        load = None if conn is None else partial(load_rights, conn)
        rights = await self.authorizer.rights(self.asker, scope_key, head.epochs, load)
        check_operation(self.operation, rights)
        return rights

    async def own_rights(self, scope_key: int, head: Head, conn: Connection) -> Rights:
        """The rights of the actor by itself, whatever grant it names."""
        return await self.authorizer.rights(self._own_asker, scope_key, head.epochs, partial(load_rights, conn))

    @property
    def actors(self) -> list[str]:
        """Whose roles count."""
        return sorted({self.actor_id, self.principal.actor_id})

    async def sees(self, scope_key: int, stored: Stored) -> bool:
        """Whether the actor may do anything in a scope, by what is stored of its rights there."""

        async def load(tenant_id: str, scope_key: int, actors: Sequence[str]) -> Stored:
            return stored

        rights = await self.authorizer.rights(self.asker, scope_key, stored.epochs, load)
        return rights.sees_scope

    def seen(self, rights: Rights) -> Sight:
        """What the operation may show."""
        found = seen(self.operation, rights)
        return found if self.narrowing is None else found.narrowed(self.narrowing)

    async def scope_key(self, scope_id: str) -> int:
        """The key of a scope of the principal's tenant; ScopeNotFound when it has none of that name."""
        return await self.store.scope_key(self.principal.tenant_id, scope_id)

    @asynccontextmanager
    async def moment(self, request: Scoped, narrowing: Sequence[str] = ()) -> AsyncIterator[Moment]:
        """A snapshot of the request's scope at or beyond its floor, with the rights that hold in it.

        The floor says how far the store must be. A cursor or as_of then names its own position, which may lie below:
        a session that sends its floor with every call can still page and look back.
        """
        scope_key = await self.scope_key(request.scope_id)
        floor = request.min_sequence
        if floor is not None:
            await self.store.floors.reach(
                scope_key, floor, request.wait_ms, request.ledger_epoch, partial(self.rights, scope_key)
            )
        async with self.store.snapshot(scope_key, narrowing, self.principal.tenant_id) as conn:
            head = await scope_head(conn, scope_key)
            if head is None:
                raise ScopeNotFound
            rights = await self.rights(scope_key, head, conn)
            check_epoch(head, request.ledger_epoch)
            if floor is not None and head.last_seq < floor:
                raise stale(head, floor)
            yield Moment(conn, scope_key, head, rights)

    async def nowhere(self) -> None:
        """Ask what a scope is asked that cannot be seen, so that one that does not exist takes as long."""
        async with self.store.snapshot(0, tenant_id=self.principal.tenant_id) as conn:
            await scope_head(conn, 0)

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
    """Raise ObjectNotFound for a grant to act under: this is not among what can be delegated (P176)."""
    if request.delegation_id is not None or (request.actor is not None and request.actor.delegation_id is not None):
        raise ObjectNotFound(
            "No such delegation is visible here; leave delegation_id out.", details={"field": "delegation_id"}
        )
