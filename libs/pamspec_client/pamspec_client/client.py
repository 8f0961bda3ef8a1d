"""The asynchronous client: one method per operation of the service, typed by its contract."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, Unpack

from pamspec_client import requests as r
from pamspec_client.bus import Bus, NatsLogin
from pamspec_client.bus_transport import BusTransport, is_bus
from pamspec_client.documents import FollowChannel
from pamspec_client.errors import ClientError, InvalidRequest, ObjectNotFound
from pamspec_client.follow import Follow
from pamspec_client.models import (
    BatchOutcome,
    Checked,
    Comparison,
    Context,
    CursorMoved,
    DelegationPage,
    DeliveryPage,
    Envelope,
    Erasure,
    ErasurePage,
    Event,
    Explanation,
    Forgotten,
    Granted,
    HistoryPage,
    HoldPage,
    HoldPlaced,
    Imported,
    IndexJobStarted,
    IndexList,
    Operation,
    Outcome,
    ParkedPage,
    PolicyPage,
    PolicySet,
    PollPage,
    ProjectionAnswer,
    Promotion,
    QueryItem,
    QueryPage,
    ReadAnswer,
    RegisteredSchema,
    Revoked,
    SchemaPage,
    SchemaRegistered,
    ScopeAnswer,
    ScopeDocument,
    ScopePage,
    Sealed,
    SecretRotated,
    Snapshot,
    SnapshotPage,
    Subscribed,
    SubscriptionEntry,
    SubscriptionPage,
    Unsubscribed,
)
from pamspec_client.models.document import D
from pamspec_client.positions import REPLAYED, Positions
from pamspec_client.proofs import CheckpointAnswer, Proof, VerifiedLedger
from pamspec_client.transfer import File, Progress, exported, imported
from pamspec_client.transport import Names, Reply, RetryPolicy, Transport
from pamspec_client.wire import encode, join, uuid7

DEFAULT_URL = "http://127.0.0.1:8080"
SESSION_WAIT_MS = 5000
PAGE = 200

_WRITES = frozenset(
    {
        "create",
        "update",
        "transition",
        "redact",
        "delete",
        "relate",
        "promote",
        "batch",
        "seal_snapshot",
        "create_scope",
        "update_scope",
        "register_schema",
        "register_embedding_space",
        "bind_role",
        "unbind_role",
        "set_access_rules",
        "create_key",
        "rotate_key",
        "revoke_key",
        "delete_scope",
        "forget",
        "create_tenant",
        "suspend_tenant",
        "resume_tenant",
        "offboard_tenant",
        "grant_delegation",
        "revoke_delegation",
        "check_delegation",
        "place_hold",
        "release_hold",
        "subscribe",
        "unsubscribe",
    }
)
_FLOORED = frozenset({"read", "query", "inspect_history"})


class AsyncClient:
    """A client of one gateway as one principal.

    `base_url` and `api_key` default to PAMSPEC_URL and PAMSPEC_API_KEY. An address `nats://` goes over the bus, with
    the same methods except export and import. With `session=True` reads never go back behind what this client wrote or
    read before (monotonic reads); after a restore of the service the first read of a scope is
    refused with `position_outdated`. Every write carries an operation_id and an idempotency key,
    minted once per call when they are not given; a retry after a lost answer sends both again and is answered with the
    first outcome, so nothing is carried out twice. `version_conflict` is never retried.

    Use it as `async with AsyncClient() as client:` or call `aclose` at the end.
    """

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        session: bool = False,
        retry: RetryPolicy | None = None,
        timeout_s: float = 30.0,
        nats: NatsLogin | None = None,
    ) -> None:
        url = base_url or os.environ.get("PAMSPEC_URL") or DEFAULT_URL
        key = api_key or os.environ.get("PAMSPEC_API_KEY")
        self._transport: Transport
        self.bus: Bus | None = None
        """The connection to the bus, where the client has one."""
        if is_bus(url):
            self.bus = Bus(nats or NatsLogin(url), key)
            self._transport = BusTransport(self.bus, retry or RetryPolicy(), timeout_s)
        else:
            self.bus = Bus(nats, key) if nats is not None else None
            self._transport = Transport(url, key, retry or RetryPolicy(), timeout_s)
        self._own_channel: FollowChannel = "nats" if is_bus(url) else "poll"
        self._positions = Positions()
        self._session = session

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections; followers end with the loss of theirs."""
        await self._transport.close()
        if self.bus is not None:
            await self.bus.close()

    @property
    def base_url(self) -> str:
        """The address of the gateway."""
        return self._transport.base_url

    @property
    def transport(self) -> Transport:
        """The connections that a follower shares."""
        return self._transport

    async def call(self, operation: str, document: Mapping[str, Any]) -> Reply:
        """Any operation by its name; the answer as it comes. The methods below are typed forms of this one."""
        request = dict(document)
        if operation in _WRITES or (operation == "check_delegation" and request.get("consume", True)):
            _name(request)
        scope_id = request.get("scope_id")
        floored = self._add_floor(operation, request)
        if "limit" in request or "cursor" in request:
            limit, cursor = request.pop("limit", None), request.pop("cursor", None)
            request["pagination"] = {"limit": limit or PAGE} | ({"cursor": cursor} if cursor else {})
        wait_s = (request.get("wait_ms") or 0) / 1000
        names = Names(operation, request.get("operation_id"), request.get("idempotency_key"))
        try:
            reply = await self._transport.post(f"/v1/{operation}", encode(request), names, wait_s)
        except InvalidRequest as error:
            if floored is not None and error.reason == "position_outdated":
                # A restore ended the epoch of what this session saw: the caller learns of it once, then goes on anew.
                self._positions.forget(floored)
            raise
        if scope_id is not None:
            self._positions.note(scope_id, reply)
        return reply

    def _add_floor(self, operation: str, request: dict[str, Any]) -> str | None:
        """Have a session's read say what it must not fall behind; the scope, where it does."""
        scope_id = request.get("scope_id")
        if not self._session or operation not in _FLOORED or not isinstance(scope_id, str):
            return None
        floor = self._positions.floor(scope_id)
        if floor is None or "min_sequence" in request or "ledger_epoch" in request:
            return None
        request["ledger_epoch"], request["min_sequence"] = floor
        request.setdefault("wait_ms", SESSION_WAIT_MS)
        return scope_id

    async def _typed(self, model: type[D], operation: str, request: Mapping[str, Any]) -> D:
        reply = await self.call(operation, request)
        answer = model.of(reply.body)
        answer.__dict__["replayed"] = reply.headers.get(REPLAYED) == "true"
        return answer

    async def create(self, **request: Unpack[r.CreateRequest]) -> Outcome:
        """Write the first version of an object (PAMSPEC P104)."""
        return await self._typed(Outcome, "create", request)

    async def update(self, **request: Unpack[r.UpdateRequest]) -> Outcome:
        """Write the next version; VersionConflict when `expected_version_id` is no longer current (PAMSPEC P112)."""
        return await self._typed(Outcome, "update", request)

    async def transition(self, **request: Unpack[r.TransitionRequest]) -> Outcome:
        """Move one state dimension of an object or a relationship (PAMSPEC P115)."""
        return await self._typed(Outcome, "transition", request)

    async def redact(self, **request: Unpack[r.RedactRequest]) -> Outcome:
        """Erase content, whole or by JSON Pointers, with every past version, or chosen past versions (PAMSPEC P136)."""
        return await self._typed(Outcome, "redact", request)

    async def delete(self, **request: Unpack[r.DeleteRequest]) -> Outcome:
        """Write the final tombstone and erase the content (PAMSPEC P142)."""
        return await self._typed(Outcome, "delete", request)

    async def relate(self, **request: Unpack[r.RelateRequest]) -> Outcome:
        """Join two objects; with `relationship_id` and `expected_version_id` change how they are joined (PAMSPEC P118).

        RelationshipConflict when an active relationship of that type joins them already.
        """
        return await self._typed(Outcome, "relate", request)

    async def promote(self, **request: Unpack[r.PromoteRequest]) -> Promotion:
        """Make an object of working memory, which it supersedes, in one commit (PAMSPEC P137)."""
        return await self._typed(Promotion, "promote", request)

    async def batch(self, **request: Unpack[r.BatchRequest]) -> BatchOutcome:
        """Several writes in one request; errors of single items are in `results`, not raised."""
        items = join([encode(item) for item in request["items"]])
        return await self._typed(BatchOutcome, "batch", {**request, "items": items})

    async def read(self, **request: Unpack[r.ReadRequest]) -> Envelope:
        """One version of an object or a relationship (PAMSPEC P109)."""
        return Envelope.of((await self._typed(ReadAnswer, "read", request)).envelope_raw)

    async def read_fields(self, fields: list[str], **request: Unpack[r.ReadRequest]) -> dict[str, Any]:
        """Only these members of one version's envelope; members that it lacks are left out."""
        return (await self._typed(ProjectionAnswer, "read", {**request, "fields": fields})).projection

    async def query(self, **request: Unpack[r.QueryRequest]) -> QueryPage:
        """One page of a query; without filters or trust only what is trusted (PAMSPEC P157)."""
        return await self._typed(QueryPage, "query", request)

    async def query_pages(self, **request: Unpack[r.QueryPages]) -> AsyncIterator[QueryPage]:
        """All pages of a query, one after the other."""
        fields: dict[str, Any] = {**request}
        fields["limit"], cursor = fields.pop("page_size", PAGE), None
        while True:
            page = await self._typed(QueryPage, "query", {**fields, "cursor": cursor})
            yield page
            if not (cursor := page.next_cursor):
                return

    async def query_items(self, **request: Unpack[r.QueryPages]) -> AsyncIterator[QueryItem]:
        """All items of a query."""
        async for page in self.query_pages(**request):
            for item in page.items:
                yield item

    async def inspect_history(self, **request: Unpack[r.HistoryRequest]) -> HistoryPage:
        """One page of versions and ledger entries (PAMSPEC P124)."""
        return await self._typed(HistoryPage, "inspect_history", request)

    async def history_pages(self, **request: Unpack[r.HistoryPages]) -> AsyncIterator[HistoryPage]:
        """All pages of history, one after the other."""
        fields: dict[str, Any] = {**request}
        fields["limit"], cursor = fields.pop("page_size", PAGE), None
        while True:
            page = await self._typed(HistoryPage, "inspect_history", {**fields, "cursor": cursor})
            yield page
            if not (cursor := page.next_cursor):
                return

    async def get_operation(self, **request: Unpack[r.GetOperationRequest]) -> Operation:
        """What became of a write whose answer was lost (contract K8); `unknown` is final."""
        return await self._typed(Operation, "get_operation", request)

    async def create_scope(self, **request: Unpack[r.CreateScopeRequest]) -> ScopeDocument:
        """Make a scope; the same document again answers the same."""
        return _scope(await self._typed(ScopeAnswer, "create_scope", request))

    async def get_scope(self, **request: Unpack[r.GetScopeRequest]) -> ScopeDocument:
        """One scope; ScopeNotFound when the actor can't see it."""
        return _scope(await self._typed(ScopeAnswer, "get_scope", request))

    async def update_scope(self, **request: Unpack[r.UpdateScopeRequest]) -> PolicySet:
        """Replace a scope's policy; VersionConflict when `expected_policy_version` is no longer current."""
        return await self._typed(PolicySet, "update_scope", request)

    async def list_policy_versions(self, **request: Unpack[r.ScopedPageRequest]) -> PolicyPage:
        """One page of the policies that a scope has had, the newest first."""
        return await self._typed(PolicyPage, "list_policy_versions", request)

    async def place_hold(self, **request: Unpack[r.PlaceHoldRequest]) -> HoldPlaced:
        """Put a scope, or a type of it, under legal hold: from now on nothing of it can be removed."""
        return await self._typed(HoldPlaced, "place_hold", request)

    async def release_hold(self, **request: Unpack[r.ReleaseHoldRequest]) -> HoldPlaced:
        """End a legal hold; its objects go back to their retention before, one by one."""
        return await self._typed(HoldPlaced, "release_hold", request)

    async def list_erasures(self, **request: Unpack[r.ListErasuresRequest]) -> ErasurePage:
        """One page of a scope's receipts of erasures, the newest first, or one by its id."""
        return await self._typed(ErasurePage, "list_erasures", request)

    async def get_erasure(self, erasure_id: str) -> Erasure:
        """One receipt; ObjectNotFound when there is none."""
        page = await self.list_erasures(erasure_id=erasure_id)
        return page.erasures[0]

    async def forget(self, **request: Unpack[r.ForgetRequest]) -> Forgotten:
        """What concerns a subject; with the token of that preview, its erasure begins."""
        return await self._typed(Forgotten, "forget", request)

    async def list_holds(self, **request: Unpack[r.ListHoldsRequest]) -> HoldPage:
        """One page of a scope's legal holds, the oldest first."""
        return await self._typed(HoldPage, "list_holds", request)

    async def register_schema(self, **request: Unpack[r.RegisterSchemaRequest]) -> SchemaRegistered:
        """Register a JSON Schema that content with this schema_id has to keep; for good."""
        return await self._typed(SchemaRegistered, "register_schema", request)

    async def get_schema(self, **request: Unpack[r.GetSchemaRequest]) -> RegisteredSchema:
        """A registered schema with its document."""
        return await self._typed(RegisteredSchema, "get_schema", request)

    async def list_schemas(self, **request: Unpack[r.ScopedPageRequest]) -> SchemaPage:
        """One page of a scope's registered schemas, without their documents."""
        return await self._typed(SchemaPage, "list_schemas", request)

    async def seal_snapshot(self, **request: Unpack[r.SealSnapshotRequest]) -> Sealed:
        """Seal a view of a scope at its present position, for reads, queries and histories with `snapshot_id`."""
        return await self._typed(Sealed, "seal_snapshot", request)

    async def list_snapshots(self, **request: Unpack[r.ListSnapshotsRequest]) -> SnapshotPage:
        """One page of a scope's snapshots, or one by its id."""
        return await self._typed(SnapshotPage, "list_snapshots", request)

    async def get_snapshot(self, snapshot_id: str) -> Snapshot:
        """One snapshot's descriptor; SnapshotNotFound when there is none."""
        page = await self.list_snapshots(snapshot_id=snapshot_id)
        return page.snapshots[0].snapshot

    async def assemble(self, **request: Unpack[r.AssembleRequest]) -> Context:
        """A context for a model: what a query finds, valid, without repetitions, with conflicts, within a budget."""
        return await self._typed(Context, "assemble", request)

    async def compare_snapshots(self, **request: Unpack[r.CompareSnapshotsRequest]) -> Comparison:
        """One page of what two snapshots of a scope show differently (PAMSPEC P231)."""
        return await self._typed(Comparison, "compare_snapshots", request)

    async def list_scopes(self, **request: Unpack[r.PageRequest]) -> ScopePage:
        """One page of the scopes that the actor can see."""
        return await self._typed(ScopePage, "list_scopes", request)

    async def get_checkpoint(self, **request: Unpack[r.LedgerRequest]) -> CheckpointAnswer:
        """The newest signed checkpoint of a scope's ledger."""
        return await self._typed(CheckpointAnswer, "get_checkpoint", request)

    async def prove_ledger(self, **request: Unpack[r.ProofRequest]) -> Proof:
        """Proofs that an entry, or an earlier checkpoint, is part of the signed ledger; check them with `Proof`."""
        fields: dict[str, Any] = {**request}
        fields["from"] = fields.pop("from_size", None)
        return await self._typed(Proof, "prove_ledger", fields)

    async def verify_ledger(self, **request: Unpack[r.LedgerRequest]) -> VerifiedLedger:
        """Have the service read a scope's whole ledger and check it."""
        return await self._typed(VerifiedLedger, "verify_ledger", request)

    async def subscribe(self, **request: Unpack[r.SubscribeRequest]) -> Subscribed:
        """Open a durable subscription (PAMSPEC P125); `follow` it."""
        return await self._typed(Subscribed, "subscribe", request)

    async def unsubscribe(self, **request: Unpack[r.UnsubscribeRequest]) -> Unsubscribed:
        """End a subscription for good."""
        return await self._typed(Unsubscribed, "unsubscribe", request)

    async def poll(self, **request: Unpack[r.PollRequest]) -> PollPage:
        """Fetch events, waiting for the first up to wait_ms.

        Pass `after_sequence`, the last page's `next_after_sequence`: that acknowledges the page and delivers at least
        once. Without it the service goes on after its last answer, and an answer that is lost is not repeated.
        """
        return await self._typed(PollPage, "poll", request)

    async def ack(self, **request: Unpack[r.AckRequest]) -> CursorMoved:
        """Acknowledge events of a subscription."""
        return await self._typed(CursorMoved, "ack", request)

    async def reset(self, **request: Unpack[r.ResetRequest]) -> CursorMoved:
        """Put the cursor of a subscription anywhere."""
        return await self._typed(CursorMoved, "reset", request)

    async def list_parked(self, **request: Unpack[r.ListParkedRequest]) -> ParkedPage:
        """The event at which a webhook stands still, if it does."""
        return await self._typed(ParkedPage, "list_parked", request)

    async def replay(self, **request: Unpack[r.ReplayRequest]) -> CursorMoved:
        """Try a failing webhook at once, or pass over its parked event."""
        return await self._typed(CursorMoved, "replay", request)

    async def list_deliveries(self, **request: Unpack[r.ListDeliveriesRequest]) -> DeliveryPage:
        """One page of the attempts to deliver a webhook, the newest first."""
        return await self._typed(DeliveryPage, "list_deliveries", request)

    async def rotate_webhook_secret(self, **request: Unpack[r.RotateWebhookSecretRequest]) -> SecretRotated:
        """Make a new secret for a webhook; it is shown here and never again."""
        return await self._typed(SecretRotated, "rotate_webhook_secret", request)

    async def list_subscriptions(self, **request: Unpack[r.ListSubscriptionsRequest]) -> SubscriptionPage:
        """One page of subscriptions with their cursors."""
        return await self._typed(SubscriptionPage, "list_subscriptions", request)

    async def get_subscription(self, subscription_id: str) -> SubscriptionEntry:
        """One subscription with its cursor; ObjectNotFound when there is none."""
        page = await self.list_subscriptions(subscription_id=subscription_id)
        for entry in page.subscriptions:
            return entry
        raise ObjectNotFound("No such subscription is visible to this actor; check subscription_id.", status=404)

    async def grant_delegation(self, **request: Unpack[r.GrantDelegationRequest]) -> Granted:
        """Let another actor carry out operations, for a time (PAMSPEC P207)."""
        return await self._typed(Granted, "grant_delegation", request)

    async def revoke_delegation(self, **request: Unpack[r.RevokeDelegationRequest]) -> Revoked:
        """End a grant, and what was passed on under it, at once (PAMSPEC P212)."""
        return await self._typed(Revoked, "revoke_delegation", request)

    async def check_delegation(self, **request: Unpack[r.CheckDelegationRequest]) -> Checked:
        """Whether an operation may be carried out under a grant now; a use of it unless `consume=False` (PAMSPEC P208).

        AccessDenied, with `details["reason"]`, when it may not.
        """
        return await self._typed(Checked, "check_delegation", request)

    async def explain_delegation(self, **request: Unpack[r.ExplainDelegationRequest]) -> Explanation:
        """By which rules a use of a grant would be permitted or refused now."""
        return await self._typed(Explanation, "explain_delegation", request)

    async def list_delegations(self, **request: Unpack[r.ListDelegationsRequest]) -> DelegationPage:
        """One page of the grants that the actor gave or has, or of those that it may audit."""
        return await self._typed(DelegationPage, "list_delegations", request)

    async def list_indexes(self, **request: Unpack[r.ListIndexesRequest]) -> IndexList:
        """The derived indexes of a scope, and how far behind its ledger each is."""
        return await self._typed(IndexList, "list_indexes", request)

    async def rebuild_index(self, **request: Unpack[r.IndexRequest]) -> IndexJobStarted:
        """Write an index of a scope anew while queries go on (PAMSPEC P193)."""
        return await self._typed(IndexJobStarted, "rebuild_index", request)

    async def drop_index(self, **request: Unpack[r.IndexRequest]) -> IndexJobStarted:
        """Remove an index of a scope until it is rebuilt; the memory itself stays (PAMSPEC P19)."""
        return await self._typed(IndexJobStarted, "drop_index", request)

    async def verify_index(self, **request: Unpack[r.IndexRequest]) -> IndexJobStarted:
        """Compare an index of a scope with the canonical store; nothing is changed."""
        return await self._typed(IndexJobStarted, "verify_index", request)

    async def export(self, **request: Unpack[r.ExportRequest]) -> AsyncIterator[bytes]:
        """A scope as lines of JSON, in pieces of any size (PAMSPEC P15); write them to a file as they come.

        Raises when the export does not come to its last line: what came is no whole file then.
        """
        async for piece in exported(self._transport, encode({**request})):
            yield piece

    async def import_(
        self, file: File, *, progress: Progress | None = None, **request: Unpack[r.ImportRequest]
    ) -> Imported:
        """Take an export into a new or empty scope, all of it or nothing (PAMSPEC P15).

        `file` is a path, bytes or pieces of bytes; from a path or bytes it is sent again after a lost answer, and the
        service takes it once. `progress` is told how many bytes were sent. InvalidRequest names the line of a bad file.
        """
        document: dict[str, Any] = {name: value for name, value in request.items() if value is not None}
        _name(document)
        reply = await imported(self._transport, document, file, progress)
        answer = Imported.of(reply.body)
        answer.__dict__["replayed"] = reply.headers.get(REPLAYED) == "true"
        return answer

    async def events(self, **request: Unpack[r.SubscribeRequest]) -> AsyncGenerator[Event, None]:
        """The events of a scope from now on, or after `after_sequence`, for as long as somebody iterates.

        Opens a subscription, follows it as `follow` does, and ends it: over NATS where the client calls over it, else
        by polls. Who leaves the loop early and not the program closes it: `async with aclosing(client.events(...))`.
        """
        channel: FollowChannel = self._own_channel
        request["channel"] = channel
        opened = await self.subscribe(**request)
        try:
            async with self.follow(opened.subscription_id, channel=channel) as events:
                async for event in events:
                    yield event
        finally:
            with suppress(ClientError):
                await self.unsubscribe(subscription_id=opened.subscription_id)

    def follow(
        self,
        subscription_id: str,
        *,
        channel: FollowChannel | None = None,
        after_sequence: int | None = None,
        max_events: int = 500,
        window: int = 10_000,
        ack_every_s: float = 1.0,
        resume_outdated: bool = False,
    ) -> Follow:
        """The events of a subscription, for as long as it lives; `async for event in client.follow(...)`.

        Reconnects by itself and goes on after the last event that the caller finished with: an event counts as
        finished when the next one is asked for. What is finished is acknowledged every `ack_every_s`, and in any case
        at the end; over poll with the next page. Delivered at least once by the service, each
        event comes out once: copies are dropped by event_id within the last `window` events. Starts at the durable
        cursor, or after `after_sequence`. Raises SubscriptionClosed at the end of the subscription, ChannelReplaced
        when another consumer takes it over, and InvalidRequest when the position belongs to an older ledger epoch,
        unless `resume_outdated` says to go on at the position that the service names. Without `channel` over NATS where
        the client calls over it, else by polls.
        """
        return Follow(
            self,
            subscription_id,
            channel=channel or self._own_channel,
            after_sequence=after_sequence,
            max_events=max_events,
            window=window,
            ack_every_s=ack_every_s,
            resume_outdated=resume_outdated,
        )


def connect(
    url: str | None = None,
    api_key: str | None = None,
    *,
    session: bool = False,
    retry: RetryPolicy | None = None,
    timeout_s: float = 30.0,
) -> AsyncClient:
    """A client over whichever way the address means: `nats://` and `tls://` the bus, `http://` and `https://` HTTP.

    `async with connect("nats://bus.example:4222", api_key=...) as memory:` has every method of the client.
    """
    return AsyncClient(url, api_key, session=session, retry=retry, timeout_s=timeout_s)


def _name(request: dict[str, Any]) -> None:
    """Mint what a write is named by; an operation_id of the caller alone acts as the key."""
    if request.get("operation_id") is None:
        request["operation_id"] = f"op:{uuid7()}"
        if request.get("idempotency_key") is None:
            request["idempotency_key"] = uuid7()


def _scope(answer: ScopeAnswer) -> ScopeDocument:
    scope = ScopeDocument.of(answer.scope_raw)
    scope.policy_version = answer.policy_version
    scope.__dict__["replayed"] = answer.__dict__.get("replayed", False)
    return scope
