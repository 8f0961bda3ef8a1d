"""Admission: from the bytes of a call to a command that only its scope's state can still refuse."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from pamspec_common import ids, strict_json
from pamspec_common.documents import RETRY_FIELDS, Actor, own_operation_id, take_header_key
from pamspec_common.errors import (
    AccessDenied,
    InvalidObject,
    InvalidRequest,
    ObjectNotFound,
    PamspecError,
    PolicyDenied,
)
from pamspec_common.policy import acting_actor, authorize
from pamspec_common.principal import RIGHT_SERVICE, Principal
from pamspec_write.documents import (
    MAX_CONTENT,
    REQUESTS,
    Batch,
    Common,
    Create,
    Delete,
    Integrity,
    Provenance,
    QualitySignals,
    RecordEvent,
    Request,
    SourceEvent,
    Transition,
    Update,
    check_event,
    check_members,
    check_object_type,
    check_schema_id,
    decode,
    plain,
)
from pamspec_write.model.commands import (
    BatchCommand,
    Command,
    RefusedItem,
    key_hash,
    operation_hash,
    source_hash,
)
from pamspec_write.model.facts import ScopeRef
from pamspec_write.model.projection import projection
from pamspec_write.model.states import ALL_STATES, DIMENSIONS, EDGES

Resolve = Callable[[Principal, str], Awaitable[ScopeRef]]
MAX_BATCH_OPERATION_ID = 250


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
    resolve: Resolve,
) -> Command:
    """A command of one operation document; raises what is wrong with it, in the order shape, scope, rights, object."""
    request = decode(REQUESTS[operation], body)
    take_header_key(request, header_key)
    scope = await resolve(principal, request.scope_id)
    authorize(principal, operation, scope.tenant_id)
    named = request.operation_id is not None or request.idempotency_key is not None
    return _command(operation, request, document, principal, scope, named=named)


def _refuse_grant(principal: Principal, delegation_id: str | None) -> None:
    """There is no grant to act under yet; the services themselves say under which one something was done."""
    if delegation_id is not None and not principal.has(RIGHT_SERVICE):
        raise ObjectNotFound(
            "No such delegation is visible here; leave delegation_id out.", details={"field": "delegation_id"}
        )


def _command(
    operation: str, request: Request, document: dict[str, Any], principal: Principal, scope: ScopeRef, *, named: bool
) -> Command:
    """`named`: somebody knows an id or a key of it, so that it can come again."""
    actor, authenticated_as = actor_of(principal, request, document)
    _refuse_grant(principal, request.delegation_id or actor.delegation_id)
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
    )
    _fill(command, document)
    return command


def repeatable(operation: str, document: dict[str, Any]) -> bytes:
    """What must be equal in a repetition: the document without the fields of the attempt (S16)."""
    kept = {name: value for name, value in document.items() if name not in RETRY_FIELDS}
    return operation.encode() + b"\x00" + strict_json.canonical(kept)


def actor_of(principal: Principal, request: Common, document: dict[str, Any]) -> tuple[Actor, str | None]:
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
        and seen.not_before > seen.not_after
    ):
        raise PolicyDenied("The attestation ends before it begins; correct not_before and not_after.")


def _fill(command: Command, document: dict[str, Any]) -> None:
    """The parts of a command that are particular to its operation."""
    request = command.request
    if isinstance(request, RecordEvent):
        check_event(request)
        return
    raw = request.provenance
    if raw is not msgspec.UNSET:
        command.provenance = _provenance(command, decode(Provenance, raw, InvalidObject, "provenance"))
    content = getattr(request, "canonical_content", msgspec.UNSET)
    if content is not msgspec.UNSET:
        command.content = _content(content)
        command.projection = projection(command.content, document["canonical_content"])
    if isinstance(request, Create | Update):
        _fill_object(command, request, document)
    else:
        _fill_subject(command, request)


def _provenance(command: Command, provenance: Provenance) -> Provenance:
    """The client's account; an actor in it that is not the operation's falls under S9."""
    if provenance.actor is not None and provenance.actor.actor_id != command.actor.actor_id:
        raise AccessDenied(
            "provenance.actor is not the actor of the operation; leave it out, or act as that actor.",
            details={"field": "provenance.actor"},
        )
    return provenance


def _content(raw: msgspec.Raw) -> bytes:
    content = strict_json.compact(raw)
    if len(content) > MAX_CONTENT:
        raise InvalidRequest(
            f"canonical_content is larger than {MAX_CONTENT} bytes; store it outside and refer to it.",
            details={"limit": MAX_CONTENT, "size": len(content), "field": "canonical_content"},
            status=413,
        )
    return content


def _fill_object(command: Command, request: Create | Update, document: dict[str, Any]) -> None:
    command.object_id = request.object_id
    if request.quality_signals is not msgspec.UNSET:
        command.quality_signals = plain(
            decode(QualitySignals, request.quality_signals, InvalidObject, "quality_signals")
        )
    if request.integrity is not msgspec.UNSET:
        command.integrity = plain(decode(Integrity, request.integrity, InvalidObject, "integrity"))
    check_schema_id(request.schema_id)
    if isinstance(request, Create):
        check_object_type(request.object_type, request.schema_id)
        _check_first_states(request)
    elif request.restore_version_id is not None:
        raise InvalidRequest("restore_version_id is not offered yet; send the content of that version instead.")
    if request.source_event is not None:
        _bind_source(command, request.source_event, document)


def _check_first_states(request: Create) -> None:
    for name, only in (("availability_state", "available"), ("retention_state", "retained")):
        if getattr(request, name) != only:
            raise InvalidRequest(f"A new object's {name} is {only}; transition it afterwards.", details={"field": name})


def _bind_source(command: Command, source: SourceEvent, document: dict[str, Any]) -> None:
    """K6: (source, id) binds the payload: the operation, what it is about, and the content."""
    about = ("object_id", "object_type", "schema_id", "canonical_content")
    bound = {name: document[name] for name in about if name in document}
    command.source_hash = source_hash(source.source, source.id)
    command.source_payload = command.operation.encode() + b"\x00" + strict_json.canonical(bound)


def _fill_subject(command: Command, request: Transition | Delete) -> None:
    if (request.object_id is None) == (request.relationship_id is None):
        raise InvalidRequest("Send exactly one of object_id and relationship_id.", details={"field": "object_id"})
    command.object_id = request.object_id or request.relationship_id
    command.kind = "o" if request.object_id is not None else "r"
    if isinstance(request, Transition):
        _check_transition(request)


def _check_transition(request: Transition) -> None:
    """A state of another dimension is a refused edge; a word that is no state at all is a malformed request."""
    if request.dimension not in DIMENSIONS:
        raise InvalidRequest(
            "dimension must be lifecycle, availability, retention or validation.", details={"field": "dimension"}
        )
    if request.target_state not in ALL_STATES:
        raise InvalidRequest(
            "target_state is no state of any dimension.",
            details={"field": "target_state", "states": sorted(EDGES[request.dimension])},
        )
    restores = (request.dimension, request.target_state) == ("availability", "available")
    if request.canonical_content is not msgspec.UNSET and not restores:
        raise InvalidRequest(
            "Only a transition back to available takes content; send an update for the content.",
            details={"field": "canonical_content"},
        )


async def admit_batch(
    document: dict[str, Any], body: bytes, principal: Principal, header_key: str | None, resolve: Resolve
) -> BatchCommand:
    """A batch; an item that is refused here keeps its place with its error, in an atomic batch it refuses all."""
    batch = decode(Batch, body)
    take_header_key(batch, header_key)
    scope = await resolve(principal, batch.scope_id)
    authorize(principal, "batch", scope.tenant_id)
    actor, _ = actor_of(principal, batch, document)
    _refuse_grant(principal, batch.delegation_id or actor.delegation_id)
    operation_id = batch.operation_id or ids.mint("op")
    if len(operation_id) > MAX_BATCH_OPERATION_ID:
        raise InvalidRequest(
            f"The operation_id of a batch has at most {MAX_BATCH_OPERATION_ID} characters.",
            details={"limit": MAX_BATCH_OPERATION_ID},
        )
    key = batch.idempotency_key
    items: list[Command] = []
    refused: dict[int, RefusedItem] = {}
    for index, item in enumerate(document["items"]):
        item_id = f"{operation_id}/{index}"
        try:
            items.append(await _item(batch, index, item, principal, item_id, resolve))
        except PamspecError as error:
            if batch.atomic:
                error.details["index"] = index
                raise
            refused[index] = RefusedItem(error.body(own_operation_id(item, item_id)), strict_json.canonical(item))
    named = batch.operation_id is not None or key is not None
    return BatchCommand(
        items=items,
        atomic=batch.atomic,
        operation_id=operation_id,
        operation_hash=operation_hash(principal.actor_id, operation_id),
        key_hash=None if key is None else key_hash(principal.actor_id, "batch", key),
        frame=repeatable("batch", {**document, "items": len(document["items"])}) if named else None,
        scope=scope,
        actor_id=principal.actor_id,
        refused=refused,
    )


async def _item(
    batch: Batch, index: int, item: Any, principal: Principal, operation_id: str, resolve: Resolve
) -> Command:
    if not isinstance(item, dict):
        raise InvalidRequest("An item of a batch is an operation document: a JSON object.")
    operation = item.get("operation")
    if operation not in ("create", "update", "transition", "delete"):
        raise InvalidRequest("An item names its operation: create, update, transition or delete.")
    check_members(item)
    document = {name: value for name, value in item.items() if name != "operation"}
    document.setdefault("scope_id", batch.scope_id)
    request = _decode_item(REQUESTS[operation], batch.items[index], batch.scope_id)
    named = not (batch.operation_id is None and batch.idempotency_key is None) or not (
        request.operation_id is None and request.idempotency_key is None
    )
    request.operation_id = request.operation_id or operation_id
    if request.idempotency_key is None and batch.idempotency_key is not None:
        request.idempotency_key = f"{batch.idempotency_key}/{index}"
    if request.actor is msgspec.UNSET and batch.actor is not msgspec.UNSET:
        request.actor, document["actor"] = batch.actor, strict_json.parse(bytes(batch.actor))
    if request.evaluation_run_id is None:
        request.evaluation_run_id = batch.evaluation_run_id
    scope = await resolve(principal, request.scope_id)
    authorize(principal, operation, scope.tenant_id)
    return _command(operation, request, document, principal, scope, named=named)


def _decode_item(kind: type[Request], raw: msgspec.Raw, scope_id: str) -> Request:
    """Items name their operation and may leave out the batch's scope; the documents know neither."""
    members = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    del members["operation"]
    members.setdefault("scope_id", msgspec.Raw(strict_json.dumps(scope_id)))
    return decode(kind, msgspec.json.encode(members))
