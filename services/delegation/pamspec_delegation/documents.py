"""The request documents of the operations; whatever else a request carries is invalid_request."""

from __future__ import annotations

from typing import Annotated

import msgspec

from pamspec_common import documents
from pamspec_common.delegation.grants import Delegable
from pamspec_common.documents import MAX_KEY, Actor, CommonFields, Pagination
from pamspec_common.errors import InvalidRequest
from pamspec_common.ids import Id


class Explain(CommonFields, kw_only=True):
    """explain_delegation."""

    delegation_id: Id
    operation: Delegable
    scope_id: Id | None = None
    actor: Actor | None = None
    object_id: Id | None = None
    object_type: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_KEY)] | None = None


class Check(Explain, kw_only=True):
    """check_delegation."""

    consume: bool = True


class ListDelegations(CommonFields, kw_only=True):
    """list_delegations."""

    scope_id: Id | None = None
    actor: Actor | None = None
    granting_actor_id: Id | None = None
    delegated_actor_id: Id | None = None
    in_force: bool | None = None
    pagination: Pagination | None = None


def checked(request: Check | Explain) -> Check | Explain:
    """The request, whose object_type is one that an object can have."""
    name = request.object_type
    if name is not None and name not in documents.STANDARD_TYPES and not documents.is_extension_type(name):
        raise InvalidRequest(
            "object_type is neither a standard type nor a reverse-domain name or URI.", details={"field": "object_type"}
        )
    return request
