"""forget: all that concerns a subject, first shown, then erased under one receipt (PAMSPEC P189, S21).

Invariant: what is executed is what was shown, to whom it was shown, and within the hour: the token of a preview binds
caller, subject, end, position, and every id of its set, which is found again at that position and compared. The write
service erases, item by item, under the lock of the scope.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec
import orjson

from pamspec_common.authorization.rights import Rights
from pamspec_common.authorization.sight import sight
from pamspec_common.calls import Answer, Call
from pamspec_common.errors import AccessDenied, InvalidRequest, ServiceUnavailable, VersionConflict, told_error
from pamspec_common.ids import mint
from pamspec_common.peers import Peer
from pamspec_common.postgres import Connection
from pamspec_common.principal import TokenSigner, service_principal
from pamspec_common.strict_json import dumps
from pamspec_query.documents import Expression, Forget, Query
from pamspec_query.handlers.context import Context, refuse_grant
from pamspec_query.model.plan import plan
from pamspec_query.model.positions import Head, headers
from pamspec_query.queries import forgetting, heads
from pamspec_query.queries.forgetting import Concern, Found
from pamspec_query.queries.search import fetch_page
from pamspec_query.queries.statements import At

MOST = 100_000
_SHOWN, _HELD_SHOWN, _PAGE = 20, 100, 1000
_TOKEN = re.compile(r"(?P<position>[0-9]{1,18})\.(?P<until>[0-9]{1,10})\.(?P<bound>[0-9a-f]{32})\.[0-9a-f]{64}")
_HOLDS_S = 3600
"""How long a preview holds."""


class Forgetting:
    """Answers forget; `write` does what was asked."""

    def __init__(self, write: Peer | None, signer: TokenSigner) -> None:
        self._write, self._signer = write, signer

    async def forget(self, context: Context, request: Forget) -> Answer:
        """A preview, or with its token the beginning of the work."""
        refuse_grant(request)
        _check_subject(request)
        shown = _shown(context, request)
        async with context.moment(request) as (conn, scope_key, head, rights):
            _check_rights(rights)
            if request.preview_token is not None:
                begun = await forgetting.begun(conn, scope_key, request.preview_token)
                if begun is not None:
                    return _begun(request, *begun, head)
            now = int((await heads.now(conn)).timestamp())
            if shown is not None and shown.until < now:
                raise VersionConflict(
                    "The preview is too old to act on; preview again, then decide.",
                    details={"reason": "preview_expired"},
                )
            position = _position(shown, head)
            concerns = await _concerns(context, conn, scope_key, request, position)
        until = now + _HOLDS_S if shown is None else shown.until
        token = _token(context, request, _Shown(position, until), concerns)
        if len(concerns) > MOST:
            raise InvalidRequest(
                f"More than {MOST} objects are concerned; forget them in parts, by a filter.",
                details={"field": "subject", "limit": MOST},
            )
        if request.preview_token is None:
            return _preview(request, concerns, token, position, head)
        if request.preview_token != token:
            raise VersionConflict(
                "What is concerned is no longer what the preview showed; preview again, then decide.",
                details={"reason": "set_changed"},
            )
        return await self._begin(context, request, concerns, token, position)

    async def _begin(
        self, context: Context, request: Forget, concerns: list[Concern], token: str, position: int
    ) -> Answer:
        if self._write is None:
            raise ServiceUnavailable("Nothing can be erased from here; try again.")
        items: list[dict[str, Any]] = [
            {"id": one.object_id, "kind": one.kind}
            | ({} if one.version_ids is None else {"version_ids": one.version_ids})
            for one in concerns
        ]
        document = {
            "scope_id": request.scope_id,
            "operation_id": request.operation_id or mint("op"),
            "actor": {"actor_id": context.actor_id, "actor_kind": context.actor["actor_kind"]},
            "policy_basis": request.policy_basis,
            "token": token,
            "ledger_sequence": position,
            "items": items,
        }
        signed = self._signer.sign(service_principal("query", context.principal.tenant_id))
        told = await self._write.call(Call("begin_forget", signed, dumps(document)))
        if told.status >= 400:
            raise told_error(told.status, told.body)
        begun = orjson.loads(told.body)
        return Answer(200, dumps({**begun, "scope_id": request.scope_id, "state": "running"}))


def _check_subject(request: Forget) -> None:
    subject = request.subject
    named = [name for name in ("actor_id", "source_ref", "filter") if getattr(subject, name) is not None]
    if len(named) != 1:
        raise InvalidRequest(
            "subject names exactly one of actor_id, source_ref and filter.", details={"field": "subject"}
        )


def _check_rights(rights: Rights) -> None:
    """A forget reaches everything that concerns the subject, so it takes the right to all of it."""
    for action in ("delete", "redact"):
        if not rights.decision(action).always:
            raise AccessDenied(
                "To forget takes the right to delete and redact everything in the scope; ask its administrator.",
                details={"action": action},
            )
    if not sight(rights, "read", "query").everything:
        raise AccessDenied(
            "A rule keeps part of the scope from you, which a forget would reach; ask its administrator.",
            details={"action": "read"},
        )


class _Shown(NamedTuple):
    """Of a preview its position, and the second of the store's clock up to which it holds."""

    position: int
    until: int


