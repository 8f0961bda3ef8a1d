"""A turn of a conversation as the observation that is stored of it."""

from pamspec_cli.demo.conversations import Turn
from pamspec_client.requests import CreateRequest


def observation(turn: Turn) -> CreateRequest:
    """The create of a turn: its words as content, its session's date as valid time, its place as provenance."""
    content = {"speaker": turn.speaker, "text": turn.text}
    if turn.caption is not None:
        content["caption"] = turn.caption
    return {
        "scope_id": turn.scope_id,
        "object_type": "observation",
        "canonical_content": content,
        "valid_from": turn.at,
        "observed_at": turn.at,
        "provenance": {
            "activity": "conversation_import",
            "source_ref": f"{turn.scope_id}/session_{turn.session}#{turn.turn}",
        },
        "idempotency_key": turn.key,
    }
