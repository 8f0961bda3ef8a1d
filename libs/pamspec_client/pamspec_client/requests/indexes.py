"""Requests about derived indexes."""

from __future__ import annotations

from typing import Required

from pamspec_client.requests.common import Common


class ListIndexesRequest(Common, total=False):
    """The derived indexes of a scope, and how far each is behind its ledger."""

    scope_id: Required[str]


class IndexRequest(Common, total=False):
    """One derived index of a scope."""

    scope_id: Required[str]
    index_id: Required[str]
