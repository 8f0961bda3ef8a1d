"""Role bindings: who holds which role, in a scope or in a whole tenant.

Invariant: a change raises the epoch and is noted in its own transaction; what is so already is no change.
"""

from __future__ import annotations

from typing import get_args

from pamspec_common.calls import Answer
from pamspec_common.ids import is_id
from pamspec_common.instants import wire
from pamspec_common.postgres import Connection
from pamspec_write.documents import administration as requests
from pamspec_write.handlers.administering import Asked, no_cursor, page_of, record
from pamspec_write.queries import administration as queries


async def change_role(conn: Connection, asked: Asked, request: requests.BindRole | requests.UnbindRole) -> Answer:
    """Bind or unbind; what is so already stays as it is and is no change."""
    await queries.raise_epoch(conn, asked.place)
    binds = isinstance(request, requests.BindRole)
    if binds:
        done = await conn.execute(queries.BIND_SQL, *asked.place, request.actor_id, request.role, asked.actor.actor_id)
    else:
        done = await conn.execute(queries.UNBIND_SQL, *asked.place, request.actor_id, request.role)
    changed = done.endswith(" 1")
    if changed:
        await record(conn, asked, request.policy_basis, request.actor_id, request.role)
    return asked.answer(actor_id=request.actor_id, role=request.role, bound=binds, changed=changed)


async def list_role_bindings(conn: Connection, asked: Asked, request: requests.ListRoleBindings) -> Answer:
    """A page of bindings by actor and role."""
    limit, cursor = page_of(request.pagination)
    actor_id, _, role = (cursor or " ").partition(" ")
    if cursor is not None and not (is_id(actor_id) and role in get_args(requests.Role)):
        raise no_cursor()
    after = (actor_id, role)
    rows = await conn.fetch(queries.BINDINGS_SQL, *asked.place, request.actor_id, *after, limit + 1)
    found = [
        {
            "actor_id": row["actor_id"],
            "role": row["role"],
            "bound_by": row["bound_by"],
            "bound_at": wire(row["bound_at"]),
        }
        for row in rows[:limit]
    ]
    more = f"{found[-1]['actor_id']} {found[-1]['role']}" if len(rows) > limit else None
    return asked.answer(role_bindings=found, next_cursor=more)
