"""Admission: from the bytes of a call to a command that only its scope's state can still refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from pamspec_common import ids, strict_json
from pamspec_common.documents import RETRY_FIELDS, Actor, take_header_key
from pamspec_common.errors import InvalidObject, InvalidRequest, ObjectNotFound, PolicyDenied
from pamspec_common.instants import parse as parse_instant
from pamspec_common.policy import acting_actor, authorize
from pamspec_common.principal import RIGHT_SERVICE, Principal
from pamspec_write.documents import REQUESTS, Request
from pamspec_write.documents.administration import Administrative
from pamspec_write.documents.decoding import check_members, decode
from pamspec_write.documents.parts import Common, Provenance
from pamspec_write.documents.relationships import Relate
from pamspec_write.handlers.access import Access
from pamspec_write.handlers.admission.entries import fill_entry
from pamspec_write.handlers.admission.erasures import fill_delete, fill_redact
from pamspec_write.handlers.admission.holds import fill_place_hold, fill_release_hold
from pamspec_write.handlers.admission.objects import fill_create, fill_update
from pamspec_write.handlers.admission.parts import set_content, set_provenance
from pamspec_write.handlers.admission.promotion import fill_promote
from pamspec_write.handlers.admission.relationships import fill_relate
from pamspec_write.handlers.admission.schemas import fill_register_schema
from pamspec_write.handlers.admission.scopes import fill_update_scope
from pamspec_write.handlers.admission.snapshots import fill_seal
from pamspec_write.handlers.admission.states import fill_transition
from pamspec_write.model.commands import Command, key_hash, operation_hash
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
    scope = await access.resolve(principal, request.scope_id)
    authorize(principal, operation, scope.tenant_id)
    named = request.operation_id is not None or request.idempotency_key is not None
    far = await target_scope(request, principal, access)
    return await command_of(operation, request, document, principal, scope, access, named=named, far=far)


async def target_scope(request: Request, principal: Principal, access: Access) -> ScopeRef | None:
    """The other scope that a relationship leads into, where it does; ScopeNotFound when it is not visible."""
    if not isinstance(request, Relate) or request.target_scope_id in (None, request.scope_id):
        return None
    assert request.target_scope_id is not None
    far = await access.resolve(principal, request.target_scope_id)
    authorize(principal, "relate", far.tenant_id)
    return far


def refuse_grant(principal: Principal, delegation_id: str | None) -> None:
    """There is no grant to act under yet; the services themselves say under which one something was done."""
    if delegation_id is not None and not principal.has(RIGHT_SERVICE):
        raise ObjectNotFound(
            "No such delegation is visible here; leave delegation_id out.", details={"field": "delegation_id"}
        )


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
    actor, authenticated_as = actor_of(principal, request, document)
    refuse_grant(principal, request.delegation_id or actor.delegation_id)
    rights = await access.permitted(operation, principal, actor, scope)
    operation_id = request.operation_id or ids.mint("op")
    key = request.idempotency_key
    command = Command(
        operation=operation,
        request=request,
        scope=scope,
        actor=actor,
        actor_id=principal.actor_id,
        authenticated_as=authenticated_as,
        operation_id=operation_id,
        operation_hash=operation_hash(principal.actor_id, operation_id),
        key_hash=None if key is None else key_hash(principal.actor_id, operation, key),
        repeatable=repeatable(operation, document) if named else None,
        target_scope=far,
        rights=rights,
        far_rights=None if far is None else await access.permitted("read", principal, actor, far),
    )
    raw = getattr(request, "provenance", msgspec.UNSET)
    if raw is not msgspec.UNSET:
        set_provenance(command, decode(Provenance, raw, InvalidObject, "provenance"))
    content = getattr(request, "canonical_content", msgspec.UNSET)
    if content is not msgspec.UNSET:
        set_content(command, content, document["canonical_content"])
    FILL[operation](command, request, document)
    return command


def repeatable(operation: str, document: dict[str, Any]) -> bytes:
    """What must be equal in a repetition: the document without the fields of the attempt (S16)."""
    kept = {name: value for name, value in document.items() if name not in RETRY_FIELDS}
    return operation.encode() + b"\x00" + strict_json.canonical(kept)


def actor_of(
    principal: Principal, request: Common | Administrative, document: dict[str, Any]
) -> tuple[Actor, str | None]:
    """The actor of an operation, and the principal's own id when it acts for somebody else (S9)."""
    asserted = None if request.actor is msgspec.UNSET else decode(Actor, request.actor, InvalidRequest, "actor")
    _, authenticated_as = acting_actor(principal, None if asserted is None else document["actor"])
    if asserted is None:
        return Actor(principal.actor_id, principal.actor_kind), None
    _check_window(asserted)
    return asserted, authenticated_as


def _check_window(actor: Actor) -> None:
    seen = actor.attestation
    if (
        seen is not None
        and seen.not_before is not None
        and seen.not_after is not None
        and parse_instant(seen.not_before) > parse_instant(seen.not_after)
    ):
        raise PolicyDenied("The attestation ends before it begins; correct not_before and not_after.")
