"""Who may use a cell: its owner, its creator, and whom its policy names (AMP A40-A45).

Invariant: one rule for every request; it narrows what the scope's rights let through and widens nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal

from pamspec_amp.model.agents import Agent

Right = Literal["read", "write"]
_LISTS: Mapping[Right, str] = {"read": "readable_by", "write": "writable_by"}


def may(agent: Agent, right: Right, document: Mapping[str, Any]) -> bool:
    """Whether an agent may use a cell so; a right to write is none to read (A43), public is for readers alone (A40)."""
    identity, policy = document["identity"], document.get("access_policy", {})
    if identity["owner_id"] in agent.names or identity.get("created_by") in agent.names:
        return True
    if right == "read" and policy.get("public", False):
        return True
    patterns = policy.get(_LISTS[right], ())
    return any(fnmatchcase(name, pattern) for pattern in patterns for name in agent.names)


def candidates(agent: Agent, right: Right) -> dict[str, Any]:
    """A condition of a query that every cell meets which the agent may use so; `may` decides."""
    names = sorted(agent.names)
    ways: list[dict[str, Any]] = [
        {"field": "content:/identity/owner_id", "op": "in", "value": names},
        {"field": "content:/identity/created_by", "op": "in", "value": names},
        {"field": f"content:/access_policy/{_LISTS[right]}", "op": "exists", "value": True},
    ]
    if right == "read":
        ways.append({"field": "content:/access_policy/public", "op": "eq", "value": True})
    return {"or": ways}
