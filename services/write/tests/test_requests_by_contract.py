"""The decoder and the contracts accept and refuse the same requests: thousands of changes of one member each."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import orjson
import pytest

from pamspec_common import contracts
from pamspec_common.authorization.rights import Rights
from pamspec_common.delegation.grants import Chain, Grant, Party, Terms
from pamspec_common.documents import Actor
from pamspec_common.errors import InvalidObject, InvalidRequest, PamspecError
from pamspec_common.principal import RIGHT_ASSERT_ACTOR, RIGHT_SERVICE, Principal
from pamspec_common.scope_policy import parse_policy
from pamspec_write.documents import REQUESTS as COMMANDS
from pamspec_write.documents.decoding import decode
from pamspec_write.documents.scopes import CreateScope
from pamspec_write.documents.service import Batch, GetOperation
from pamspec_write.handlers.access import Access
from pamspec_write.handlers.admission.acting import actor_of
from pamspec_write.handlers.admission.batches import admit_batch
from pamspec_write.handlers.admission.commands import admit, parse
from pamspec_write.handlers.lookup import check_request
from pamspec_write.model.facts import ScopeRef
from pamspec_write.model.grants import GrantRef
from services.write.tests.requests_of_contract import BATCH, CREATE, NAMES, REQUESTS, VALUES
from services.write.tests.writer import Document, rights_with

PRINCIPAL = Principal("tenant:t", "agent:a", "agent", frozenset({RIGHT_ASSERT_ACTOR, RIGHT_SERVICE}))


def _changes(document: Any) -> Iterator[tuple[str, Any]]:
    """The document with one member changed, removed or added, at any depth; content is the client's own affair.

    Members within members share the values among them.
    """
    for number, path in enumerate(_members(document)):
        values = VALUES if len(path) == 1 else VALUES[number % 2 :: 2]
        for value in [*values, ...]:
            changed = copy.deepcopy(document)
            holder = changed
            for step in path[:-1]:
                holder = holder[step]
            if value is ...:
                del holder[path[-1]]
            else:
                holder[path[-1]] = value
            yield f"{'.'.join(map(str, path))} = {value!r:.60}", changed
    for path in [(), *(path for path in _members(document) if isinstance(_at(document, path), dict))]:
        changed = copy.deepcopy(document)
        _at(changed, path)["unknown"] = 1
        yield f"{'.'.join(map(str, path))}.unknown", changed


def _members(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path and path[-1] in ("canonical_content", "target_canonical_content"):
        return
    steps = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for step, value in steps:
        yield (*path, step)
        yield from _members(value, (*path, step))


def _at(document: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        document = document[step]
    return document


async def _resolve(principal: Principal, scope_id: str) -> ScopeRef:
    return ScopeRef(1, principal.tenant_id, scope_id, "t", "s", 0)


async def _rights(principal: Principal, actor: Actor, scope: ScopeRef | None) -> Rights:
    return rights_with(frozenset({"admin"}))


async def _grant(principal: Principal, delegation_id: str, actor_id: str) -> tuple[GrantRef, Chain]:
    scope = await _resolve(principal, "scope:1")
    party = Party(principal.actor_id, principal.actor_kind)
    terms = Terms(frozenset(["read"]), datetime.min, datetime.max)
    grant = Grant(delegation_id, 1, "scope:1", 1, "scope:1", party, principal.actor_id, party, terms)
    return GrantRef(principal.tenant_id, delegation_id, ((1, delegation_id),), scope, scope, (scope,)), (grant,)


async def _unknown_spaces(principal: Principal, named: list[str]) -> list[str]:
    return []


ACCESS = Access(_resolve, _rights, _rights, _grant, _unknown_spaces)


async def _error(operation: str, body: bytes) -> PamspecError | None:
    """The refusal that a request gets before any look at the store."""
    try:
        document = parse(body)
        if operation == "batch":
            batch = await admit_batch(document, body, PRINCIPAL, None, ACCESS)
            refused = [orjson.loads(item.body)["error"] for item in batch.refused.values()]
            return next((_of(error) for error in refused), None)
        if operation == "get_operation":
            request = decode(GetOperation, body)
            check_request(request)
            actor_of(PRINCIPAL, request, document)
        elif operation == "create_scope":
            scope = decode(CreateScope, body)
            actor_of(PRINCIPAL, scope, document)
            if scope.policy is not None:
                parse_policy(scope.policy)
        else:
            await admit(operation, document, body, PRINCIPAL, None, ACCESS)
    except PamspecError as error:
        return error
    return None


def _of(error: Document) -> PamspecError:
    kinds = {"invalid_request": InvalidRequest, "invalid_object": InvalidObject}
    return kinds.get(error["code"], PamspecError)(error["message"])


def _beyond(change: str, error: PamspecError) -> bool:
    """What the contract leaves open and the service does not take."""
    name = change.split(" = ")[0].rpartition(".")[2]
    return (
        name in ("object_type", "target_object_type")
        or "object_types.allow" in change
        or change.startswith("schema.")
        or (name.endswith("actor_id") and "255" in error.message)
        or "years 1 to 9999" in error.message
        or "at most 250 characters" in error.message
        or (name in ("object_id", "version_id", "event_type") and "must say" in error.message)
        or (name in ("version_id", "event_type") and "version_id is" in error.message)
    )


def test_each_valid_request_is_valid() -> None:
    for operation, document in REQUESTS:
        contracts.check(f"pamspec:operation:{operation}:request", document)


@pytest.mark.parametrize(("operation", "document"), REQUESTS, ids=NAMES)
async def test_service_and_contract_agree(operation: str, document: Document) -> None:
    assert await _error(operation, orjson.dumps(document)) is None
    validator = contracts.request_validator(operation)
    differences: list[str] = []
    for change, changed in _changes(document):
        if operation == "batch" and change.startswith("items.0."):
            continue
        error = await _error(operation, orjson.dumps(changed))
        allowed = validator.is_valid(changed)
        if allowed and isinstance(error, InvalidRequest | InvalidObject) and not _beyond(change, error):
            differences.append(f"{change}: refused: {error.message}")
        if not allowed and error is None:
            differences.append(f"{change}: accepted")
    assert not differences, "\n".join(differences)


def test_every_member_of_the_contract_is_tried() -> None:
    """A member that the contract gains must be gained here, and by the decoder."""
    for operation in (
        "create",
        "update",
        "transition",
        "redact",
        "delete",
        "relate",
        "promote",
        "record_event",
        "get_operation",
        "create_scope",
        "update_scope",
        "register_schema",
        "place_hold",
        "release_hold",
        "grant_delegation",
        "revoke_delegation",
        "check_delegation",
        "exercise_delegation",
        "batch",
    ):
        known = set().union(*(set(document) for name, document in REQUESTS if name == operation))
        decoder = {
            "get_operation": GetOperation,
            "create_scope": CreateScope,
            "batch": Batch,
            **COMMANDS,
        }[operation]
        contract = set(_properties(contracts.schema(f"pamspec:operation:{operation}:request")))
        assert set(decoder.__struct_fields__) == contract
        assert contract - known <= _UNTRIED.get(operation, set())


_UNTRIED = {
    "redact": {"relationship_id"},
    "delete": {"relationship_id"},
}


def _properties(schema: Any) -> Iterator[str]:
    """The members that a request may have by a schema and those that it refers to."""
    yield from schema.get("properties", {})
    parts = [*schema.get("allOf", ())]
    if "$ref" in schema:
        parts.append(schema)
    for part in parts:
        reference = part.get("$ref")
        if reference is None:
            continue
        identifier, _, pointer = reference.partition("#")
        target: Any = contracts.schema(identifier) if identifier else _root(schema)
        for step in filter(None, pointer.split("/")):
            target = target[step]
        yield from _properties(target)


def _root(schema: Any) -> Any:
    return contracts.schema(schema["$id"])


@pytest.mark.parametrize("operation", ["create", "batch"])
@pytest.mark.parametrize("secret", ["SECRET-123"])
async def test_messages_repeat_no_value(operation: str, secret: str) -> None:
    """No value that was sent stands in an error: it may be content in the wrong place."""
    base = CREATE if operation == "create" else BATCH
    for path in _members(base):
        changed = copy.deepcopy(base)
        _at(changed, path[:-1])[path[-1]] = secret
        error = await _error(operation, orjson.dumps(changed))
        if error is not None:
            assert secret not in error.message
            assert secret.encode() not in error.body("op:1")
