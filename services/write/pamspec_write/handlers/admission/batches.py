"""Admission of a batch: every item is admitted by itself and keeps its place."""

from __future__ import annotations

from typing import Any

import msgspec

from pamspec_common import ids, strict_json
from pamspec_common.documents import own_operation_id, take_header_key
from pamspec_common.errors import InvalidRequest, PamspecError
from pamspec_common.policy import authorize
from pamspec_common.principal import Principal
from pamspec_write.documents import REQUESTS, Request
from pamspec_write.documents.decoding import check_members, decode
from pamspec_write.documents.parts import Common
from pamspec_write.documents.service import Batch
from pamspec_write.handlers.access import Access
from pamspec_write.handlers.admission.acting import acting_grant, actor_of, repeatable, rights_at_door
from pamspec_write.handlers.admission.commands import command_of, target_scope
from pamspec_write.model.commands import BatchCommand, Command, RefusedItem, key_hash, operation_hash

MAX_BATCH_OPERATION_ID = 250
BATCHED = ("create", "update", "transition", "redact", "delete", "relate", "promote")
"""The operations that an item of a batch may be."""


async def admit_batch(
    document: dict[str, Any], body: bytes, principal: Principal, header_key: str | None, access: Access
) -> BatchCommand:
    """A batch; an item that is refused here keeps its place with its error, in an atomic batch it refuses all."""
    batch = decode(Batch, body)
    take_header_key(batch, header_key)
    scope = await access.resolve(principal, batch.scope_id)
    authorize(principal, "batch", scope.tenant_id)
    actor, _ = actor_of(principal, batch, document)
    acting = await acting_grant(principal, batch, actor, scope, access)
    await rights_at_door("batch", principal, actor, scope, access, acting)
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
            items.append(await _item(batch, index, item, principal, item_id, access))
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
    batch: Batch, index: int, item: Any, principal: Principal, operation_id: str, access: Access
) -> Command:
    if not isinstance(item, dict):
        raise InvalidRequest("An item of a batch is an operation document: a JSON object.")
    operation = item.get("operation")
    if operation not in BATCHED:
        raise InvalidRequest(f"An item names its operation: {', '.join(BATCHED)}.")
    check_members(item)
    document = {name: value for name, value in item.items() if name != "operation"}
    document.setdefault("scope_id", batch.scope_id)
    request = _decode_item(REQUESTS[operation], batch.items[index], batch.scope_id)
    assert isinstance(request, Common)
    named = not (batch.operation_id is None and batch.idempotency_key is None) or not (
        request.operation_id is None and request.idempotency_key is None
    )
    request.operation_id = request.operation_id or operation_id
    if request.idempotency_key is None and batch.idempotency_key is not None:
        request.idempotency_key = f"{batch.idempotency_key}/{index}"
    if request.actor is msgspec.UNSET and batch.actor is not msgspec.UNSET:
        request.actor, document["actor"] = batch.actor, strict_json.parse(bytes(batch.actor))
    if request.delegation_id is None:
        request.delegation_id = batch.delegation_id
    if request.evaluation_run_id is None:
        request.evaluation_run_id = batch.evaluation_run_id
    scope = await access.resolve(principal, request.scope_id)
    authorize(principal, operation, scope.tenant_id)
    far = await target_scope(request, principal, access)
    return await command_of(operation, request, document, principal, scope, access, named=named, far=far)


def _decode_item(kind: type[Request], raw: msgspec.Raw, scope_id: str) -> Request:
    """Items name their operation and may leave out the batch's scope; the documents know neither."""
    members = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    del members["operation"]
    members.setdefault("scope_id", msgspec.Raw(strict_json.dumps(scope_id)))
    return decode(kind, msgspec.json.encode(members))
