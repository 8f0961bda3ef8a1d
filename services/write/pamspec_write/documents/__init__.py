"""The request documents of the write operations, one module per noun."""

from __future__ import annotations

from pamspec_write.documents.delegations import (
    CheckDelegation,
    ExerciseDelegation,
    GrantDelegation,
    RevokeDelegation,
    TellUses,
)
from pamspec_write.documents.entries import RecordEvent
from pamspec_write.documents.erasures import Delete, Redact
from pamspec_write.documents.holds import HoldObject, PlaceHold, ReleaseHold
from pamspec_write.documents.objects import Create, Update
from pamspec_write.documents.promotion import Promote
from pamspec_write.documents.relationships import Relate
from pamspec_write.documents.schemas import RegisterSchema
from pamspec_write.documents.scopes import UpdateScope
from pamspec_write.documents.snapshots import SealSnapshot
from pamspec_write.documents.states import Transition

Request = (
    Create
    | Update
    | Transition
    | Redact
    | Delete
    | Relate
    | Promote
    | RecordEvent
    | SealSnapshot
    | UpdateScope
    | RegisterSchema
    | PlaceHold
    | ReleaseHold
    | HoldObject
    | GrantDelegation
    | RevokeDelegation
    | CheckDelegation
    | ExerciseDelegation
    | TellUses
)
REQUESTS: dict[str, type[Request]] = {
    "create": Create,
    "update": Update,
    "transition": Transition,
    "redact": Redact,
    "delete": Delete,
    "relate": Relate,
    "promote": Promote,
    "record_event": RecordEvent,
    "seal_snapshot": SealSnapshot,
    "update_scope": UpdateScope,
    "register_schema": RegisterSchema,
    "place_hold": PlaceHold,
    "release_hold": ReleaseHold,
    "grant_delegation": GrantDelegation,
    "revoke_delegation": RevokeDelegation,
    "check_delegation": CheckDelegation,
    "exercise_delegation": ExerciseDelegation,
}
"""By operation: the commands, which are decided under the lock of their scopes."""
