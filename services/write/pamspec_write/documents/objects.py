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


def check_schema_id(schema_id: str | None, field: str = "schema_id") -> None:
    """Raise InvalidObject for a schema_id that is no URI; `field` is its member."""
    if schema_id is not None and not is_uri(schema_id):
        raise InvalidObject(f"{field} must be an absolute URI.", details={"field": field})


def check_object_type(object_type: str, schema_id: str | None, prefix: str = "") -> None:
    """Raise InvalidObject unless the type is a standard one, or an extension type with a schema_id (P57).

    `prefix` is what their members' names begin with.
    """
    if object_type in STANDARD_TYPES:
        return
    if not is_extension_type(object_type):
        raise InvalidObject(
            f"{prefix}object_type is neither a standard type nor a reverse-domain name or URI.",
            details={"field": f"{prefix}object_type", "standard_types": sorted(STANDARD_TYPES)},
        )
    if schema_id is None:
        field = f"{prefix}schema_id"
        raise InvalidObject(f"An extension type needs a {field}.", details={"field": field})
