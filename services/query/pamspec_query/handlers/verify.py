"""verify_ledger: the chain of a scope and the digests of all that it covers, read once from end to end."""

from __future__ import annotations

from pamspec_common.calls import Answer
from pamspec_common.strict_json import dumps
from pamspec_common.verification import walk
from pamspec_query.documents import VerifyLedger
from pamspec_query.handlers.context import Context, refuse_grant
from pamspec_query.model.positions import headers


async def verify_ledger(context: Context, request: VerifyLedger) -> Answer:
    """Whether the ledger up to its present head, its versions and their parts are what was written.

    What was signed of it outside the store is compared too; an anchor that is missing is no problem. Bounded memory:
    two pages of entries at a time, however long the ledger is.
    """
    refuse_grant(request)
    async with context.moment(request) as (_, scope_key, _, _):
        pass
    anchors = await context.store.anchors.read(context.principal.tenant_id, request.scope_id)
    async with context.store.stream(scope_key, context.principal.tenant_id) as conn:
        found = await walk.verify(conn, scope_key, anchors)
    return Answer(200, dumps(found.document()), headers(found.trust.last_seq, found.trust.ledger_epoch))
