"""get_checkpoint and prove_ledger: what was signed of a ledger, and what is part of it.

Invariant: every proof is against the checkpoint in the same answer, and shows hashes alone, never an event.
"""

from __future__ import annotations

from typing import Any

from pamspec_common.calls import Answer
from pamspec_common.checkpoints import Checkpoint, hash_text, read
from pamspec_common.errors import InvalidRequest, ServiceUnavailable
from pamspec_common.ledger import genesis
from pamspec_common.merkle import Span, consistency_path, inclusion_path, needed, span_root
from pamspec_common.postgres import Connection
from pamspec_common.strict_json import dumps, loads
from pamspec_query.documents import GetCheckpoint, ProveLedger
from pamspec_query.handlers.context import Context, refuse_grant
from pamspec_query.model.positions import headers
from pamspec_query.queries import proofs


async def get_checkpoint(context: Context, request: GetCheckpoint) -> Answer:
    """The newest signed checkpoint of a scope, null before the first, and the public keys that check it."""
    refuse_grant(request)
    async with context.moment(request) as (conn, scope_key, head, _):
        stored = await proofs.checkpoint(conn, scope_key)
    document = {
        "checkpoint": None if stored is None else loads(stored),
        "public_keys": dict(context.store.anchors.texts),
    }
    return Answer(200, dumps(document), headers(head.last_seq, head.ledger_epoch))


async def prove_ledger(context: Context, request: ProveLedger) -> Answer:
    """That an entry is in the signed ledger, and that the ledger of an earlier size is its beginning (RFC 9162)."""
    refuse_grant(request)
    if request.sequence is None and request.from_ is None:
        raise InvalidRequest("Name the sequence of an entry, or from: the size of an earlier checkpoint, or both.")
    async with context.moment(request) as (conn, scope_key, head, _):
        stored = await proofs.checkpoint(conn, scope_key)
        for name, wanted in (("sequence", request.sequence), ("from", request.from_)):
            if wanted is not None and wanted > head.last_seq:
                raise InvalidRequest(
                    f"The ledger ends at {head.last_seq}; name a {name} up to there.",
                    details={"field": name, "reason": "position_future"},
                )
        signed = None if stored is None else read(stored)
        if signed is None or max(request.sequence or 0, request.from_ or 0) > signed.size:
            raise ServiceUnavailable("No checkpoint covers the entry yet; try again in a moment.", retry_after=1)
        document = {
            "checkpoint": loads(signed.document()),
            "inclusion": None
            if request.sequence is None
            else await _inclusion(conn, scope_key, signed, request.sequence),
            "consistency": None
            if request.from_ is None
            else {
                "from": request.from_,
                "path": await _path(conn, scope_key, consistency_path(request.from_, signed.size)),
            },
        }
    return Answer(200, dumps(document), headers(head.last_seq, head.ledger_epoch))


async def _inclusion(conn: Connection, scope_key: int, signed: Checkpoint, sequence: int) -> dict[str, Any]:
    hashes = await proofs.entry_hashes(conn, scope_key, max(0, sequence - 2), sequence)
    if sequence == 1:
        hashes[0] = genesis(bytes.fromhex(signed.ledger_id))
    if not {sequence - 1, sequence} <= hashes.keys():
        raise _broken()
    return {
        "sequence": sequence,
        "previous_hash": hash_text(hashes[sequence - 1]),
        "entry_hash": hash_text(hashes[sequence]),
        "path": await _path(conn, scope_key, inclusion_path(sequence - 1, signed.size)),
    }


async def _path(conn: Connection, scope_key: int, spans: list[Span]) -> list[str]:
    found = await proofs.nodes(conn, scope_key, needed(spans))
    try:
        return [hash_text(span_root(span, found)) for span in spans]
    except KeyError:
        raise _broken() from None


def _broken() -> ServiceUnavailable:
    return ServiceUnavailable(
        "The ledger lacks entries or nodes that the checkpoint covers; see verify_ledger.", retry_after=60
    )
