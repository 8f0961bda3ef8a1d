"""The rules of scopes, held by their version: a group commit reads only those that it has never seen.

Invariant: a state is decided with the rules of the version that was read with it. The version grows with every change
of them, under the lock of the scope, so rules of another version belong to a state that is read again anyway.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping

from pamspec_common.postgres import Connection
from pamspec_write.model.commands import Work, commands_of
from pamspec_write.model.conformity import needed_schemas
from pamspec_write.model.content import ContentSchema, stored_schema
from pamspec_write.model.facts import ScopeState
from pamspec_write.model.rules import ScopeRules
from pamspec_write.queries.rules import load_rules
from pamspec_write.queries.schemas import read_schemas

_HELD = 10_000
_HELD_SCHEMAS = 2_000


class Rules:
    """The rules of the scopes that one process has written to lately."""

    def __init__(self, held: int = _HELD) -> None:
        self._limit = held
        self._held: OrderedDict[int, ScopeRules] = OrderedDict()
        self._schemas: OrderedDict[tuple[int, str], ContentSchema] = OrderedDict()

    async def fill(self, conn: Connection, states: Mapping[int, ScopeState], works: Iterable[Work]) -> None:
        """Give each state the rules of its version and the registered schemas that the works may need.

        One statement each for what is not held; none for scopes that have no rules.
        """
        ruled = [state for state in states.values() if state.rules_version > 0]
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
        if any(state.rules.schemas for state in ruled):
            await self._fill_schemas(conn, states, works)

    async def _fill_schemas(self, conn: Connection, states: Mapping[int, ScopeState], works: Iterable[Work]) -> None:
        """What is registered never changes, so what is held is good for ever."""
        needed: set[tuple[int, str]] = set()
        for command in commands_of(works):
            state = states[command.scope.scope_key]
            if state.rules.schemas:
                needed |= {(state.ref.scope_key, schema_id) for schema_id in needed_schemas(state, command)}
        missing = [place for place in needed if place not in self._schemas]
        if missing:
            for place, document in (await read_schemas(conn, missing)).items():
                self._schemas[place] = stored_schema(place[1], document)
        for place in needed & self._schemas.keys():
            states[place[0]].schemas[place[1]] = self._schemas[place]
            self._schemas.move_to_end(place)
        while len(self._schemas) > _HELD_SCHEMAS:
            self._schemas.popitem(last=False)

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
