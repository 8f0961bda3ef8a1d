"""Registering a content schema (P39, P57)."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

from pamspec_common.calls import Answer
from pamspec_common.errors import DuplicateOperation, InvalidRequest
from pamspec_common.strict_json import dumps
from pamspec_write.documents.schemas import RegisterSchema
from pamspec_write.model.making import Making
from pamspec_write.model.records import positions
from pamspec_write.model.rows import SchemaRow

MAX_SCHEMAS = 1000


def register_schema(making: Making) -> Answer:
    """A schema under a schema_id, for good; the same again changes nothing, another is duplicate_operation."""
    command, state = making.command, making.state
    request = command.request
    assert isinstance(request, RegisterSchema)
    assert command.content is not None
    rules, digest = state.rules, sha256(command.content).digest()
    known = rules.schemas.get(request.schema_id)
    if known is not None and known != digest:
        raise DuplicateOperation(
            "Another schema is registered under this schema_id, and content rests on it; use a new schema_id.",
            details={"field": "schema_id", "reason": "schema_exists"},
        )
    if known is None:
        if len(rules.schemas) >= MAX_SCHEMAS:
            raise InvalidRequest(
                f"A scope has at most {MAX_SCHEMAS} schemas; use another scope.", details={"limit": MAX_SCHEMAS}
            )
        schemas = {**rules.schemas, request.schema_id: digest}
        making.change_rules(replace(rules, version=rules.version + 1, schemas=schemas), None, request.schema_id)
        assert command.schema is not None
        state.schemas[request.schema_id] = command.schema
        making.rows.schemas.append(
            SchemaRow(
                scope_key=state.ref.scope_key,
                schema_id=request.schema_id,
                document=command.content,
                digest=digest,
                actor_id=command.actor.actor_id,
                authenticated_as=command.authenticated_as,
                operation_id=command.operation_id,
                registered_at=making.now,
            )
        )
    body = dumps({"scope_id": state.ref.scope_id, "schema_id": request.schema_id, "operation_id": command.operation_id})
    answer = Answer(200, body, positions(state, None))
    making.remember(answer)
    return answer
