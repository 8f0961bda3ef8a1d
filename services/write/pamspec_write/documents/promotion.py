"""The request for a promotion: working memory becomes an object of another type."""

from __future__ import annotations

import msgspec

from pamspec_common.documents import Lifecycle, Validation
from pamspec_common.ids import Id
from pamspec_write.documents.parts import Common


class Promote(Common, kw_only=True):
    source_object_id: Id
    expected_version_id: Id
    target_object_type: str
    target_canonical_content: msgspec.Raw
    provenance: msgspec.Raw
    target_object_id: Id | None = None
    target_schema_id: str | None = None
    target_lifecycle_state: Lifecycle = "active"
    target_validation_state: Validation = "unverified"
