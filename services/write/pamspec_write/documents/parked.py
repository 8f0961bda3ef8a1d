"""Requests about ledger entries that a consumer could not take in."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from pamspec_common.documents import Pagination
from pamspec_common.ids import Id
from pamspec_write.documents.administration import Administrative
from pamspec_write.documents.parts import Basis

ConsumerName = Literal["delegation", "indexing"]


class ListParkedEntries(Administrative, kw_only=True):
    consumer: ConsumerName | None = None
    tenant_id: Id | None = None
    pagination: Pagination | None = None


class ReplayParkedEntries(Administrative, kw_only=True):
    consumer: ConsumerName
    tenant_id: Id
    scope_id: Id
    sequence: Annotated[int, msgspec.Meta(ge=1)] | None = None
    skip: bool = False
    policy_basis: Basis
