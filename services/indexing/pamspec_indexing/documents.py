"""The request documents of the operations; whatever else a request carries is invalid_request."""

from __future__ import annotations

from typing import Any

from pamspec_common import documents
from pamspec_common.documents import Actor, CommonFields
from pamspec_common.ids import Id


class OfScope(CommonFields, kw_only=True):
    """A request about one scope."""

    scope_id: Id
    actor: Actor | None = None


class ListIndexes(OfScope, kw_only=True):
    """list_indexes."""


class OfIndex(OfScope, kw_only=True):
    """rebuild_index, drop_index and verify_index."""

    index_id: Id


def decode(kind: type[Any], document: Any) -> Any:
    """A request of `kind`; InvalidRequest names the member that does not fit."""
    return documents.decode(kind, document)
