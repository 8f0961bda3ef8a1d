"""What operations on scopes, their policies, legal holds and content schemas take."""

from __future__ import annotations

from typing import Any, Required

from pamspec_client.requests.common import Reading, ScopedPageRequest, Writing


class CreateScopeRequest(Writing, total=False):
    """Make a scope; the same document again answers the same."""

    scope_id: Required[str]
    scope_kind: str
    parent_scope_id: str
    policy: dict[str, Any]


class GetScopeRequest(Reading, total=False):
    """One scope."""

    scope_id: Required[str]


class UpdateScopeRequest(Writing, total=False):
    """Another policy for a scope, whole."""

    scope_id: Required[str]
    policy: Required[dict[str, Any]]
    expected_policy_version: Required[int]
    policy_basis: Required[str]


class PlaceHoldRequest(Writing, total=False):
    """A legal hold over a scope, or over the objects of a type."""

    scope_id: Required[str]
    policy_basis: Required[str]
    object_type: str


class ReleaseHoldRequest(Writing, total=False):
    """The end of a legal hold."""

    scope_id: Required[str]
    hold_id: Required[str]
    policy_basis: Required[str]


class ListReadsRequest(Reading, total=False):
    """How often objects were read by their ids."""

    scope_id: Required[str]
    object_ids: Required[list[str]]


class ListHoldsRequest(ScopedPageRequest, total=False):
    """A page of a scope's legal holds."""

    include_released: bool


class RegisterSchemaRequest(Writing, total=False):
    """A JSON Schema that content with this schema_id has to keep, for good."""

    scope_id: Required[str]
    schema_id: Required[str]
    schema: Required[dict[str, Any] | bool]


class GetSchemaRequest(Reading, total=False):
    """A registered schema."""

    scope_id: Required[str]
    schema_id: Required[str]
