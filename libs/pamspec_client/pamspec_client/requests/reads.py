"""What reads take, whole and page by page."""

from __future__ import annotations

from typing import Literal, Required

from pamspec_client.documents import AsOf, Budget, Expression, Ordering, Traverse, VersionRange
from pamspec_client.requests.common import Common, Reading


class ReadRequest(Reading, total=False):
    """One version: the current one, a named one, or that of a past position."""

    scope_id: Required[str]
    object_id: str
    relationship_id: str
    version_id: str
    snapshot_id: str
    as_of: AsOf


class QueryFields(Reading, total=False):
    """A query without its page."""

    scope_id: Required[str]
    query: Required[Expression]
    ordering: Ordering
    snapshot_id: str
    embedding_space_id: str
    explain_ranking: bool
    rerank: bool
    traverse: Traverse
    fields: list[str]
    exact: bool
    count: Literal["bounded", "exact"]


class QueryRequest(QueryFields, total=False):
    """One page of a query: `limit` items (1 to 1,000) from `cursor` on."""

    limit: int
    cursor: str | None


class QueryPages(QueryFields, total=False):
    """All pages of a query, `page_size` items each."""

    page_size: int


class AssembleRequest(Reading, total=False):
    """A context for a model from what a query finds."""

    scope_id: Required[str]
    query: Required[Expression]
    ordering: Ordering
    snapshot_id: str
    embedding_space_id: str
    traverse: Traverse
    rerank: bool
    exact: bool
    budget: Budget
    min_semantic_score: float
    instruction_types: list[str]


class HistoryFields(Reading, total=False):
    """History of an object or a relationship, or a range of the scope's ledger, without its page."""

    scope_id: Required[str]
    object_id: str
    relationship_id: str
    after_sequence: int
    to_sequence: int
    event_classes: list[str]
    version_range: VersionRange
    snapshot_id: str


class HistoryRequest(HistoryFields, total=False):
    """One page of history: `limit` entries (1 to 1,000) from `cursor` on."""

    limit: int
    cursor: str | None


class HistoryPages(HistoryFields, total=False):
    """All pages of history, `page_size` entries each."""

    page_size: int


class GetOperationRequest(Common, total=False):
    """By operation_id, or by operation and idempotency_key."""

    scope_id: Required[str]
    operation: str
    idempotency_key: str
