"""The right to go on receiving: decided again whenever the scope's or the tenant's authorization epoch has moved."""

from __future__ import annotations

from collections.abc import Callable

from pamspec_common.errors import AccessDenied, PolicyDenied
from pamspec_common.policy import authorize
from pamspec_common.principal import Principal

Decide = Callable[[Principal, str, str, int], None]
"""(principal, action, tenant, scope epoch): raises AccessDenied or PolicyDenied."""

REVOKED = (AccessDenied, PolicyDenied)


def decide(principal: Principal, action: str, tenant_id: str, epoch_authz: int) -> None:
    """The decision of the shared policy."""
    authorize(principal, action, tenant_id, epoch_authz=epoch_authz)


class Right:
    """One principal's cached right to receive from a scope."""

    def __init__(self, principal: Principal, tenant_id: str, decide: Decide) -> None:
        self._principal, self._tenant_id, self._decide = principal, tenant_id, decide
        self._decided: tuple[int, int] | None = None

    def check(self, epochs: tuple[int, int]) -> None:
        """Raise AccessDenied or PolicyDenied when it no longer holds under these epochs (scope, tenant)."""
        if self._decided != epochs:
            self._decide(self._principal, "subscribe", self._tenant_id, epochs[0])
            self._decided = epochs
