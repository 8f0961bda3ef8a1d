"""Requests that take content away: redact and delete."""

from __future__ import annotations

from typing import Annotated

import msgspec

from pamspec_common.ids import Id
from pamspec_write.documents.parts import Basis, Common, MaybeRaw

MAX_NAMED = 1000


class Delete(Common, kw_only=True):
    expected_version_id: Id
    policy_basis: Basis
    object_id: Id | None = None
    relationship_id: Id | None = None
    provenance: MaybeRaw = msgspec.UNSET


class RedactionTarget(msgspec.Struct, forbid_unknown_fields=True):
    whole: bool | None = None
    paths: Annotated[list[str], msgspec.Meta(min_length=1, max_length=MAX_NAMED)] | None = None


class Redact(Common, kw_only=True):
    expected_version_id: Id
    policy_basis: Basis
    redaction_target: RedactionTarget
    object_id: Id | None = None
    relationship_id: Id | None = None
    version_ids: Annotated[list[Id], msgspec.Meta(min_length=1, max_length=MAX_NAMED)] | None = None
    provenance: MaybeRaw = msgspec.UNSET
