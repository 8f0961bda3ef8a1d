"""Traversal: what can be reached from some objects along relationships (PAMSPEC P76, P151, P183).

Invariant: every hop is decided anew; under a grant none leads out of its scope. A relationship is walked when its
states pass the query's; an object is gone through when it is there and not erased; another scope is entered when its
own policy names the scope from which the hop comes and the principal may query there. A hop that is refused looks like
one that leads nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pamspec_common.authorization.sight import Sight
from pamspec_common.errors import AccessDenied, InvalidRequest, ObjectNotFound, ScopeNotFound
from pamspec_common.postgres import Connection, show_scopes
from pamspec_common.scope_policy import stored_policy
from pamspec_query.documents import Traverse
from pamspec_query.handlers.context import Context
from pamspec_query.model.paths import Paths
from pamspec_query.model.plan import Plan
from pamspec_query.queries import heads, policies, traversal
from pamspec_query.queries.traversal import Walk

MAX_REACHED = 10_000
"""How many objects and relationships a traversal may reach."""


@dataclass(slots=True)
class Ground:
    """A scope in which a traversal walks, at one position."""

    scope_id: str
    scope_key: int
    position: int
    sight: Sight
    """What may be seen in it."""
    seen: set[str] = field(default_factory=set)
    sequences: set[int] = field(default_factory=set)
    """Of the versions that were reached: relationships that were walked, and objects."""


@dataclass(slots=True)
class Traversal:
    """Walks, hop by hop, through the scopes that let it in."""

    context: Context
    conn: Connection
    walk: Walk
    ended: Mapping[str, int] | None
    """The positions of the other scopes, by their ids, when a page before has fixed them."""
    crosses: bool
    grounds: dict[str, Ground | None] = field(default_factory=dict)
    paths: Paths = field(default_factory=Paths)
    reached: int = 0

    async def run(self, home: Ground, start: Sequence[str], depth: int) -> list[Ground]:
        """The scopes that were walked in, the query's own first, with what was reached in each."""
        self.grounds[home.scope_id] = home
        found = await self._visible(home, start)
        missing = [object_id for object_id in start if object_id not in found]
        for object_id in missing:
            if not await self._exists(home, object_id):
                raise ObjectNotFound(
                    "An object to start from is not visible here; check traverse.from.",
                    details={"field": "traverse.from"},
                )
        home.seen.update(start)
        self.paths.begin((home.scope_id, object_id) for object_id in start)
        frontier = {home.scope_id: sorted(found)}
        for _ in range(depth):
            frontier = await self._hop(frontier)
            if not frontier:
                break
        others = [ground for ground in self.grounds.values() if ground and ground.sequences and ground is not home]
        return [home, *sorted(others, key=lambda ground: ground.scope_key)]

    async def _visible(self, ground: Ground, object_ids: Sequence[str]) -> dict[str, int]:
        return await traversal.visible(
            self.conn, ground.scope_key, object_ids, ground.position, self.walk.pinned, ground.sight
        )

    async def _exists(self, home: Ground, object_id: str) -> bool:
        pinned = self.walk.pinned
        if pinned is not None and not await traversal.is_pinned(self.conn, home.scope_key, object_id, pinned):
            return False
        return await heads.object_exists(self.conn, home.scope_key, object_id, b"o", home.position, home.sight)

    async def _hop(self, frontier: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        following: dict[str, set[str]] = {}
        for scope_id in sorted(frontier):
            ground = self.grounds[scope_id]
            assert ground is not None
            steps = await traversal.hop(
                self.conn,
                ground.scope_key,
                frontier[scope_id],
                ground.position,
                self.walk,
                ground.sight,
                MAX_REACHED + 1,
            )
            self._reach(ground, [step.sequence for step in steps])
            for step in steps:
                entered = ground if step.scope_id in (None, scope_id) else await self._enter(ground, step.scope_id)
                if entered is None:
                    continue
                near, far = (scope_id, step.near_id), (entered.scope_id, step.object_id)
                self.paths.walk(near, step.relationship_id, far)
                if step.object_id not in entered.seen:
                    following.setdefault(entered.scope_id, set()).add(step.object_id)
        return {scope_id: await self._visit(scope_id, sorted(ids)) for scope_id, ids in sorted(following.items())}

    async def _visit(self, scope_id: str, object_ids: list[str]) -> list[str]:
        """The objects that the next hop starts from."""
        ground = self.grounds[scope_id]
        assert ground is not None
        ground.seen.update(object_ids)
        found = await self._visible(ground, object_ids)
        self._reach(ground, list(found.values()))
        return sorted(found)

    def _reach(self, ground: Ground, sequences: Sequence[int]) -> None:
        before = len(ground.sequences)
        ground.sequences.update(sequences)
        self.reached += len(ground.sequences) - before
        if self.reached > MAX_REACHED:
            raise InvalidRequest(
                f"The traversal reaches more than {MAX_REACHED} versions; name relationship_types, or lower its depth.",
                details={"field": "traverse", "limit": MAX_REACHED},
            )

    async def _enter(self, source: Ground, scope_id: str | None) -> Ground | None:
        """The other scope, if it lets a hop in that comes from `source`; else None, whatever the reason."""
        if scope_id is None or not self.crosses:
            return None
        known = self.grounds.get(scope_id)
        if scope_id not in self.grounds:
            known = self.grounds[scope_id] = await self._ground(scope_id)
        if known is None:
            return None
        _, policy = await policies.current_policy(self.conn, known.scope_key)
        if policy is None or not stored_policy(policy).traversable_from(source.scope_id):
            return None
        return known

    async def _ground(self, scope_id: str) -> Ground | None:
        context, conn = self.context, self.conn
        if context.grant is not None or (self.ended is not None and scope_id not in self.ended):
            return None
        try:
            scope_key = await context.scope_key(scope_id)
            visible = [ground.scope_key for ground in self.grounds.values() if ground is not None]
            await show_scopes(conn, [*visible, scope_key])
            head = await heads.scope_head(conn, scope_key)
            if head is None:
                return None
            rights = await context.rights(scope_key, head, conn)
        except (ScopeNotFound, AccessDenied):
            return None
        position = head.last_seq if self.ended is None else min(self.ended[scope_id], head.last_seq)
        return Ground(scope_id, scope_key, position, context.seen(rights))


async def traverse(
    context: Context, conn: Connection, home: Ground, request: Traverse, wanted: Plan, ended: Mapping[str, int] | None
) -> tuple[list[Ground], Paths]:
    """What can be reached, by scope, and by which ways.

    Only a query of now enters other scopes: a past position is one ledger's own.
    """
    walk = Walk(
        outgoing=request.direction in ("outgoing", "both"),
        incoming=request.direction in ("incoming", "both"),
        types=None if request.relationship_types is None else sorted(set(request.relationship_types)),
        states=wanted.states.lists(),
        valid_at=wanted.valid_at,
        pinned=wanted.pinned,
    )
    now = wanted.ledger_sequence is None and wanted.recorded_at is None
    traversal = Traversal(context, conn, walk, ended, now)
    grounds = await traversal.run(home, sorted(set(request.from_)), request.depth)
    return grounds, traversal.paths
