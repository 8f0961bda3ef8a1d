"""The request that registers a content schema."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from pamspec_common.documents import MAX_KEY
from pamspec_write.documents.parts import Common


class RegisterSchema(Common, kw_only=True):
    schema_id: Annotated[str, msgspec.Meta(max_length=MAX_KEY)]
    schema: dict[str, Any] | bool
