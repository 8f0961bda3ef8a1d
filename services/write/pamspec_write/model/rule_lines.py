"""Policies, schemas, holds and snapshots as an import reads them."""

from __future__ import annotations

from typing import TypeAlias

from pamspec_common import contracts, strict_json
from pamspec_common.scope_policy import parse_policy
from pamspec_common.transfer import HeldLine, HoldLine, PolicyLine, SchemaLine, SnapshotLine
from pamspec_write.documents.objects import check_schema_id
from pamspec_write.model.content import checked_schema
from pamspec_write.model.entry_lines import BadLine, check_time

RuleLine: TypeAlias = PolicyLine | SchemaLine | HoldLine | HeldLine | SnapshotLine
Order = tuple[int, int, str, str]
FIRST: Order = (0, 0, "", "")


def rule_order(line: RuleLine) -> Order:
    """Where a line stands among its like: each is greater than the one before it."""
    if isinstance(line, PolicyLine):
        return (1, line.policy_version, "", "")
    if isinstance(line, SchemaLine):
        return (2, 0, line.schema_id, "")
    if isinstance(line, HoldLine):
        return (3, 0, line.hold_id, "")
    if isinstance(line, HeldLine):
        return (4, 0, line.hold_id, line.object_id)
    return (5, 0, line.snapshot_id, "")


def check_rule(line: RuleLine, scope_id: str, last_seq: int) -> None:
    """BadLine unless the line is what the service could have written of that scope, up to that entry."""
    if isinstance(line, PolicyLine):
        _check_policy(line)
    elif isinstance(line, SchemaLine):
        _check_schema(line)
    elif isinstance(line, HoldLine):
        _check_hold(line, last_seq)
    elif isinstance(line, SnapshotLine):
        _check_snapshot(line, scope_id)


def _check_policy(line: PolicyLine) -> None:
    policy = strict_json.parse(bytes(line.policy))
    parse_policy(policy)
    if strict_json.canonical(policy) != bytes(line.policy):
        raise BadLine("the policy is not written as the service writes it.")
    check_time(line.changed_at)


def _check_schema(line: SchemaLine) -> None:
    check_schema_id(line.schema_id)
    document = bytes(line.document)
    if checked_schema(line.schema_id, strict_json.parse(document)) != document:
        raise BadLine("the schema is not written as the service writes it.")
    check_time(line.registered_at)


def _check_hold(line: HoldLine, last_seq: int) -> None:
    check_time(line.placed_at)
    check_time(line.released_at)
    if not line.policy_basis or line.placed_sequence > last_seq:
        raise BadLine("the hold was placed without a reason, or behind the last entry.")
    released = (line.released_at, line.release_basis, line.released_by)
    if (None in released and released != (None, None, None)) or (line.undone and line.released_at is None):
        raise BadLine("the hold is released in part only.")


def _check_snapshot(line: SnapshotLine, scope_id: str) -> None:
    document = strict_json.parse(bytes(line.document))
    try:
        contracts.check("evaluation-snapshot", document)
    except contracts.ContractViolation:
        raise BadLine("the snapshot does not keep its contract.") from None
    if document["snapshot_id"] != line.snapshot_id or document["scope_id"] != scope_id:
        raise BadLine("the snapshot's document is another's.")
    check_time(line.created_at)
