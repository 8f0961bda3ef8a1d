"""The rules of scopes, held by their version: a group commit reads only those that it has never seen.

Invariant: a state is decided with the rules of the version that was read with it. The version grows with every change
of them, under the lock of the scope, so rules of another version belong to a state that is read again anyway.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from pamspec_common.postgres import Connection
from pamspec_write.model.facts import ScopeState
from pamspec_write.model.rules import ScopeRules
from pamspec_write.queries.rules import load_rules

_HELD = 10_000


class Rules:
    """The rules of the scopes that one process has written to lately."""

    def __init__(self, held: int = _HELD) -> None:
        self._limit = held
        self._held: OrderedDict[int, ScopeRules] = OrderedDict()

    async def fill(self, conn: Connection, states: Iterable[ScopeState]) -> None:
        """Give each state the rules of its version; one statement for all that are not held."""
        ruled = [state for state in states if state.rules_version > 0]
        if not ruled:
            return
        missing = [state.ref.scope_key for state in ruled if not self._is_held(state)]
        if missing:
            for scope_key, rules in (await load_rules(conn, missing)).items():
                self._hold(scope_key, rules)
        for state in ruled:
            found = self._held.get(state.ref.scope_key)
            if found is not None:
                state.rules = found

    def _is_held(self, state: ScopeState) -> bool:
        held = self._held.get(state.ref.scope_key)
        return held is not None and held.version == state.rules_version

    def _hold(self, scope_key: int, rules: ScopeRules) -> None:
        known = self._held.get(scope_key)
        if known is not None and known.version > rules.version:
            return
        self._held[scope_key] = rules
        self._held.move_to_end(scope_key)
        while len(self._held) > self._limit:
            self._held.popitem(last=False)
