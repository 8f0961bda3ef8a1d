"""Admission: from the bytes of a call to a command that only its scope's state can still refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import structs

from pamspec_common import strict_json
from pamspec_common.documents import take_header_key
from pamspec_common.errors import InvalidObject, InvalidRequest
from pamspec_common.policy import authorize
from pamspec_common.principal import Principal
from pamspec_write.documents import REQUESTS, Request
from pamspec_write.documents.decoding import check_members, decode
from pamspec_write.documents.delegations import GrantDelegation, OfGrant
from pamspec_write.documents.parts import Common, Provenance
from pamspec_write.documents.relationships import Relate
from pamspec_write.documents.snapshots import SealSnapshot
from pamspec_write.handlers.access import Access
from pamspec_write.handlers.admission.acting import act_under, acting_grant, actor_of, new_command, rights_at_door
from pamspec_write.handlers.admission.delegations import admit_of_grant, fill_grant
from pamspec_write.handlers.admission.entries import fill_entry
from pamspec_write.handlers.admission.erasures import fill_delete, fill_redact
from pamspec_write.handlers.admission.holds import fill_place_hold, fill_release_hold
from pamspec_write.handlers.admission.objects import fill_create, fill_update
from pamspec_write.handlers.admission.parts import set_content, set_provenance
from pamspec_write.handlers.admission.promotion import fill_promote
from pamspec_write.handlers.admission.relationships import fill_relate
from pamspec_write.handlers.admission.schemas import fill_register_schema
from pamspec_write.handlers.admission.scopes import fill_update_scope
from pamspec_write.handlers.admission.snapshots import check_spaces, fill_seal
from pamspec_write.handlers.admission.states import fill_transition
from pamspec_write.model.commands import Command
from pamspec_write.model.facts import ScopeRef

Fill = Callable[[Command, Any, dict[str, Any]], None]

FILL: dict[str, Fill] = {
    "create": fill_create,
    "update": fill_update,
    "transition": fill_transition,
    "redact": fill_redact,
    "delete": fill_delete,
    "relate": fill_relate,
    "promote": fill_promote,
    "record_event": fill_entry,
    "seal_snapshot": fill_seal,
    "update_scope": fill_update_scope,
    "register_schema": fill_register_schema,
    "place_hold": fill_place_hold,
    "release_hold": fill_release_hold,
    "grant_delegation": fill_grant,
}
"""What is particular to each operation: checks its request and completes its command, provenance and content filled."""


def parse(body: bytes) -> dict[str, Any]:
    """The document of a call: strict JSON, an object, no nulls where a field may be left out."""
    document = strict_json.parse(body)
    if not isinstance(document, dict):
        raise InvalidRequest("The body must be a JSON object: the operation document.")
    check_members(document)
    return document


async def admit(
    operation: str,
    document: dict[str, Any],
    body: bytes,
    principal: Principal,
    header_key: str | None,
    access: Access,
) -> Command:
    """A command of one operation document; raises what is wrong with it, in the order shape, scope, rights, object."""
    request = decode(REQUESTS[operation], body)
    take_header_key(request, header_key)
    if isinstance(request, OfGrant):
        return await admit_of_grant(operation, request, document, principal, access)
    scope = await access.resolve(principal, request.scope_id)
    authorize(principal, operation, scope.tenant_id)
    named = request.operation_id is not None or request.idempotency_key is not None
    far = await target_scope(request, principal, access)
    return await command_of(operation, request, document, principal, scope, access, named=named, far=far)


async def target_scope(request: Request, principal: Principal, access: Access) -> ScopeRef | None:
    """The other scope that a relationship leads into, or a grant works in; ScopeNotFound when it is not visible."""
    if not isinstance(request, Relate | GrantDelegation) or request.target_scope_id in (None, request.scope_id):
        return None
    assert request.target_scope_id is not None
    far = await access.resolve(principal, request.target_scope_id)
    authorize(principal, "relate", far.tenant_id)
    return far


async def command_of(
    operation: str,
    request: Request,
    document: dict[str, Any],
    principal: Principal,
    scope: ScopeRef,
    access: Access,
    *,
    named: bool,
    far: ScopeRef | None = None,
) -> Command:
    """`named`: somebody knows an id or a key of it, so that it can come again; `far`: see `target_scope`."""
    assert isinstance(request, Common)
    actor, authenticated_as = actor_of(principal, request, document)
    acting = await acting_grant(principal, request, actor, scope, access)
    if acting is not None:
        actor = structs.replace(actor, delegation_id=acting[0].delegation_id)
    rights = await rights_at_door(operation, principal, actor, scope, access, acting)
    command = new_command(operation, request, document, principal, scope, actor, authenticated_as, rights, named=named)
    if far is not None:
        command.target_scope = far
        action = "grant_delegation" if operation == "grant_delegation" and acting is None else "read"
        command.far_rights = await access.permitted(action, principal, actor, far)
    raw = getattr(request, "provenance", msgspec.UNSET)
    if raw is not msgspec.UNSET:
        set_provenance(command, decode(Provenance, raw, InvalidObject, "provenance"))
    content = getattr(request, "canonical_content", msgspec.UNSET)
    if content is not msgspec.UNSET:
        set_content(command, content, document["canonical_content"])
    FILL[operation](command, request, document)
    if isinstance(request, SealSnapshot):
        await check_spaces(request, principal, access)
    if acting is not None:
        await act_under(command, acting, principal, access)
    return command
