"""What an import stores beside the ledger: policies, schemas, holds with the objects that they hold, and snapshots.

A scope of another name keeps the policy and the schemas that it has; what is not there is added, holds always: nothing
lifts them by a detour.
Snapshots have ids of their own in a tenant and belong to the ledger in which they were sealed: they stay behind.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pamspec_common.errors import DuplicateOperation
from pamspec_common.instants import parse
from pamspec_common.postgres import Connection
from pamspec_common.transfer import HeldLine, HoldLine, PolicyLine, SchemaLine, SnapshotLine
from pamspec_write.model.rows import PolicyRow, Rows
from pamspec_write.model.rule_lines import RuleLine
from pamspec_write.queries import transfer
from pamspec_write.queries.rules import change_rules
from pamspec_write.queries.snapshots import insert_snapshots

_HELD_AT_ONCE = 1000


@dataclass(slots=True)
class RuleStore:
    """The rules of a file on their way into a scope whose own rules have this version."""

    scope_key: int
    tenant_id: str
    rules_version: int
    remapped: bool
    _rows: Rows = field(default_factory=Rows)
    _changes: int = 0
    """Of schemas and holds."""
    _held: list[HeldLine] = field(default_factory=list)

    async def add(self, conn: Connection, line: RuleLine) -> None:
        """Take the next line."""
        if isinstance(line, PolicyLine):
            if self.rules_version == 0:
                self._rows.policies.append(_policy(self.scope_key, line))
        elif isinstance(line, SchemaLine):
            self._changes += 1
            await transfer.insert_schema(conn, self.scope_key, line)
        elif isinstance(line, HoldLine):
            self._changes += 1
            await transfer.insert_hold(conn, self.scope_key, line)
        elif isinstance(line, HeldLine):
            self._held.append(line)
            if len(self._held) >= _HELD_AT_ONCE:
                await self._flush(conn)
        elif not self.remapped:
            await self._seal(conn, line)

    async def finish(self, conn: Connection) -> None:
        """Bring the scope's rules into force."""
        await self._flush(conn)
        changes = len(self._rows.policies) + self._changes
        if changes:
            self._rows.rules[self.scope_key] = self.rules_version + changes
            await change_rules(conn, self._rows)

    async def _flush(self, conn: Connection) -> None:
        if self._held:
            await transfer.insert_held(conn, self.scope_key, self._held)
            self._held.clear()

    async def _seal(self, conn: Connection, line: SnapshotLine) -> None:
        row = (
            self.scope_key,
            line.snapshot_id,
            self.tenant_id,
            line.evaluation_run_id,
            line.gives_clock,
            line.ledger_epoch,
            line.watermark,
            bytes(line.document),
            parse(line.created_at),
        )
        if not await insert_snapshots(conn, [row]):
            raise DuplicateOperation(
                "The tenant has a snapshot of one of the ids in the file; import with remap.",
                details={"reason": "snapshot_exists"},
            )


def _policy(scope_key: int, line: PolicyLine) -> PolicyRow:
    return PolicyRow(
        scope_key,
        line.policy_version,
        bytes(line.policy),
        line.policy_basis,
        line.actor_id,
        line.authenticated_as,
        line.operation_id,
        line.changed_at,
    )
