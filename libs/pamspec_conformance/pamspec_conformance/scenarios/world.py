"""What the steps of a scenario share: the scope that the source's binding decides, and canonical versions by position.

Invariant: canonical version N is a ledger position plus an offset that is fixed when the scenario begins. The scope of
an event is looked up by its source in the fixture's binding; no text of a caller is ever read for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pamspec_conformance.binding import Binding
from pamspec_conformance.case import Deviation
from pamspec_conformance.trial import Made, Trial

Step = Mapping[str, Any]


@dataclass
class World:
    """One run of one scenario."""

    trial: Trial
    fixture: Mapping[str, Any]
    scope: str
    """Of the source's binding."""
    host_scope: str
    """Where proposals and what the host reports are kept, apart from the readings."""
    offset: int
    """Canonical version minus ledger position."""
    outcomes: dict[str, Made] = field(default_factory=dict)
    """The first outcome of each event."""
    stranger: Binding | None = None
    holds: bool = False
    """Whether the indexes are held back."""
    is_timely: bool = True
    """Whether watermarks can be told beforehand: indexes were held back where the file says so."""

    @classmethod
    async def begin(cls, trial: Trial, fixture: Mapping[str, Any]) -> World:
        """Scopes for the one binding of the fixture."""
        if len(fixture["binding"]) != 1:
            raise Deviation("the fixture binds more than one source: this runner knows one")
        scope, host_scope = await trial.new_scope(), await trial.new_scope()
        return cls(
            trial,
            fixture,
            scope,
            host_scope,
            int(fixture["canonical_version_before"]),
            stranger=trial.facilities.stranger,
        )

    async def hold_indexes(self) -> None:
        """Keep what is derived where it is, where the run has means to."""
        hold = self.trial.facilities.hold_indexes
        self.holds = self.is_timely = hold is not None
        if hold is not None:
            await hold(True)

    async def release_indexes(self) -> None:
        """Let it go on; from now on every watermark follows."""
        hold = self.trial.facilities.hold_indexes
        if hold is not None and self.holds:
            await hold(False)
        self.holds, self.is_timely = False, True

    def place_of(self, source: str) -> Mapping[str, str]:
        """Where the source is bound to."""
        found: Mapping[str, str] | None = self.fixture["binding"].get(source)
        if found is None:
            raise Deviation(f"no binding of the source {source}")
        return found

    @property
    def object_id(self) -> str:
        """The object whose readings come in: the innermost place of the binding."""
        (place,) = self.fixture["binding"].values()
        return f"obj:{list(place.values())[-1]}"

    def position(self, version: int) -> int:
        """The ledger position of a canonical version."""
        return version - self.offset

    def version(self, position: int) -> int:
        """The canonical version at a ledger position."""
        return position + self.offset

    async def head(self) -> int:
        """The canonical version now."""
        return self.version(len(await self.trial.events(scope_id=self.scope)))

    async def current(self, **members: Any) -> Any:
        """The envelope of the object."""
        return await self.trial.read(self.object_id, scope_id=self.scope, **members)
