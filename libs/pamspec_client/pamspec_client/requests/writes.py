"""What writes take: of objects, of relationships, alone and in a batch."""

from __future__ import annotations

from typing import Literal, Required, TypeAlias

from pamspec_client.documents import (
    Dimension,
    Directionality,
    Integrity,
    LifecycleState,
    Provenance,
    QualitySignals,
    RedactionTarget,
    SourceEvent,
    ValidationState,
)
from pamspec_client.requests.common import Content, Time, Writing


class CreateFields(Writing, total=False):
    """A create without its scope."""

    object_type: Required[str]
    canonical_content: Required[Content]
    provenance: Required[Provenance]
    object_id: str
    schema_id: str
    lifecycle_state: LifecycleState
    availability_state: Literal["available"]
    retention_state: Literal["retained"]
    validation_state: ValidationState
    observed_at: Time
    asserted_at: Time
    valid_from: Time
    valid_until: Time
    relationship_refs: list[str]
    integrity: Integrity
    quality_signals: QualitySignals
    source_event: SourceEvent
    expected_absent: bool


class UpdateFields(Writing, total=False):
    """An update without its scope; what is not named stays as it is."""

    object_id: Required[str]
    expected_version_id: Required[str]
    provenance: Required[Provenance]
    canonical_content: Content
    restore_version_id: str
    schema_id: str
    observed_at: Time
    asserted_at: Time
    valid_from: Time
    valid_until: Time
    relationship_refs: list[str]
    integrity: Integrity
    quality_signals: QualitySignals
    source_event: SourceEvent


class TransitionFields(Writing, total=False):
    """A transition without its scope; of one object or one relationship."""

    object_id: str
    relationship_id: str
    expected_version_id: Required[str]
    dimension: Required[Dimension]
    target_state: Required[str]
    policy_basis: Required[str]
    provenance: Provenance
    canonical_content: Content


class RedactFields(Writing, total=False):
    """A redaction without its scope; of one object or one relationship."""

    object_id: str
    relationship_id: str
    expected_version_id: Required[str]
    policy_basis: Required[str]
    redaction_target: Required[RedactionTarget]
    version_ids: list[str]
    """Erase exactly these versions; without it every version up to the expected one."""
    provenance: Provenance


class DeleteFields(Writing, total=False):
    """A delete without its scope; of one object or one relationship."""

    object_id: str
    relationship_id: str
    expected_version_id: Required[str]
    policy_basis: Required[str]
    provenance: Provenance


class RelateFields(Writing, total=False):
    """A relationship without its scope: a new one, or with relationship_id and expected_version_id its next version."""

    provenance: Required[Provenance]
    relationship_id: str
    expected_version_id: str
    source_object_id: str
    target_object_id: str
    target_scope_id: str
    relationship_type: str
    directionality: Directionality
    canonical_content: Content
    lifecycle_state: LifecycleState
    availability_state: Literal["available"]
    retention_state: Literal["retained"]
    validation_state: ValidationState
    observed_at: Time
    asserted_at: Time
    valid_from: Time
    valid_until: Time
    integrity: Integrity
    policy_basis: str


class PromoteFields(Writing, total=False):
    """A promotion without its scope."""

    source_object_id: Required[str]
    expected_version_id: Required[str]
    target_object_type: Required[str]
    target_canonical_content: Required[Content]
    provenance: Required[Provenance]
    target_object_id: str
    target_schema_id: str
    target_lifecycle_state: LifecycleState
    target_validation_state: ValidationState


class CreateRequest(CreateFields, total=False):
    """Write the first version of an object."""

    scope_id: Required[str]


class UpdateRequest(UpdateFields, total=False):
    """Write the next version of an object."""

    scope_id: Required[str]


class TransitionRequest(TransitionFields, total=False):
    """Move one state dimension."""

    scope_id: Required[str]


class RedactRequest(RedactFields, total=False):
    """Erase content, whole or in part, and past versions."""

    scope_id: Required[str]


class DeleteRequest(DeleteFields, total=False):
    """Write the final tombstone and erase the content."""

    scope_id: Required[str]


class RelateRequest(RelateFields, total=False):
    """Join two objects, or change how they are joined."""

    scope_id: Required[str]


class PromoteRequest(PromoteFields, total=False):
    """Make an object of working memory, which it supersedes."""

    scope_id: Required[str]


class CreateItem(CreateFields, total=False):
    """A create in a batch."""

    operation: Required[Literal["create"]]
    scope_id: str


class UpdateItem(UpdateFields, total=False):
    """An update in a batch."""

    operation: Required[Literal["update"]]
    scope_id: str


class TransitionItem(TransitionFields, total=False):
    """A transition in a batch."""

    operation: Required[Literal["transition"]]
    scope_id: str


class RedactItem(RedactFields, total=False):
    """A redaction in a batch."""

    operation: Required[Literal["redact"]]
    scope_id: str


class DeleteItem(DeleteFields, total=False):
    """A delete in a batch."""

    operation: Required[Literal["delete"]]
    scope_id: str


class RelateItem(RelateFields, total=False):
    """A relate in a batch."""

    operation: Required[Literal["relate"]]
    scope_id: str


class PromoteItem(PromoteFields, total=False):
    """A promote in a batch."""

    operation: Required[Literal["promote"]]
    scope_id: str


BatchItem: TypeAlias = CreateItem | UpdateItem | TransitionItem | RedactItem | DeleteItem | RelateItem | PromoteItem


class BatchRequest(Writing, total=False):
    """Several writes in their order; atomic: all or nothing."""

    scope_id: Required[str]
    items: Required[list[BatchItem]]
    atomic: bool
