"""Requests that write an object's content: create and update."""

from __future__ import annotations

import msgspec

from pamspec_common.contracts.formats import is_uri
from pamspec_common.documents import STANDARD_TYPES, Availability, Lifecycle, Retention, Validation, is_extension_type
from pamspec_common.errors import InvalidObject
from pamspec_common.ids import Id
from pamspec_common.instants import Instant
from pamspec_write.documents.parts import Common, MaybeRaw, SourceEvent


class Create(Common, kw_only=True):
    object_type: str
    canonical_content: msgspec.Raw
    provenance: msgspec.Raw
    lifecycle_state: Lifecycle | None = None
    availability_state: Availability = "available"
    retention_state: Retention = "retained"
    validation_state: Validation = "unverified"
    object_id: Id | None = None
    schema_id: str | None = None
    observed_at: Instant | None = None
    asserted_at: Instant | None = None
    valid_from: Instant | None = None
    valid_until: Instant | None = None
    integrity: MaybeRaw = msgspec.UNSET
    quality_signals: MaybeRaw = msgspec.UNSET
    relationship_refs: list[Id] | None = None
    source_event: SourceEvent | None = None
    expected_absent: bool = False


class Update(Common, kw_only=True):
    object_id: Id
    expected_version_id: Id
    provenance: msgspec.Raw
    canonical_content: MaybeRaw = msgspec.UNSET
    schema_id: str | None = None
    observed_at: Instant | None = None
    asserted_at: Instant | None = None
    valid_from: Instant | None = None
    valid_until: Instant | None = None
    integrity: MaybeRaw = msgspec.UNSET
    quality_signals: MaybeRaw = msgspec.UNSET
    relationship_refs: list[Id] | None = None
    source_event: SourceEvent | None = None
    restore_version_id: Id | None = None


def check_schema_id(schema_id: str | None) -> None:
    """Raise InvalidObject for a schema_id that is no URI."""
    if schema_id is not None and not is_uri(schema_id):
        raise InvalidObject("schema_id must be an absolute URI.", details={"field": "schema_id"})


def check_object_type(object_type: str, schema_id: str | None) -> None:
    """Raise InvalidObject unless the type is a standard one, or an extension type with a schema_id (P57)."""
    if object_type in STANDARD_TYPES:
        return
    if not is_extension_type(object_type):
        raise InvalidObject(
            "object_type is neither a standard type nor a reverse-domain name or URI.",
            details={"field": "object_type", "standard_types": sorted(STANDARD_TYPES)},
        )
    if schema_id is None:
        raise InvalidObject("An extension type needs a schema_id.", details={"field": "schema_id"})
