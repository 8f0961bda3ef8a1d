"""Objects and events as lines for people."""

import json
from typing import Any

from pamspec_client import Envelope, Event

WIDTH = 100


def brief(value: Any, width: int = WIDTH) -> str:
    """A value on one line, cut where it gets long."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= width else text[: width - 1] + "…"


def states(envelope: Envelope) -> str:
    """The four states on one line."""
    return " ".join(
        (
            envelope.lifecycle_state,
            envelope.availability_state,
            envelope.retention_state,
            envelope.validation_state,
        )
    )


def envelope_line(envelope: Envelope) -> str:
    """An object on one line."""
    kind = envelope.object_type or envelope.relationship_type or "delegation"
    named = envelope.object_id or envelope.relationship_id or envelope.delegation_id
    return f"{named}  v{envelope.sequence}  {kind}  {brief(envelope.content)}"


def envelope_lines(envelope: Envelope) -> list[str]:
    """All that stands around an object's content."""
    valid = f"{envelope.valid_from or ''} to {envelope.valid_until or ''}" if envelope.valid_from else "not stated"
    return [
        f"{envelope.object_id or envelope.relationship_id}  {envelope.object_type or envelope.relationship_type}",
        f"  version     {envelope.version_id} (number {envelope.sequence})",
        f"  states      {states(envelope)}",
        f"  committed   {envelope.committed_at}",
        f"  valid       {valid}",
        f"  actor       {envelope.actor['actor_id']}",
        f"  provenance  {provenance(envelope)}",
    ]


def provenance(envelope: Envelope) -> str:
    """How a version came about, on one line."""
    known = envelope.provenance
    source = f", from {known['source_ref']}" if "source_ref" in known else ""
    return f"{known['activity']}{source} ({known.get('provenance_id', '')})"


def event_line(event: Event) -> str:
    """A ledger entry on one line, with its content where it came along."""
    about = event.object_id or event.relationship_id or event.payload.get("subscription_id", "")
    line = f"{event.sequence:>8}  {event.recorded_at}  {event.event_type:<26} {about}"
    return line if event.envelope is None else f"{line}  {brief(event.envelope.content)}"
