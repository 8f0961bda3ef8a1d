"""`pamspec` with a write service that permits everything without looking: the floor of what authorization costs.

Nothing but the bench starts it, and it serves loopback alone, as a child of the bench.
"""

import sys
from typing import Any

import pamspec_write.app
from pamspec_cli.__main__ import main
from pamspec_common.authorization.decisions import Decision, Subject
from pamspec_common.authorization.policies import default_text, parse
from pamspec_common.authorization.rights import Asker, Authorizer, Epochs, Rights

_ALWAYS = Decision({}, frozenset({()}), {}, 1, None)


class _AnyEpochs(Epochs):
    """The epochs of whatever moment they are compared with."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = Epochs.__hash__


class _Everything(Rights):
    """The right to everything."""

    def decision(self, action: str) -> Decision:
        """Always."""
        return _ALWAYS


class AllowAll(Authorizer):
    """Rights for everybody, which are never loaded and never too old."""

    async def rights(self, asker: Asker, *_: Any, **__: Any) -> Rights:
        """The same for all."""
        return _RIGHTS


_ANYBODY = Asker("tenant:any", "agent:any", "agent", "agent:any", frozenset({"admin"}))
_RIGHTS = _Everything(
    _ANYBODY, Subject("agent:any", "agent", frozenset({"admin"})), parse(default_text()), _AnyEpochs(0, 0)
)

if __name__ == "__main__":
    pamspec_write.app.Authorizer = AllowAll  # type: ignore[attr-defined]
    sys.exit(main())
