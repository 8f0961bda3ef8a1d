"""Content that a command writes, held against the schemas that it has to keep (P39, P57, P61-P65).

Invariant: no version gets content that breaks the schema of its standard type, or the one that is registered under its
schema_id in the scope at that moment; what a redaction leaves is what its schema no longer judges.
"""

from __future__ import annotations

from pamspec_common.errors import InternalError, InvalidObject
from pamspec_write.model.commands import Command
from pamspec_write.model.content import Breach, ContentSchema, standard_schema
from pamspec_write.model.facts import ScopeState
from pamspec_write.model.versions import Draft

_WITH_CONTENT = frozenset({"create", "update", "transition", "promote"})
_FIELD = {"promote": "target_canonical_content"}


def needed_schemas(state: ScopeState, command: Command) -> set[str]:
    """The registered schemas that a command's content may have to keep."""
    if not state.rules.schemas:
        return set()
    found = {getattr(command.request, name, None) for name in ("schema_id", "target_schema_id")}
    head = state.heads.get(command.object_id or "")
    old = state.old.get(command.restored or "")
    found |= {None if one is None else one.schema_id for one in (head, old)}
    return {schema_id for schema_id in found if schema_id is not None and schema_id in state.rules.schemas}


def judge_ahead(state: ScopeState, command: Command) -> None:
    """Ask the schemas about a command's content before its scope is locked; the answer is used when it is decided."""
    if command.content is None or command.operation not in _WITH_CONTENT:
        return
    head = state.heads.get(command.object_id or "")
    standard = None if head is None or command.operation == "promote" else standard_schema(head.object_type)
    if standard is not None:
        breach_of(command, standard, command.content)
    for schema_id in needed_schemas(state, command) & state.schemas.keys() if state.schemas else ():
        breach_of(command, state.schemas[schema_id], command.content)


def check_content(state: ScopeState, command: Command, draft: Draft) -> None:
    """Raise InvalidObject for content that breaks a schema; what a version leaves as it was has been checked before."""
    content, previous = draft.content, draft.previous
    if draft.kind != "o" or content is None:
        return
    if previous is not None and previous.content == content and previous.schema_id == draft.schema_id:
        return
    standard = standard_schema(draft.object_type)
    if standard is not None:
        _check(command, standard, content)
    if draft.schema_id is None or draft.schema_id not in state.rules.schemas:
        return
    registered = state.schemas.get(draft.schema_id)
    if registered is None:
        raise InternalError("A registered schema was not read; send the operation again.", retryable=True)
    _check(command, registered, content)


def _check(command: Command, schema: ContentSchema, content: bytes) -> None:
    breach = breach_of(command, schema, content)
    if breach is not None:
        field = _FIELD.get(command.operation, "canonical_content")
        raise InvalidObject(
            f"The content breaks the rule {breach.rule} of its schema at {breach.pointer or 'its root'}; correct it.",
            details={
                "field": field,
                "pointer": breach.pointer,
                "rule": breach.rule,
                "schema_id": schema.schema_id,
            },
        )


def breach_of(command: Command, schema: ContentSchema, content: bytes) -> Breach | None:
    """What a schema says of a content; of the command's own it is asked once, if possible before the lock."""
    if content is not command.content:
        return schema.breach(content)
    if schema not in command.checked:
        command.checked[schema] = schema.breach(content)
    return command.checked[schema]
