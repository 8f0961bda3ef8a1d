"""list_reads: how often objects were read by their ids, where a rule of the scope asks for it."""

from __future__ import annotations

from pamspec_common.calls import Answer
from pamspec_common.instants import wire
from pamspec_common.strict_json import dumps
from pamspec_query.documents import ListReads
from pamspec_query.handlers.context import Context, refuse_grant
from pamspec_query.model.positions import headers
from pamspec_query.queries.reads import reads


async def list_reads(context: Context, request: ListReads) -> Answer:
    """The noted reads of objects; what nobody read, or the actor may not see, is left out.

    They tell of no version and are no part of the ledger: those of the last moments are not noted yet.
    """
    refuse_grant(request)
    async with context.moment(request) as (conn, scope_key, head, rights):
        found = await reads(conn, scope_key, request.object_ids, context.seen(rights))
    shown = [{"object_id": one.object_id, "reads": one.reads, "read_at": wire(one.read_at)} for one in found]
    return Answer(200, dumps({"reads": shown}), headers(head.last_seq, head.ledger_epoch))
