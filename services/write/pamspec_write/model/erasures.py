"""Redact and delete: the versions that take content away.

Invariant: an erasure is one set-based change of the versions that it names, of the spans, records and source events
that belong to them, and of the overlay; its event names them in payload.erased, so that a ledger without them verifies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pamspec_common.calls import Answer
from pamspec_common.errors import InvalidRequest, ObjectNotFound
from pamspec_write.documents.erasures import Delete, Redact
from pamspec_write.documents.parts import Provenance
from pamspec_write.documents.states import Transition
from pamspec_write.model import states as rules
from pamspec_write.model.facts import Head, PastVersion
from pamspec_write.model.holds import check_unheld
from pamspec_write.model.making import Making, carried_provenance, expected_head, following
from pamspec_write.model.pointers import Pointer, without
from pamspec_write.model.projection import carried_projection
from pamspec_write.model.versions import Draft


def delete(making: Making) -> Answer:
    """P142: a final tombstone; content, provenance and salts of every earlier version go at once."""
    request = making.command.request
    assert isinstance(request, Delete | Transition)
    head = expected_head(making, request.expected_version_id, rules.check_removable)
    check_unheld(making.state.rules, head)
    draft = _tombstone(making, head, "deleted")
    making.account(draft, _own_account(making, head, "delete"), request.policy_basis)
    return _erase(making, draft, head, None, "object_deleted")


def redact(making: Making) -> Answer:
    """P136: a version without what was named; past versions lose all that is erasable, or the chosen ones (S21)."""
    command, request = making.command, making.command.request
    assert isinstance(request, Redact | Transition)
    head = expected_head(making, request.expected_version_id, rules.check_redactable)
    check_unheld(making.state.rules, head)
    chosen = _chosen(making, head) if command.past else None
    if command.pointers is None and chosen is None:
        draft = _tombstone(making, head, "redacted")
        account = _own_account(making, head, "redact")
    else:
        draft = following(head, command)
        account = command.provenance or carried_provenance(head, "redact")
        if command.pointers is not None:
            _project(draft, head, command.pointers)
            account.integrity_ref = None if command.provenance is None else account.integrity_ref
    making.account(draft, account, request.policy_basis)
    return _erase(making, draft, head, chosen, "object_redacted")


def _tombstone(making: Making, head: Head, availability: str) -> Draft:
    """The head without anything that is erasable."""
    draft = following(head, making.command)
    draft.states["availability_state"] = availability
    draft.content, draft.projection, draft.private, draft.extra = None, None, {}, {}
    return draft


def _own_account(making: Making, head: Head, activity: str) -> Provenance:
    """The account of an erasure that leaves no content: nothing is carried over (S21)."""
    return making.command.provenance or Provenance(activity=activity, transformation_parent=head.version_id)


def _project(draft: Draft, head: Head, pointers: Sequence[Pointer]) -> None:
    """Cut the content; what the client said about the whole of it, its digest and signature, goes as well."""
    assert head.content is not None, "what is redacted was refused before"
    draft.content = without(head.content, pointers)
    draft.projection = carried_projection(draft.content)
    draft.states["availability_state"] = "partially_redacted"
    draft.private.pop("integrity", None)


def _chosen(making: Making, head: Head) -> list[PastVersion]:
    """The versions that version_ids names, in their order; the current one only where the new one leaves parts out."""
    command = making.command
    found: dict[int, PastVersion] = {}
    for index, version_id in enumerate(command.past):
        past = making.state.past.get(version_id)
        if past is None or past.object_id != head.object_id:
            raise ObjectNotFound(
                f"version_ids[{index}] is no version of this object; take the ids from its history.",
                details={"field": "version_ids", "index": index},
            )
        if past.version_id == head.version_id and command.pointers is None:
            raise InvalidRequest(
                "version_ids names the current version, whose content the new one would keep; leave version_ids out to"
                " erase everything, or name what goes in redaction_target.paths.",
                details={"field": "version_ids", "index": index},
            )
        found[past.version_seq] = past
    return [found[sequence] for sequence in sorted(found)]


def _erase(making: Making, draft: Draft, head: Head, chosen: Sequence[PastVersion] | None, event_type: str) -> Answer:
    """Make the version, erase the chosen earlier ones or all of them, and tell of it."""
    state, rows = making.state, making.rows
    key, first = state.ref.scope_key, state.last_seq + 1
    made = making.version(draft, "delete" if event_type == "object_deleted" else "redact")
    availability = made.head.availability_state
    if chosen is None:
        rows.erase_before(key, head.object_id, first)
        state.forget(head.object_id, availability)
        spans = ranges(range(1, head.version_seq + 1))
    else:
        gone = {past.ledger_seq for past in chosen}
        rows.erase_versions(key, gone)
        state.forget(head.object_id, availability, gone)
        spans = ranges(past.version_seq for past in chosen)
    return making.finish(made, event_type, erased=spans)


def ranges(sequences: Iterable[int]) -> list[tuple[int, int]]:
    """Ascending version sequences as ranges, both ends included."""
    found: list[tuple[int, int]] = []
    for sequence in sequences:
        if found and found[-1][1] == sequence - 1:
            found[-1] = (found[-1][0], sequence)
        else:
            found.append((sequence, sequence))
    return found
