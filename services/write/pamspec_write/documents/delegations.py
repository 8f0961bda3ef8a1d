"""Requests about grants; what would enter a delegation is decoded by itself, since it breaks a rule of the object."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

import msgspec

from pamspec_common.delegation.grants import MAX_DEPTH, Delegable
from pamspec_common.documents import MAX_KEY, STANDARD_TYPES, Actor, CommonFields, Validation, is_extension_type
from pamspec_common.ids import Id
from pamspec_common.instants import Instant
from pamspec_write.documents.parts import Basis, Common, Integrity, MaybeRaw

Exercised = Literal["read", "query", "inspect_history", "subscribe", "unsubscribe"]
EXERCISED: tuple[str, ...] = get_args(Exercised)
ObjectType = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_KEY)]

MAX_TYPES = 100
MAX_OBJECTS = 1000
MAX_USES = 2**53 - 1
MAX_COUNT = 1_000_000


def is_type(object_type: str) -> bool:
    """Whether an object can have that type (P56, P57)."""
    return object_type in STANDARD_TYPES or is_extension_type(object_type)


class GrantDelegation(Common, kw_only=True):
    policy_basis: Basis
    granting_actor: MaybeRaw = msgspec.UNSET
    delegated_actor: MaybeRaw = msgspec.UNSET
    granted_operations: MaybeRaw = msgspec.UNSET
    granted_object_types: MaybeRaw = msgspec.UNSET
    granted_object_ids: MaybeRaw = msgspec.UNSET
    target_scope_id: Id | None = None
    not_before: MaybeRaw = msgspec.UNSET
    not_after: MaybeRaw = msgspec.UNSET
    revocable: MaybeRaw = msgspec.UNSET
    usage_limit: MaybeRaw = msgspec.UNSET
    redelegation_depth: MaybeRaw = msgspec.UNSET
    validation_state: Validation = "unverified"
    integrity: MaybeRaw = msgspec.UNSET
    provenance: MaybeRaw = msgspec.UNSET


class GrantTerms(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The members of a grant that stand in its delegation."""

    delegated_actor: Actor
    granted_operations: Annotated[list[Delegable], msgspec.Meta(min_length=1)]
    not_before: Instant
    not_after: Instant
    granting_actor: Actor | None = None
    granted_object_types: Annotated[list[ObjectType], msgspec.Meta(min_length=1, max_length=MAX_TYPES)] | None = None
    granted_object_ids: Annotated[list[Id], msgspec.Meta(min_length=1, max_length=MAX_OBJECTS)] | None = None
    revocable: bool = True
    usage_limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_USES)] | None = None
    redelegation_depth: Annotated[int, msgspec.Meta(ge=0, le=MAX_DEPTH)] = 0
    integrity: Integrity | None = None

    def __post_init__(self) -> None:
        if len(set(self.granted_operations)) != len(self.granted_operations):
            raise ValueError("One operation is granted twice")
        if not all(map(is_type, self.granted_object_types or ())):
            raise ValueError("Expected standard types, reverse-domain names or URIs in granted_object_types")


class OfGrant(CommonFields, kw_only=True):
    """The fields of a request about a grant, which may leave its scope out."""

    delegation_id: Id
    scope_id: Id | None = None
    actor: MaybeRaw = msgspec.UNSET


class RevokeDelegation(OfGrant, kw_only=True):
    policy_basis: Basis
    expected_version_id: Id | None = None
    provenance: MaybeRaw = msgspec.UNSET


class CheckDelegation(OfGrant, kw_only=True):
    operation: Delegable
    object_id: Id | None = None
    object_type: ObjectType | None = None
    consume: bool = True


class TellUses(OfGrant, kw_only=True):
    """What the job sends when a minute is over."""

    operation: str


class ExerciseDelegation(OfGrant, kw_only=True):
    operation: Exercised
    object_id: Id | None = None
    object_type: ObjectType | None = None
    count: Annotated[int, msgspec.Meta(ge=1, le=MAX_COUNT)] = 1
