"""subscribe, unsubscribe and list_subscriptions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from pamspec_common import ids
from pamspec_common.calls import HEADER_LEDGER_EPOCH, HEADER_REPLAYED, Answer
from pamspec_common.errors import DuplicateOperation, InvalidRequest, ScopeNotFound, ServiceUnavailable
from pamspec_common.policy import acting_actor
from pamspec_common.postgres import Connection
from pamspec_common.strict_json import canonical, dumps
from pamspec_subscription.describing import entry, opened_answer
from pamspec_subscription.documents import (
    ListSubscriptions,
    OnSubscription,
    Subscribe,
    actor_ids,
    check_subscribe,
    request_hash,
    resolve_delivery,
)
from pamspec_subscription.handlers.asked import Asked, check_scope
from pamspec_subscription.handlers.endpoints import Endpoints
from pamspec_subscription.lifecycle import Lifecycle, closed_record
from pamspec_subscription.model import Subscription, check_position
from pamspec_subscription.queries import ledger, subscriptions
from pamspec_subscription.queries.subscriptions import NewSubscription
from pamspec_subscription.quotas import SubscriptionQuotas
from pamspec_subscription.registry import Registry
from pamspec_subscription.rights import Access
from pamspec_subscription.store import Store
from pamspec_subscription.visibility import administers, managed
from pamspec_subscription.webhooks.targets import Targets


class Subscribing:
    """The operations that open, end and show subscriptions."""

    def __init__(
        self,
        store: Store,
        lifecycle: Lifecycle,
        registry: Registry,
        access: Access,
        quotas: SubscriptionQuotas,
        keepalive_ms: int,
        targets: Targets,
        endpoints: Endpoints,
        pushed: Mapping[str, Callable[[], None]],
    ) -> None:
        self._quotas = quotas
        self._store, self._lifecycle, self._registry = store, lifecycle, registry
        self._access, self._keepalive_ms, self._pushed = access, keepalive_ms, pushed
        self._targets, self._endpoints = targets, endpoints

    async def subscribe(self, asked: Asked[Subscribe]) -> Answer:
        """Open a durable subscription (PAMSPEC P125-P132, S5, S13); the same key answers the first outcome (S16)."""
        after = check_subscribe(asked.request)
        if asked.request.webhook is not None:
            self._targets.check(asked.request.webhook.url)
        actor, _ = acting_actor(asked.principal, asked.document.get("actor"), by_role=not _names_grant(asked.request))
        if asked.request.delegation_id is not None:
            actor = {**actor, "delegation_id": asked.request.delegation_id}
        hashed = request_hash(asked.document)
        async with self._store.session() as conn:
            found, replayed = await self._row(conn, asked, after, actor_ids(actor), hashed)
        if found.request_hash != hashed:
            raise DuplicateOperation
        if found.state == "opening":
            found = await self._lifecycle.finish_opening(found)
        secret = None
        if found.channel == "webhook" and found.state == "open":
            secret = await self._endpoints.first_secret(found)
        self._look(found)
        headers = {HEADER_LEDGER_EPOCH: str(found.ledger_epoch)}
        if replayed:
            headers[HEADER_REPLAYED] = "true"
        return Answer(201, dumps(opened_answer(found, secret)), headers)

    def _look(self, subscription: Subscription) -> None:
        """Tell whoever pushes its channel here that there is something to do."""
        if (look := self._pushed.get(subscription.channel)) is not None:
            look()

    async def _row(
        self, conn: Connection, asked: Asked[Subscribe], after: int | None, actor: dict[str, Any], hashed: bytes
    ) -> tuple[Subscription, bool]:
        """The row of this request, new or from an earlier attempt."""
        principal, request = asked.principal, asked.request
        scope_key = await ledger.resolve_scope(conn, principal.tenant_id, request.scope_id)
        if scope_key is None:
            raise ScopeNotFound
        head = await ledger.head(conn, scope_key, principal.tenant_id)
        await self._access.permitted(principal, actor, scope_key, head.epochs, conn)
        key = request.idempotency_key or asked.operation_id
        sought = (conn, scope_key, principal.actor_id, key, asked.operation_id)
        if (earlier := await subscriptions.find_request(*sought)) is not None:
            return earlier, True
        await self._access.check_filter(principal, actor, head.epochs, request, conn)
        check_position(after or 0, request.ledger_epoch, head, head.last_seq)
        new = NewSubscription(
            tenant_id=principal.tenant_id,
            subscription_id=ids.mint("sub"),
            scope_key=scope_key,
            scope_id=request.scope_id,
            principal=principal,
            actor=dumps(actor),
            delegation_id=actor.get("delegation_id"),
            channel=request.channel,
            filter=canonical(asked.document.get("filter", {})),
            delivery=dumps(asdict(resolve_delivery(request.delivery, request.channel, self._keepalive_ms))),
            include_content=request.include_content,
            evaluation_run_id=request.evaluation_run_id,
            operation_id=asked.operation_id,
            idempotency_key=key,
            request_hash=hashed,
            ledger_epoch=head.ledger_epoch,
            after_sequence=after,
            webhook_url=None if request.webhook is None else request.webhook.url,
        )
        inserted = await self._quotas.insert(conn, new)
        found = await subscriptions.find_request(*sought)
        if found is None:
            raise ServiceUnavailable("The subscription was refused or removed meanwhile; try again with the same key.")
        return found, not inserted

    async def unsubscribe(self, asked: Asked[OnSubscription]) -> Answer:
        """End a subscription for good (P130, P218); once it is closed, every call answers the same record."""
        async with self._store.session() as conn:
            found = await subscriptions.load(conn, asked.principal.tenant_id, asked.request.subscription_id)
        subscription = check_scope(asked.request, managed(found, asked.principal))
        if subscription.state != "closed":
            position = self._registry.position(subscription.key)
            subscription = await self._lifecycle.close(subscription, "unsubscribed", position)
            if subscription.channel == "webhook":
                self._look(subscription)
        document = {
            "subscription_id": subscription.subscription_id,
            "closed": closed_record(subscription),
            "operation_id": asked.operation_id,
        }
        return Answer(200, dumps(document), {HEADER_LEDGER_EPOCH: str(subscription.head.ledger_epoch)})

    async def list_subscriptions(self, asked: Asked[ListSubscriptions]) -> Answer:
        """The caller's subscriptions, for administrators those of the tenant, in order of their ids."""
        principal, request = asked.principal, asked.request
        async with self._store.session() as conn:
            if request.subscription_id is not None:
                one = managed(await subscriptions.load(conn, principal.tenant_id, request.subscription_id), principal)
                return _listed([check_scope(request, one)], None)
            scope_key = None
            if request.scope_id is not None:
                scope_key = await ledger.resolve_scope(conn, principal.tenant_id, request.scope_id)
                if scope_key is None:
                    raise ScopeNotFound
                head = await ledger.head(conn, scope_key, principal.tenant_id)
                await self._access.sees(principal, scope_key, head.epochs, conn)
            after, limit = request.pagination.cursor or "", request.pagination.limit
            if after and not ids.is_id(after):
                raise InvalidRequest("pagination.cursor is not one of ours; send next_cursor as it came.")
            owner = None if administers(principal) else principal.actor_id
            found = await subscriptions.list_page(conn, principal.tenant_id, owner, scope_key, after, limit + 1)
        more = found[limit - 1].subscription_id if len(found) > limit else None
        return _listed(found[:limit], more)


def _names_grant(request: Subscribe) -> bool:
    """Whether a grant is acted under: its delegate is nobody's to claim by a role of its own."""
    return request.delegation_id is not None or (request.actor is not None and request.actor.delegation_id is not None)


def _listed(found: list[Subscription], next_cursor: str | None) -> Answer:
    return Answer(200, dumps({"subscriptions": [entry(one) for one in found], "next_cursor": next_cursor}))
