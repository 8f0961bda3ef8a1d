"""A command: one write, decoded, authorized and ready to be decided under the lock of its scope."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from pamspec_common.attestation import AttestationRule, Refused
from pamspec_common.authorization.rights import Rights
from pamspec_common.delegation.verdicts import Use
from pamspec_common.documents import Actor
from pamspec_common.ids import short_hash
from pamspec_write.documents import Request
from pamspec_write.documents.delegations import GrantTerms
from pamspec_write.documents.parts import Provenance
from pamspec_write.model.content import Breach, ContentSchema
from pamspec_write.model.facts import Document, EdgeKey, ScopeRef
from pamspec_write.model.grants import GrantRef
from pamspec_write.model.pointers import Pointer

_ROW_BYTES = 4096


@dataclass(slots=True)
class Command:
    """One write of one scope."""

    operation: str
    request: Request
    scope: ScopeRef
    actor: Actor
    actor_id: str
    """The principal's actor id: keys belong to the principal, whoever it acts for."""
    authenticated_as: str | None
    operation_id: str
    operation_hash: bytes
    key_hash: bytes | None
    repeatable: bytes | None
    """What must be equal in a repetition (S16); None when nobody knows its id or key."""
    rights: Rights | None
    """What its actor may do in its scope; None: work of the service itself, permitted when it was ordered."""
    far_rights: Rights | None = None
    """What its actor may do in the scope that a relationship leads into, where that is another."""
    grant: GrantRef | None = None
    """The grant under which its actor acts: its rights are then those of the grant's first grantor."""
    about: GrantRef | None = None
    """The grant that it revokes, checks or records a use of."""
    use: Use | None = None
    """What it asks of the grant that it acts under, or checks."""
    authority: Rights | None = None
    """What whoever grants, or first granted, may do where the grant works, by itself."""
    terms: GrantTerms | None = None
    """Of a new grant."""
    provenance: Provenance | None = None
    source_hash: bytes | None = None
    source_payload: bytes | None = None
    content: bytes | None = None
    projection: str | None = None
    """The text of the content's jsonb projection where the content itself cannot be one."""
    object_id: str | None = None
    kind: str = "o"
    others: Sequence[tuple[ScopeRef, str]] = ()
    """Objects that must be there besides its own, each in its scope; those scopes are locked too."""
    target_scope: ScopeRef | None = None
    """Where the target of a relationship lies, when that is another scope."""
    edge: EdgeKey | None = None
    """What a new relationship joins."""
    restored: str | None = None
    """The id of the past version of its object whose content comes back."""
    past: Sequence[str] = ()
    """The ids of past versions of its object that the decision rests on."""
    pointers: Sequence[Pointer] | None = None
    """The parts of the content that a redaction takes; None for all of it."""
    part_of: str | None = None
    """The forget that an erasure belongs to."""
    quality_signals: Document | None = None
    integrity: Document | None = None
    schema: ContentSchema | None = None
    """The schema that the command registers."""
    checked: dict[ContentSchema, Breach | None] = field(default_factory=dict)
    """What schemas say of the command's content, as far as they were asked."""
    attested: tuple[AttestationRule, Refused | None] | None = None
    """What a rule says of the actor's attestation, once it was asked."""
    attempts: int = 0
    traceparent: str | None = None
    """The trace context that its entries carry to the bus."""


@dataclass(frozen=True, slots=True)
class RefusedItem:
    """An item of a batch that was refused before any lock: its error, and what it was."""

    body: bytes
    repeatable: bytes


@dataclass(slots=True)
class BatchCommand:
    """Several commands in their order; atomic: all or none of them."""

    items: Sequence[Command]
    atomic: bool
    operation_id: str
    operation_hash: bytes
    key_hash: bytes | None
    frame: bytes | None
    """What must be equal in a repetition, but for the items; None when nobody knows its id or key."""
    scope: ScopeRef
    actor_id: str
    refused: dict[int, RefusedItem] = field(default_factory=dict)
    """Items that were refused before any lock, by index."""
    attempts: int = 0
    traceparent: str | None = None
    """The trace context that its entries carry to the bus."""

    @property
    def repeatable(self) -> bytes | None:
        """Not None when the batch can come again."""
        return self.frame


Work = Command | BatchCommand


def commands_of(works: Iterable[Work]) -> Iterator[Command]:
    """The commands of some work, those of its batches too."""
    for work in works:
        if isinstance(work, Command):
            yield work
        else:
            yield from work.items


def scopes_of(work: Work) -> list[ScopeRef]:
    """The scopes that a piece of work locks, once each."""
    if isinstance(work, Command) and not work.others and work.grant is None and work.about is None:
        return [work.scope] if work.target_scope is None else [work.scope, work.target_scope]
    items = (work,) if isinstance(work, Command) else work.items
    found = {ref.scope_key: ref for item in items for ref in _scopes_of(item)}
    found[work.scope.scope_key] = work.scope
    return list(found.values())


def _scopes_of(command: Command) -> Iterator[ScopeRef]:
    yield command.scope
    if command.target_scope is not None:
        yield command.target_scope
    for other, _ in command.others:
        yield other
    for ref in grants_of(command):
        yield from ref.scopes


def grants_of(command: Command) -> Iterator[GrantRef]:
    """The grants that a command acts under or is about."""
    if command.grant is not None:
        yield command.grant
    if command.about is not None:
        yield command.about


def names_of(work: Work) -> list[bytes]:
    """Under which ids and keys a piece of work can be looked up."""
    if isinstance(work, Command):
        return [work.operation_hash] if work.key_hash is None else [work.operation_hash, work.key_hash]
    found = [name for item in work.items for name in names_of(item)]
    return [*found, work.operation_hash] if work.key_hash is None else [*found, work.operation_hash, work.key_hash]


def try_again(work: Work) -> None:
    """It may have been committed without our knowing: from now on its own record is looked up."""
    work.attempts += 1
    if isinstance(work, BatchCommand):
        for item in work.items:
            item.attempts += 1


def size_of(work: Work) -> int:
    """Roughly how many bytes a piece of work adds to the statement that writes it."""
    if isinstance(work, Command):
        return _ROW_BYTES + len(work.content or b"")
    return sum(map(size_of, work.items))


def operation_hash(actor_id: str, operation_id: str) -> bytes:
    """The index key of an operation id, per principal."""
    return short_hash("operation", actor_id, operation_id)


def key_hash(actor_id: str, operation: str, key: str) -> bytes:
    """The index key of an idempotency key, per principal and operation."""
    return short_hash("key", actor_id, operation, key)


def source_hash(source: str, event_id: str) -> bytes:
    """The index key of a source event."""
    return short_hash("source", source, event_id)


def fingerprint(salt: bytes, repeatable: bytes) -> bytes:
    """What is stored of a request: a digest keyed with the record's salt, erased with it."""
    return hmac.digest(salt, repeatable, "sha256")
