"""Which agent calls, as far as its principal may say so (AMP A13, A21, A39).

Invariant: with a key the header names the key's own actor, by its id or, for `agent:name`, by its name; another one is
named by a principal alone that may act for others, and then it is that one who acts. Two actors never share a name: an
id has a scheme, and only that of agents may be left out.
"""

from __future__ import annotations

from typing import NamedTuple

from pamspec_amp.model.errors import MissingAgentId, Unauthenticated
from pamspec_common.ids import is_id

_SCHEME = "agent:"
MAX_NAME = 255


class Agent(NamedTuple):
    """Who calls."""

    name: str
    """As it calls itself."""
    names: frozenset[str]
    """What cells may call it."""
    asserted: str | None = None
    """The actor as which a principal acts that may act for others."""


def keyed(header: str | None, actor_id: str, *, may_assert: bool) -> Agent:
    """The agent of a request with a key. Unauthenticated for one that the key is not for (A21)."""
    name = _checked(header)
    if name in (actor_id, actor_id.removeprefix(_SCHEME)):
        return Agent(name, frozenset((actor_id, actor_id.removeprefix(_SCHEME))))
    asserted = _actor_of(name)
    if not may_assert or asserted is None:
        raise Unauthenticated
    return Agent(name, _names(asserted), asserted)


def unkeyed(header: str | None, created_by: str | None, *, may_assert: bool) -> Agent:
    """The agent of a request without a key, where an operator lets such in: at its word (A13)."""
    name = _checked(header if header is not None else created_by)
    asserted = _actor_of(name)
    names = frozenset((name,)) if asserted is None else _names(asserted)
    return Agent(name, names, asserted if may_assert else None)


def _checked(name: str | None) -> str:
    if not name:
        raise MissingAgentId
    if len(name) > MAX_NAME or not name.isprintable():
        raise Unauthenticated
    return name


def _actor_of(name: str) -> str | None:
    """The actor that an agent's name means; None where it can be none."""
    actor = name if ":" in name else _SCHEME + name
    return actor if is_id(actor) and actor.startswith(_SCHEME) else None


def _names(actor_id: str) -> frozenset[str]:
    return frozenset((actor_id, actor_id.removeprefix(_SCHEME)))
