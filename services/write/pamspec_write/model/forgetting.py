"""What a forget does next to one of its items, and what an answer says about it.

Invariant: each step is decided from the item as it is, so a step that comes twice, or after a crash, changes nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import orjson

from pamspec_common.calls import Answer
from pamspec_write.documents.erasures import Delete, Redact, RedactionTarget
from pamspec_write.documents.objects import Update
from pamspec_write.documents.parts import Provenance

DONE, HELD, FAILED = "d", "h", "f"
ACCOUNT = Provenance(activity="forget")
_RETRIED = frozenset({"version_conflict", "service_unavailable", "in_progress"})
_GONE = frozenset({"object_deleted", "object_not_found"})
_MOST = 1000


class Step(NamedTuple):
    """A command of a forget."""

    operation: str
    request: Delete | Redact | Update
    past: tuple[str, ...] = ()


def next_step(
    scope_id: str,
    object_id: str,
    *,
    relationship: bool,
    whole: bool,
    head: tuple[str, str] | None,
    left: list[str],
    policy_basis: str,
) -> Step | None:
    """The next command; None where nothing is left. `head`: the current version and its availability."""
    if head is None or head[1] == "deleted" or not (whole or left):
        return None
    version_id = head[0]
    itself, joined = (None, object_id) if relationship else (object_id, None)
    if whole or (relationship and version_id in left):
        # A relationship has no content of its own that could stay under another account.
        return Step(
            "delete",
            Delete(
                scope_id=scope_id,
                expected_version_id=version_id,
                policy_basis=policy_basis,
                object_id=itself,
                relationship_id=joined,
            ),
        )
    if version_id in left:
        # The current version keeps its content under an account of its own; the person's becomes a past one.
        account = msgspec.Raw(b'{"activity":"forget"}')
        update = Update(scope_id=scope_id, expected_version_id=version_id, object_id=object_id, provenance=account)
        return Step("update", update)
    past = tuple(left[:_MOST])
    request = Redact(
        scope_id=scope_id,
        expected_version_id=version_id,
        policy_basis=policy_basis,
        redaction_target=RedactionTarget(whole=True),
        object_id=itself,
        relationship_id=joined,
        version_ids=list(past),
    )
    return Step("redact", request, past)


def outcome(answer: Answer, *, whole: bool) -> tuple[str, str | None] | None:
    """What an item has come to (state, code); None: it is looked at again."""
    if answer.status < 400:
        return (DONE, None) if whole else None
    code: str = orjson.loads(answer.body)["error"]["code"]
    if code in _RETRIED:
        return None
    if code in _GONE:
        return DONE, None
    return (HELD if code == "legal_hold" else FAILED), code
