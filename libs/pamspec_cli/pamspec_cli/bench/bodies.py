"""The create that everything is measured with: a turn of a conversation as an observation."""

import json
from typing import Any

from pamspec_cli.bench.generator import COUNTER

TEXT = (
    "I went to the harbour this morning and spoke with the pilot about the northern channel. He says the buoy has "
    "drifted by forty metres since the storm, so we should keep to the western side until it is back in its place."
)


def create(scope_id: str, key: str = COUNTER.decode()) -> dict[str, Any]:
    """A create with an idempotency key."""
    return {
        "scope_id": scope_id,
        "idempotency_key": f"bench-{key}",
        "object_type": "observation",
        "canonical_content": {"speaker": "Imani", "text": TEXT, "session": 3, "turn": "D3:7", "weight": 0.75},
        "valid_from": "2026-03-14T09:26:53.000000Z",
        "provenance": {"activity": "conversation_import", "source_ref": "conversation:bench/session_3/D3:7"},
    }


def create_bytes(scope_id: str, key: str = COUNTER.decode()) -> bytes:
    """The same as compact JSON."""
    return json.dumps(create(scope_id, key), separators=(",", ":")).encode()


def batch_bytes(scope_id: str, items: int) -> bytes:
    """A batch of creates under one key."""
    documents = []
    for _ in range(items):
        document = {"operation": "create", **create(scope_id)}
        del document["idempotency_key"], document["scope_id"]
        documents.append(document)
    batch = {"scope_id": scope_id, "idempotency_key": f"bench-{COUNTER.decode()}", "items": documents}
    return json.dumps(batch, separators=(",", ":")).encode()
