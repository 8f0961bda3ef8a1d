"""Grants of authority, checks and explanations of them."""

from __future__ import annotations

from typing import Any

import msgspec

from pamspec_client.models.document import Document
from pamspec_client.models.objects import Envelope


class Granted(Document, kw_only=True):
    """A grant as it was made: its first version, and what stands beside it."""

    delegation_id: str
    version_id: str
    scope_id: str
    ledger_sequence: int
    envelope_raw: msgspec.Raw = msgspec.field(name="envelope")
    remaining_uses: int | None = None
    """How often it may still be used; None without a limit."""
    redelegation_depth: int = 0
    operation_id: str = ""

    @property
    def envelope(self) -> Envelope:
        """The delegation; `extra` holds its parties, operations and window."""
        return Envelope.of(self.envelope_raw)


class Revoked(Document, kw_only=True):
    """A grant that nothing is done under any more."""

    delegation_id: str
    version_id: str
    scope_id: str
    ledger_sequence: int
    operation_id: str = ""


class Checked(Document, kw_only=True):
    """A check that permitted; one that denies raises AccessDenied with `details["reason"]`."""

    delegation_id: str
    envelope_raw: msgspec.Raw = msgspec.field(name="envelope")
    remaining_uses: int | None = None
    operation_id: str = ""

    @property
    def envelope(self) -> Envelope:
        """The delegation."""
        return Envelope.of(self.envelope_raw)


class Rule(msgspec.Struct, kw_only=True):
    """A rule that a use has to keep."""

    rule: str
    kept: bool


class ChainLink(msgspec.Struct, kw_only=True):
    """A grant of a chain; its terms only for its parties, auditors and administrators."""

    delegation_id: str
    rules: list[Rule]
    granting_actor_id: str | None = None
    delegated_actor_id: str | None = None
    scope_id: str | None = None
    target_scope_id: str | None = None
    granted_operations: list[str] | None = None
    not_before: str | None = None
    not_after: str | None = None
    revoked: bool | None = None
    remaining_uses: int | None = None
    redelegation_depth: int | None = None


class Explanation(Document, kw_only=True):
    """By which rules a use would be permitted or refused now."""

    delegation_id: str
    permitted: bool
    reason: str | None
    decided_at: str
    remaining_uses: int | None
    chain: list[ChainLink]
    """The grant last, behind those that it was passed on under."""
    exercised: dict[str, int]
    """How often each operation was carried out under it, as far as the service has followed the ledger."""
    operation_id: str = ""


class DelegationEntry(Document, kw_only=True):
    """A grant in a list."""

    envelope_raw: msgspec.Raw = msgspec.field(name="envelope")
    remaining_uses: int | None
    redelegation_depth: int
    in_force: bool

    @property
    def envelope(self) -> Envelope:
        """The delegation."""
        return Envelope.of(self.envelope_raw)

    @property
    def terms(self) -> dict[str, Any]:
        """The delegation as it came: parties, operations, window."""
        found: dict[str, Any] = msgspec.json.decode(self.envelope_raw)
        return found


class DelegationPage(Document, kw_only=True):
    """A page of grants, by delegation_id."""

    delegations_raw: list[msgspec.Raw] = msgspec.field(name="delegations")
    next_cursor: str | None = None

    @property
    def delegations(self) -> list[DelegationEntry]:
        """The grants."""
        return [DelegationEntry.of(raw) for raw in self.delegations_raw]
