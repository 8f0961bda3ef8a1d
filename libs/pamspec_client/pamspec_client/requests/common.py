"""What every operation takes, and every page of what has no other condition."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Required, TypeAlias, TypedDict

from pamspec_client.documents import Actor

Time: TypeAlias = datetime | str
"""An aware datetime, or RFC 3339 text with an offset."""
Content: TypeAlias = Any
"""Any JSON value, or `RawJson` for JSON text."""


class Common(TypedDict, total=False):
    """What every operation takes."""

    operation_id: str
    """Name of this execution; minted once per call, and the same in every retry of it."""
    actor: Actor
    delegation_id: str
    evaluation_run_id: str
    ledger_epoch: int
    wait_ms: int
    """How long the service may wait for a floor, an event or a busy scope, 0 to 30,000 ms."""


class Writing(Common, total=False):
    """What every write takes besides."""

    idempotency_key: str
    """The same key with the same content answers the first outcome again; minted once per call."""


class Reading(Common, total=False):
    """What every read takes besides."""

    min_sequence: int
    """Version floor: no answer from a state older than this ledger sequence (contract K2)."""


class PageRequest(Reading, total=False):
    """A page of what has no other condition."""

    limit: int
    cursor: str | None


class ScopedPageRequest(Reading, total=False):
    """A page of what a scope has."""

    scope_id: Required[str]
    limit: int
    cursor: str | None
