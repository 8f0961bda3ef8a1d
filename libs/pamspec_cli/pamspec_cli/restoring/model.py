"""What a restored store has to erase again. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from pamspec_common.erasure_log import Erased

MAX_NAMED = 1000
"""So many versions one redaction names at most; further ones are another's."""


class Version(NamedTuple):
    """A version of an object or relationship in the restored store that still has its values."""

    version_id: str
    version_seq: int
    is_current: bool


class Subject(NamedTuple):
    """An object or relationship of the restored store."""

    version_id: str
    """Its current version."""
    deleted: bool
    held: Sequence[Version]
    """Its versions that still have values."""


def command(erased: Sequence[Erased], subject: Subject | None, epoch: int) -> dict[str, Any] | None:
    """The command that does the erasures of one object or relationship again; None where nothing is left to erase.

    What was cut out of the current version by paths goes as a whole: the content without those parts came after the
    backup.
    """
    if subject is None or subject.deleted:
        return None
    first = erased[0]
    named = {"object_id": first.object_id} if first.object_id else {"relationship_id": first.relationship_id}
    item: dict[str, Any] = {
        **named,
        "expected_version_id": subject.version_id,
        "policy_basis": f"restore:{epoch}",
        "operation_id": _operation_id(erased, subject.version_id, epoch),
    }
    if any(one.kind == "delete" for one in erased):
        return {"operation": "delete", **item}
    left = [version for version in subject.held if _is_erased(version.version_seq, erased)]
    if not left:
        return None
    item |= {"operation": "redact", "redaction_target": {"whole": True}}
    if any(version.is_current for version in left):
        return item
    return item | {"version_ids": [version.version_id for version in left[:MAX_NAMED]]}


def _is_erased(sequence: int, erased: Iterable[Erased]) -> bool:
    return any(first <= sequence <= last for one in erased for first, last in one.erased)


def _operation_id(erased: Sequence[Erased], version_id: str, epoch: int) -> str:
    named = "\0".join([str(epoch), version_id, *sorted(one.erasure_id for one in erased)])
    return f"op:restore.{hashlib.sha256(named.encode()).hexdigest()[:40]}"
