"""Cells made, patched and deleted.

Invariant: a change follows the version that it was made from, so of many writers at once nobody's change is lost; what
is said again with the same Idempotency-Key happens once.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from pamspec_amp.handlers.place import Place, Refusal
from pamspec_amp.model.access import may
from pamspec_amp.model.cells import Cell, cell_in, made_of, patched
from pamspec_amp.model.errors import CellTooLarge, InvalidTransition, RateLimited, invalid, refused
from pamspec_amp.model.schemas import OBJECT_TYPE, SCHEMA_ID
from pamspec_amp.model.ulids import cell_id, object_id
from pamspec_common import strict_json
from pamspec_common.instants import parse, wire

MAX_CELL_BYTES = 65_536
MAX_SCORING_EDITS = 5
SCORING_WINDOW_S = 3600

_ROUNDS = 200
_PAUSE_S = 0.05
_HISTORY = 100
_MADE = {"activity": "remembered through AMP"}
_EDITED = {"activity": "edited through AMP"}
_SCORED = {"activity": "scoring edited through AMP"}
_PATCH = ("content", "scoring", "access_policy", "provenance")


async def create(place: Place, body: Mapping[str, Any], created_by: str, key: str | None) -> Cell:
    """A new cell, active (A13, A24)."""
    document = _fitting(made_of(body, created_by))
    made = cell_id(time.time_ns() // 1_000_000, os.urandom(10))
    asked: dict[str, Any] = {
        "object_type": OBJECT_TYPE,
        "schema_id": SCHEMA_ID,
        "object_id": object_id(made),
        "canonical_content": document,
        "provenance": _MADE,
        "asserted_at": wire(datetime.now(UTC)),
        **_key(key),
    }
    try:
        return _written(await place.ask("create", asked))
    except Refusal as refusal:
        if refusal.code != "duplicate_operation" or key is None:
            raise refused(refusal.status, refusal.error, refusal.retry_after) from None
    earlier = await _earlier(place, "create", key)
    if earlier is None or strict_json.canonical(earlier.document) != strict_json.canonical(document):
        raise invalid("Idempotency-Key", "duplicate_operation")
    return earlier


async def patch(place: Place, named: str, body: Mapping[str, Any], key: str | None) -> Cell:
    """A cell after a patch (A15, A29, A31, A32)."""
    for turn in range(_ROUNDS):
        cell = await place.cell(named, "write")
        target = _target(cell, body.get("lifecycle", {}))
        try:
            cell = await _edit(place, cell, body, key and f"{key}:content")
            return await _archive(place, cell, key and f"{key}:status") if target else cell
        except Refusal as refusal:
            if refusal.code != "version_conflict":
                raise refused(refusal.status, refusal.error, refusal.retry_after) from None
        await asyncio.sleep(random.random() * _PAUSE_S * min(turn + 1, 10))
    raise RateLimited(1)


def _target(cell: Cell, lifecycle: Mapping[str, Any]) -> bool:
    """Whether a patch archives; InvalidTransition for a status that nobody sets (A29, A31)."""
    wanted = lifecycle.get("status", cell.status)
    if wanted != cell.status and wanted != "archived":
        raise InvalidTransition
    return bool(wanted != cell.status)


async def _edit(place: Place, cell: Cell, body: Mapping[str, Any], key: str | None) -> Cell:
    """The cell with a patch of its content, and what it was where there is nothing to change."""
    lifecycle = body.get("lifecycle", {})
    moves_end = "expires_at" in lifecycle
    if not moves_end and not any(part in body for part in _PATCH):
        return cell
    scores = "scoring" in body
    document = _fitting(patched(cell.document, body))
    asked: dict[str, Any] = {
        "object_id": cell.object_id,
        "expected_version_id": cell.version_id,
        "canonical_content": document,
        "provenance": _SCORED if scores else _EDITED,
        "observed_at": wire(datetime.now(UTC)),
        **_key(key),
    }
    if moves_end:
        end = lifecycle["expires_at"]
        if end is None and cell.expires_at is not None:
            raise invalid("lifecycle.expires_at", "moved_not_removed")
        asked |= {} if end is None else {"valid_until": end}
    if scores:
        await _check_scoring_edits(place, cell)
    try:
        return _written(await place.ask("update", asked))
    except Refusal as refusal:
        if refusal.code != "duplicate_operation" or key is None:
            raise
    earlier = await _earlier(place, "update", key)
    if earlier is None or patched(earlier.document, body) != earlier.document:
        raise invalid("Idempotency-Key", "duplicate_operation")
    return await place.cell(cell.cell_id, "write")


async def _archive(place: Place, cell: Cell, key: str | None) -> Cell:
    asked = {
        "object_id": cell.object_id,
        "expected_version_id": cell.version_id,
        "dimension": "lifecycle",
        "target_state": "archived",
        "policy_basis": "archived through AMP",
        **_key(key),
    }
    return _written(await place.ask("transition", asked))


async def _check_scoring_edits(place: Place, cell: Cell) -> None:
    """RateLimited where the scoring was edited as often as it may be within the hour (A22)."""
    since = datetime.now(UTC) - timedelta(seconds=SCORING_WINDOW_S)
    edits: list[datetime] = []
    last = cell.sequence
    while last > 0:
        first = max(1, last - _HISTORY + 1)
        window = {"from_sequence": first, "to_sequence": last}
        found = await place.ask("inspect_history", {"object_id": cell.object_id, "version_range": window})
        times = [(parse(one["committed_at"]), one["provenance"]["activity"]) for one in found["versions"]]
        edits += [at for at, activity in times if activity == _SCORED["activity"] and at > since]
        if len(edits) >= MAX_SCORING_EDITS:
            oldest = sorted(edits)[-MAX_SCORING_EDITS]
            raise RateLimited((oldest - since).total_seconds(), "The scoring of this cell was edited too often.")
        if not times or min(at for at, _ in times) <= since:
            return
        last = first - 1


async def delete(place: Place, named: str, key: str | None) -> None:
    """Delete an archived cell for good: its content is erased at once, its tombstone stays (A16, A30, A37)."""
    for _ in range(_ROUNDS):
        cell = await place.cell(named, "write")
        if cell.status != "archived":
            raise InvalidTransition("Archive the cell first; only what is archived is deleted.")
        asked = {
            "object_id": cell.object_id,
            "expected_version_id": cell.version_id,
            "policy_basis": "deleted through AMP",
            **_key(key),
        }
        try:
            await place.ask("delete", asked)
        except Refusal as refusal:
            if refusal.code != "version_conflict":
                raise refused(refusal.status, refusal.error, refusal.retry_after) from None
        else:
            return
    raise RateLimited(1)


def readable(place: Place, cell: Cell) -> bool:
    """Whether the agent that changed a cell may see it (A43)."""
    return may(place.agent, "read", cell.document)


async def _earlier(place: Place, operation: str, key: str) -> Cell | None:
    """The cell of a write with this key that was carried out before."""
    found = await place.tell("get_operation", {"operation": operation, "idempotency_key": key})
    if found["state"] != "committed":
        return None
    return cell_in(found["outcome"]["envelope"])


def _written(answer: Mapping[str, Any]) -> Cell:
    cell = cell_in(answer["envelope"])
    if cell is None:
        raise RuntimeError("a write of a cell made none")
    return cell


def _fitting(document: dict[str, Any]) -> dict[str, Any]:
    if len(strict_json.canonical(document)) > MAX_CELL_BYTES:
        raise CellTooLarge(f"A cell has at most {MAX_CELL_BYTES} bytes.", {"max_cell_size_bytes": MAX_CELL_BYTES})
    return document


def _key(key: str | None) -> dict[str, str]:
    return {} if key is None else {"idempotency_key": key}
