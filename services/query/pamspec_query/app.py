"""The composition root of the query service: its operations, its pool, and what each call passes through.

Invariant: a call is answered only after its principal is verified, its body is strict JSON of the operation's shape,
and the actor that it names is the principal's own or may be asserted (S9); every refusal carries an operation_id.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from pamspec_common import strict_json
from pamspec_common.authorization.rights import Authorizer
from pamspec_common.calls import Answer, Call, Handler, refusal
from pamspec_common.denials import Denials
from pamspec_common.documents import own_operation_id
from pamspec_common.errors import PamspecError, ServiceUnavailable
from pamspec_common.peers import Peer, RemotePeer, closing, peer_session
from pamspec_common.policy import acting_actor
from pamspec_common.postgres import Pool, close_pool, connection, create_pool
from pamspec_common.principal import Principal, TokenSigner, TokenVerifier
from pamspec_common.service import Background, Part, Service
from pamspec_query import documents
from pamspec_query.documents import Common, decode
from pamspec_query.export_door import ExportDoor
from pamspec_query.finding import NO_FINDING, Finding, HttpReranker, PeerEmbedder
from pamspec_query.handlers.assemble import assemble
from pamspec_query.handlers.context import Context
from pamspec_query.handlers.delegated import DELEGATED, grant_named, under_grant
from pamspec_query.handlers.erasures import list_erasures
from pamspec_query.handlers.export import Exporting, export
from pamspec_query.handlers.forgetting import Forgetting
from pamspec_query.handlers.history import inspect_history
from pamspec_query.handlers.holds import list_holds
from pamspec_query.handlers.policies import list_policy_versions
from pamspec_query.handlers.proofs import get_checkpoint, prove_ledger
from pamspec_query.handlers.query import query
from pamspec_query.handlers.read import read
from pamspec_query.handlers.reads import list_reads
from pamspec_query.handlers.schemas import get_schema, list_schemas
from pamspec_query.handlers.scopes import get_scope, list_scopes
from pamspec_query.handlers.snapshots import compare_snapshots, list_snapshots
from pamspec_query.handlers.verify import verify_ledger
from pamspec_query.model.cursors import Cursors
from pamspec_query.queries.heads import is_migrated
from pamspec_query.settings import Settings
from pamspec_query.store import Store

T = TypeVar("T", bound=Common)
_READY_WAIT_MS = 1000


@dataclass
class _Query:
    """The running parts of the service."""

    settings: Settings
    verifier: TokenVerifier
    cursors: Cursors
    denials: Denials | None
    """None where there is no write service to tell of refusals."""
    signer: TokenSigner
    write: Peer | None = None
    finding: Finding = NO_FINDING
    background: Background = field(default_factory=Background)
    pool: Pool | None = None
    store: Store | None = field(default=None, repr=False)
    authorizer: Authorizer | None = field(default=None, repr=False)

    async def start(self) -> None:
        self.pool = await create_pool(self.settings, "query", content=True)
        self.store = Store(self.pool, self.settings)
        self.authorizer = Authorizer(self.store.rights)
        reads = self.store.reads
        self.background.spawn("reads", lambda: reads.run(self.background))
        if self.denials is not None:
            denials = self.denials
            self.background.spawn("denials", lambda: denials.run(self.background))

    async def stop(self) -> None:
        await self.background.stop(1.0)
        if self.denials is not None:
            await self.denials.close(self.settings.drain_s / 4)
        await self.finding.close()
        if self.store is not None:
            await self.store.close()
        await close_pool(self.pool, self.settings.drain_s)

    async def readiness(self) -> list[Part]:
        assert self.pool is not None
        try:
            async with connection(self.pool, _READY_WAIT_MS) as conn:
                migrated = await is_migrated(conn)
        except PamspecError as error:
            return [Part("store", False, {"error": error.message})]
        return [Part("store", True), Part("schema", migrated), *self.background.parts()]

    def operation(self, name: str, kind: type[T], handle: Callable[[Context, T], Awaitable[Answer]]) -> Handler:
        """The handler of an operation, from the bytes of its call to the bytes of its answer."""

        async def run(call: Call) -> Answer:
            document: Any = None
            principal: Principal | None = None
            try:
                principal = self.verifier.verify(call.principal)
                document = strict_json.parse(call.body)
                context, request = self._asked(principal, name, kind, document, call.answer_bytes)
                grant = grant_named(request) if name in DELEGATED else None
                if grant is None:
                    return await handle(context, request)
                return await under_grant(context, request, grant, handle, self.write, self.signer)
            except PamspecError as error:
                self._note(principal, name, document, error)
                return refusal(error, own_operation_id(document))

        return run

    async def begin_export(self, token: str, body: bytes) -> Exporting:
        """The export that a document asks for, ready to stream."""
        principal = self.verifier.verify(token)
        document = strict_json.parse(body)
        try:
            return await export(*self._asked(principal, "export", documents.Export, document))
        except PamspecError as error:
            self._note(principal, "export", document, error)
            raise

    def _note(self, principal: Principal | None, operation: str, document: Any, error: PamspecError) -> None:
        if principal is not None and self.denials is not None:
            self.denials.note(principal, operation, document, error)

    def _asked(
        self, principal: Principal, name: str, kind: type[T], document: Any, answer_bytes: int | None = None
    ) -> tuple[Context, T]:
        """A document of an operation, and what its handler works with."""
        request = decode(kind, document)
        asserted = None
        if request.actor is not None:
            said = msgspec.structs.asdict(request.actor)
            asserted = {name: value for name, value in said.items() if value is not None}
        actor, _ = acting_actor(principal, asserted, by_role=name not in DELEGATED or grant_named(request) is None)
        if self.store is None or self.authorizer is None:
            raise ServiceUnavailable("The service is starting; try again.")
        around = (self.store, self.cursors, self.authorizer)
        finding = self.finding
        return Context(*around, principal, actor, name, document, answer_bytes, finding=finding), request


def build_remote(settings: Settings) -> Service:
    """The same in a process of its own, with the write service behind its URL; to be called in a running loop."""
    session = peer_session(settings.tls())
    write = RemotePeer(session, settings.write_url, "write")
    return closing(build(settings, write, RemotePeer(session, settings.indexing_url, "indexing")), session)


def build(settings: Settings, write: Peer | None = None, indexing: Peer | None = None) -> Service:
    """The query service: read, query, inspect_history, get_scope, list_scopes, verify_ledger, proofs and export.

    `write` is told of refusals and of uses of grants, `indexing` makes vectors of texts. ValueError without token keys:
    it could neither verify a principal nor sign a cursor.
    """
    keys = settings.token_key_bytes()
    if not keys:
        raise ValueError("PAMSPEC_TOKEN_KEYS names no key; the query service verifies principals and signs cursors")
    denials = None
    if write is not None:
        denials = Denials("query", TokenSigner.of(settings), write.call, settings.denial_window_s)
    signer = TokenSigner.of(settings)
    finding = Finding(
        None if indexing is None else PeerEmbedder(indexing, TokenSigner.of(settings, "indexing")),
        None if settings.rerank_url is None else HttpReranker.of(settings),
    )
    parts = _Query(
        settings, TokenVerifier(keys, "query"), Cursors(list(keys.values())), denials, signer, write, finding
    )
    operations = {
        "read": parts.operation("read", documents.Read, read),
        "query": parts.operation("query", documents.Query, query),
        "inspect_history": parts.operation("inspect_history", documents.InspectHistory, inspect_history),
        "list_snapshots": parts.operation("list_snapshots", documents.ListSnapshots, list_snapshots),
        # A context is a query in another form: by the same right, under the same grants, and told of as one.
        "assemble": parts.operation("query", documents.Assemble, assemble),
        "compare_snapshots": parts.operation("compare_snapshots", documents.CompareSnapshots, compare_snapshots),
        "get_scope": parts.operation("get_scope", documents.GetScope, get_scope),
        "list_policy_versions": parts.operation(
            "list_policy_versions", documents.ListPolicyVersions, list_policy_versions
        ),
        "list_holds": parts.operation("list_holds", documents.ListHolds, list_holds),
        "list_reads": parts.operation("list_reads", documents.ListReads, list_reads),
        "list_erasures": parts.operation("list_erasures", documents.ListErasures, list_erasures),
        "forget": parts.operation("forget", documents.Forget, Forgetting(write, signer).forget),
        "get_schema": parts.operation("get_schema", documents.GetSchema, get_schema),
        "list_schemas": parts.operation("list_schemas", documents.ListSchemas, list_schemas),
        "list_scopes": parts.operation("list_scopes", documents.ListScopes, list_scopes),
        "verify_ledger": parts.operation("verify_ledger", documents.VerifyLedger, verify_ledger),
        "get_checkpoint": parts.operation("get_checkpoint", documents.GetCheckpoint, get_checkpoint),
        "prove_ledger": parts.operation("prove_ledger", documents.ProveLedger, prove_ledger),
    }
    door = ExportDoor(parts.begin_export, settings.exports_at_once)
    return Service("query", operations, parts.readiness, parts.start, parts.stop, app=door)
