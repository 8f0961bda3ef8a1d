"""The job behind reads under grants without a limit: what no event has told of in its minute is told after it.

Invariant: a use that was taken in is told once. Each step is a command of the group commit, decided on the tally of
that moment, so a step that comes twice tells nothing; a killed process's work is found again by anybody.
"""

from __future__ import annotations

import asyncio

from pamspec_common import ids
from pamspec_common.calls import Answer, refusal
from pamspec_common.documents import Actor
from pamspec_common.errors import ObjectNotFound, PamspecError
from pamspec_common.postgres import Pool, connection
from pamspec_common.principal import service_principal
from pamspec_common.service import Background
from pamspec_write.documents.delegations import TellUses
from pamspec_write.handlers.grants import Grants
from pamspec_write.handlers.lanes import Lanes
from pamspec_write.model.commands import Command, operation_hash
from pamspec_write.queries.delegations import Untold, untold_uses
from pamspec_write.settings import Settings

_AT_ONCE = 100
_SERVICE = "service:delegation"


class UseJob:
    """Tells of uses when their minute is over."""

    def __init__(self, pool: Pool, settings: Settings, lanes: Lanes, grants: Grants) -> None:
        self._pool, self._settings, self._lanes, self._grants = pool, settings, lanes, grants

    async def run(self, background: Background) -> None:
        """Work until the service stops."""
        while not await background.pause(self._settings.use_poll_ms / 1000):
            try:
                while await self.tell() == _AT_ONCE and not background.stopping.is_set():
                    pass
            except PamspecError:
                continue
            background.recovered("uses")

    async def tell(self) -> int:
        """Tell of what waited longest; how many tallies were told of."""
        async with connection(self._pool, self._settings.pool_wait_ms) as conn:
            due = await untold_uses(conn, _AT_ONCE)
        answers: list[Answer] = await asyncio.gather(*(self._tell(one) for one in due))
        return sum(answer.status < 400 for answer in answers)

    async def _tell(self, untold: Untold) -> Answer:
        principal = service_principal("delegation", untold.tenant_id)
        try:
            found = await self._grants.find(principal, untold.delegation_id, principal.actor_id)
        except PamspecError as error:
            return refusal(error)
        if found is None:
            return refusal(ObjectNotFound())
        ref, chain = found
        delegate, operation_id = chain[-1].delegate, ids.mint("op")
        command = Command(
            operation="tell_uses",
            request=TellUses(delegation_id=untold.delegation_id, operation=untold.operation),
            scope=ref.home,
            actor=Actor(delegate.actor_id, delegate.actor_kind, delegation_id=ref.delegation_id),
            actor_id=_SERVICE,
            authenticated_as=_SERVICE,
            operation_id=operation_id,
            operation_hash=operation_hash(_SERVICE, operation_id),
            key_hash=None,
            repeatable=None,
            rights=None,
            about=ref,
        )
        return await self._lanes.submit(command)
