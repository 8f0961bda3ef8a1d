"""The scope where cells are, as one caller: every request is operations there.

Invariant: there is no other way to a cell; what an operation refuses is refused here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pamspec_amp.model.access import Right, candidates, may
from pamspec_amp.model.agents import Agent
from pamspec_amp.model.cells import FIELDS, Cell, Usage, cell_in
from pamspec_amp.model.errors import AccessDenied, refused
from pamspec_amp.model.schemas import OBJECT_TYPE
from pamspec_amp.model.ulids import object_id
from pamspec_common import strict_json
from pamspec_common.operating import Caller, answered

_TRUST = {
    "availability_state": ["available"],
    "validation_state": ["unverified", "corroborated", "disputed"],
}
_ANY = {"lifecycle_state": "any", "retention_state": "any"}

Conditions = Sequence[Mapping[str, Any]]


class Refusal(Exception):
    """An operation was refused."""

    def __init__(self, status: int, error: Mapping[str, Any], retry_after: str | None) -> None:
        super().__init__(error.get("code"))
        self.status, self.error, self.retry_after = status, error, retry_after

    @property
    def code(self) -> str:
        """The code of the operations."""
        return str(self.error.get("code"))


class Place:
    """A scope, as one agent."""

    def __init__(self, caller: Caller, scope_id: str, agent: Agent) -> None:
        self._caller, self.scope_id, self.agent = caller, scope_id, agent

    async def ask(self, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The document of an operation's answer, numbers as they were written. Refusal when it is none."""
        asked: dict[str, Any] = {"scope_id": self.scope_id, **arguments}
        if self.agent.asserted is not None:
            asked["actor"] = {"actor_id": self.agent.asserted, "actor_kind": "agent"}
        answer = await answered(self._caller, operation, asked)
        found: dict[str, Any] = strict_json.parse(answer.body)
        if answer.status >= 400:
            raise Refusal(answer.status, found["error"], answer.headers.get("Retry-After"))
        return found

    async def tell(self, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The same, for an operation whose refusal is that of the request."""
        try:
            return await self.ask(operation, arguments)
        except Refusal as refusal:
            raise refused(refusal.status, refusal.error, refusal.retry_after) from None

    async def cell(self, cell_id: str, right: Right) -> Cell:
        """A cell that the agent may use so; what is missing, gone or not for it is one AccessDenied (A14, A33, AY4)."""
        named = object_id(cell_id)
        if named is None:
            raise AccessDenied
        where = [{"field": "object_id", "op": "eq", "value": named}]
        page = await self.tell("query", self.query(where, _ANY, right) | {"pagination": {"limit": 1}})
        found = self.cells(page, right)
        if not found:
            raise AccessDenied
        return found[0]

    def query(self, where: Conditions, states: Mapping[str, Any], right: Right = "read") -> dict[str, Any]:
        """A query for cells that the agent may use so, as far as a condition can tell; `cells` decides."""
        filters = {"object_type": [OBJECT_TYPE], **_TRUST, **states}
        ids = {"field": "object_id", "op": "starts_with", "value": "amp:mem_"}
        condition = {"and": [ids, *where, candidates(self.agent, right)]}
        return {"query": {"kind": "structured", "filters": filters, "where": condition}, "fields": FIELDS}

    def cells(self, page: Mapping[str, Any], right: Right = "read") -> list[Cell]:
        """The cells of a page of a query that the agent may use so (A45)."""
        found = (cell_in(item["projection"]) for item in page["items"])
        return [cell for cell in found if cell is not None and may(self.agent, right, cell.document)]

    async def usage(self, cells: Sequence[Cell]) -> dict[str, Usage]:
        """How often cells were read, by their ids; those that nobody read are left out."""
        if not cells:
            return {}
        found = await self.tell("list_reads", {"object_ids": [cell.object_id for cell in cells]})
        return {one["object_id"]: Usage(one["reads"], one["read_at"]) for one in found["reads"]}
