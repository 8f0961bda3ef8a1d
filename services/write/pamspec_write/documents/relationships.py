"""Requests that join objects: relate, which makes or changes a relationship, and promote."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from pamspec_common.documents import (
    MAX_KEY,
    Availability,
    Lifecycle,
    Retention,
    Validation,
    is_extension_type,
)
from pamspec_common.errors import InvalidObject
from pamspec_common.ids import Id
from pamspec_common.instants import Instant
from pamspec_write.documents.parts import Basis, Common, MaybeRaw

Directionality = Literal["directed", "bidirectional", "undirected"]
KNOWN_LABELS = (
    "supports",
    "contradicts",
    "derives_from",
    "derived_from",
    "references",
    "supersedes",
    "part_of",
    "informed_by",
    "produced_by",
)
"""The labels that PAMSPEC names (P63, P77, S2); any other is kept as it was sent (P78)."""
_LABEL = re.compile(r"[A-Za-z][A-Za-z0-9_-]*\Z")


class Relate(Common, kw_only=True):
    """With `expected_version_id` the next version of that relationship, without it the first of a new one."""

    provenance: msgspec.Raw
    relationship_id: Id | None = None
    expected_version_id: Id | None = None
    source_object_id: Id | None = None
    target_object_id: Id | None = None
    target_scope_id: Id | None = None
    relationship_type: str | None = None
    directionality: Directionality | None = None
    canonical_content: MaybeRaw = msgspec.UNSET
    lifecycle_state: Lifecycle | None = None
    availability_state: Availability | None = None
    retention_state: Retention | None = None
    validation_state: Validation | None = None
    observed_at: Instant | None = None
    asserted_at: Instant | None = None
    valid_from: Instant | None = None
    valid_until: Instant | None = None
    integrity: MaybeRaw = msgspec.UNSET
    policy_basis: Basis | None = None


def check_label(label: str) -> None:
    """Raise InvalidObject unless a relationship_type is a word, a reverse-domain name or a URI (P77)."""
    if len(label) <= MAX_KEY and (_LABEL.match(label) or is_extension_type(label)):
        return
    raise InvalidObject(
        f"relationship_type must be a word of letters, digits, _ and -, a reverse-domain name or a URI, of at most "
        f"{MAX_KEY} characters.",
        details={"field": "relationship_type", "known_labels": list(KNOWN_LABELS)},
    )
