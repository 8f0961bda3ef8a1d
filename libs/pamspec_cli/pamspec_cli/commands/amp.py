"""`pamspec amp`: make a scope ready for the cells of the Agent Memory Protocol."""

import argparse
from typing import Any

from pamspec_amp.model.schemas import DECAY, OBJECT_TYPE, SCHEMA_ID, STORED
from pamspec_cli.connection import OK, add_arguments, reporting, service
from pamspec_client import Client, ScopeNotFound

SUMMARY = "make a scope ready for the cells of the Agent Memory Protocol, which are at /amp/v1"
_SCOPE = "workspace:amp"
_BASIS = "made ready for cells"


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("--scope", default=_SCOPE, help=f"the scope, as PAMSPEC_AMP_SCOPE names it ({_SCOPE})")
    add_arguments(parser)


@reporting
def run(arguments: argparse.Namespace) -> int:
    """0 when the scope is there, with the rule by which cells decay and their schema; again without harm."""
    with service(arguments).client() as client:
        _make(client, arguments.scope)
        client.call("register_schema", {"scope_id": arguments.scope, "schema_id": SCHEMA_ID, "schema": STORED})
    print(f"{arguments.scope}  is ready for cells")
    return OK


def _make(client: Client, scope_id: str) -> None:
    try:
        found = client.get_scope(scope_id=scope_id)
    except ScopeNotFound:
        client.create_scope(scope_id=scope_id, policy=_with_decay({}))
        return
    policy = dict(found.policy or {})
    wanted = _with_decay(policy)
    if wanted != policy:
        client.update_scope(
            scope_id=scope_id,
            policy=wanted,
            expected_policy_version=found.policy_version or 0,
            policy_basis=_BASIS,
        )


def _with_decay(policy: dict[str, Any]) -> dict[str, Any]:
    """The policy with the rule of cells; what else it says stays."""
    retention = dict(policy.get("retention", {}))
    by_type = dict(retention.get("by_type", {}))
    rule = {**by_type.get(OBJECT_TYPE, {}), "decay": DECAY}
    return {**policy, "retention": {**retention, "by_type": {**by_type, OBJECT_TYPE: rule}}}
