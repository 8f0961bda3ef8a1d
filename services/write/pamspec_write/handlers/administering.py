"""What the handlers of administration share: who asks, about which place, and the record of what was done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pamspec_common.calls import Answer
from pamspec_common.documents import Actor, Pagination
from pamspec_common.errors import AccessDenied, InvalidRequest
from pamspec_common.policy import needs_role
from pamspec_common.postgres import Connection
from pamspec_common.principal import RIGHT_OPERATOR, Principal
from pamspec_common.strict_json import dumps
from pamspec_write.model.facts import ScopeRef
from pamspec_write.model.rows import AdministrationRow
from pamspec_write.queries import administration as queries
from pamspec_write.queries.administration import Place

_PAGE = 50


@dataclass(frozen=True)
class Asked:
    """An administrative call of somebody who may make it."""

    operation: str
    operation_id: str
    principal: Principal
    actor: Actor
    authenticated_as: str | None
    scope: ScopeRef | None
    tenant_id: str
    """The tenant that it is about: the principal's own, but for operators."""
    in_sight: bool = True
    """False for a scope that the caller may not see: it may only learn of its deletion."""

    @property
    def place(self) -> Place:
        """Where the change holds."""
        return Place(self.tenant_id, 0 if self.scope is None else self.scope.scope_key)

    def answer(self, **body: Any) -> Answer:
        """The answer with the id of the operation."""
        return Answer(200, dumps({"operation_id": self.operation_id, **body}))


class RolledBack(Exception):
    """Ends the transaction of a call that leaves nothing behind, a dry run for one, with its answer."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.answer = answer


def page_of(pagination: Pagination | None) -> tuple[int, str | None]:
    """How many entries a page has, and where it starts."""
    return (_PAGE, None) if pagination is None else (pagination.limit, pagination.cursor)


def no_cursor() -> InvalidRequest:
    """The refusal of a cursor that no page of this list names."""
    return InvalidRequest(
        "pagination.cursor is not one of ours; send next_cursor as it came.", details={"field": "pagination.cursor"}
    )


def check_operator(principal: Principal) -> None:
    """AccessDenied for everybody who does not operate the deployment."""
    if not principal.has(RIGHT_OPERATOR):
        raise AccessDenied(
            "Only operators of the deployment may do that; ask one of them.", details={"action": RIGHT_OPERATOR}
        )


def check_own_name(principal: Principal, actor: Actor) -> None:
    """AccessDenied for an operator that names somebody else, without credentials that let it."""
    if needs_role(principal, actor.actor_id, actor.actor_kind):
        raise AccessDenied("The body names another actor than the key belongs to; leave `actor` out.")


async def record(conn: Connection, asked: Asked, basis: str, subject: str | None, detail: str) -> None:
    """Note who did this, when, why and under which rules, for good; the place's epoch was raised before."""
    row = AdministrationRow(
        *asked.place,
        operation=asked.operation,
        operation_id=asked.operation_id,
        actor_id=asked.actor.actor_id,
        authenticated_as=asked.authenticated_as,
        policy_basis=basis,
        detail=detail,
        policy_version=await queries.policy_version_before(conn, asked.place),
        subject=subject,
    )
    await queries.record_change(conn, row)
