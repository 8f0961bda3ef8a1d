"""What receipts of erasures and forgets take."""

from __future__ import annotations

from typing import Any, Required, TypedDict

from pamspec_client.requests.common import Reading, Writing


class ListErasuresRequest(Reading, total=False):
    """The receipts of a scope, or one by its id."""

    scope_id: str
    erasure_id: str
    state: str
    """Only those that are open, or closed."""
    limit: int
    cursor: str | None


class ForgetFilter(TypedDict, total=False):
    """What a query would find, whatever its states."""

    filters: dict[str, Any]
    where: dict[str, Any]


class Subject(TypedDict, total=False):
    """Whom or what a forget is about: exactly one of these."""

    actor_id: str
    source_ref: str
    filter: ForgetFilter


class ForgetRequest(Writing, total=False):
    """All that concerns a subject; a preview without preview_token."""

    scope_id: Required[str]
    policy_basis: Required[str]
    subject: Required[Subject]
    preview_token: str