def _shown(context: Context, request: Forget) -> _Shown | None:
    """What the token says; None without one. A token of somebody else, or about something else, is refused."""
    if request.preview_token is None:
        return None
    found = _TOKEN.fullmatch(request.preview_token)
    if found is None:
        raise _foreign_token()
    shown = _Shown(int(found["position"]), int(found["until"]))
    if found["bound"] != _bound(context, request, shown):
        raise _foreign_token()
    return shown


def _bound(context: Context, request: Forget, shown: _Shown) -> str:
    """What a token binds beside its set: who asked, about what, and until when."""
    parts = (context.principal.tenant_id, request.scope_id, context.actor_id, request.subject, shown.until)
    return hashlib.sha256(msgspec.json.encode(parts, enc_hook=_number, order="sorted")).hexdigest()[:32]


def _number(value: object) -> msgspec.Raw:
    """A number as it was sent."""
    return msgspec.Raw(str(value).encode())


def _foreign_token() -> InvalidRequest:
    return InvalidRequest(
        "preview_token is none of a preview of yours about this subject; send both as they were.",
        details={"field": "preview_token"},
    )


def _position(shown: _Shown | None, head: Head) -> int:
    """The position of the preview; that of now for a new one."""
    if shown is None:
        return head.last_seq
    if shown.position > head.last_seq:
        raise _foreign_token()
    return shown.position


async def _concerns(
    context: Context, conn: Connection, scope_key: int, request: Forget, position: int
) -> list[Concern]:
    subject = request.subject
    if subject.actor_id is not None:
        found = await forgetting.by_actor(conn, scope_key, subject.actor_id, position)
    elif subject.source_ref is not None:
        found = await forgetting.by_source(conn, scope_key, subject.source_ref, position)
    else:
        found = await _by_filter(context, conn, scope_key, request, position)
    return await forgetting.described(conn, scope_key, found, position)


async def _by_filter(context: Context, conn: Connection, scope_key: int, request: Forget, position: int) -> Found:
    """All that a query with this filter shows at the position, whatever its states."""
    asked = request.subject.filter
    assert asked is not None
    expression = Expression(kind="structured", filters=asked.filters, where=asked.where, trust="all")
    wanted = replace(plan(Query(scope_id=request.scope_id, query=expression)), limit=_PAGE)
    found: Found = {}
    after: list[Any] | None = None
    while len(found) <= MOST:
        page = await fetch_page(conn, scope_key, wanted, At(position, False, after), context.store.settings.page_bytes)
        for item in page.items:
            metadata = orjson.loads(item.stored.metadata)
            found[metadata.get("object_id") or metadata["relationship_id"]] = None
        if not page.more:
            break
        after = page.items[-1].keys
    return found


def _token(context: Context, request: Forget, shown: _Shown, concerns: list[Concern]) -> str:
    """What a preview is known by; its last part is a digest of every id and version in the set."""
    digest = hashlib.sha256(str(shown.position).encode())
    for one in concerns:
        digest.update(b"\0" + " ".join((one.object_id, *(one.version_ids or ()))).encode())
    return f"{shown.position}.{shown.until}.{_bound(context, request, shown)}.{digest.hexdigest()}"


def _preview(request: Forget, concerns: list[Concern], token: str, position: int, head: Head) -> Answer:
    held = [one.object_id for one in concerns if one.held]
    whole = [one for one in concerns if one.version_ids is None]
    body = {
        "operation_id": request.operation_id or mint("op"),
        "scope_id": request.scope_id,
        "state": "preview",
        "preview_token": token,
        "ledger_sequence": position,
        "counts": {
            "objects": sum(one.kind == "o" for one in whole),
            "relationships": sum(one.kind == "r" for one in whole),
            "partly": len(concerns) - len(whole),
            "versions": sum(one.versions if one.version_ids is None else len(one.version_ids) for one in concerns),
            "held": len(held),
        },
        "examples": [one.object_id for one in concerns[:_SHOWN]],
        "held_ids": held[:_HELD_SHOWN],
    }
    return Answer(200, dumps(body), headers(position, head.ledger_epoch))


def _begun(request: Forget, erasure_id: str, total: int, head: Head) -> Answer:
    body = {
        "operation_id": request.operation_id or mint("op"),
        "scope_id": request.scope_id,
        "state": "running",
        "erasure_id": erasure_id,
        "total": total,
    }
    return Answer(200, dumps(body), headers(head.last_seq, head.ledger_epoch))
