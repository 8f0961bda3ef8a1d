"""The request documents of the operations, decoded and resolved once from their bytes.

What a request may carry is contracts/operations/*.request.json; whatever else it carries is invalid_request.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from pamspec_common import documents
from pamspec_common.documents import (
    MAX_PAGE,
    RETRY_FIELDS,
    STANDARD_TYPES,
    Actor,
    CommonFields,
    Pagination,
    Position,
    Sequence,
    WaitMs,
    is_extension_type,
)
from pamspec_common.errors import InvalidRequest
from pamspec_common.events import EventType
from pamspec_common.ids import Id
from pamspec_common.strict_json import canonical
from pamspec_subscription.model import ACKNOWLEDGED, BLOCKING, Delivery
from pamspec_subscription.predicates import compile_predicate
from pamspec_subscription.webhooks.targets import MAX_URL

MIN_KEEPALIVE_MS = 100
MAX_KEEPALIVE_MS = 24 * 3600 * 1000
DAY_S = 24 * 3600
MAX_OVERLAP_S = 7 * DAY_S


class Common(CommonFields, kw_only=True):
    """The fields that every operation may carry."""

    scope_id: Id | None = None
    actor: Actor | None = None


class Filter(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A filter as sent."""

    event_classes: Annotated[list[EventType], msgspec.Meta(min_length=1)] | None = None
    object_type: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    object_id: Id | None = None
    predicate: dict[str, Any] | None = None


class DeliveryPreferences(msgspec.Struct, forbid_unknown_fields=True):
    """Delivery preferences as sent."""

    batching_max_events: Annotated[int, msgspec.Meta(ge=1, le=MAX_PAGE)] = MAX_PAGE
    batching_max_wait_ms: WaitMs = 0
    keepalive_interval_ms: Annotated[int, msgspec.Meta(ge=0, le=MAX_KEEPALIVE_MS)] = 0
    backpressure_policy: Literal["close_on_lag", "block", "drop_oldest"] | None = None


class Webhook(msgspec.Struct, forbid_unknown_fields=True):
    """The endpoint of a webhook as sent."""

    url: Annotated[str, msgspec.Meta(max_length=MAX_URL)]


class Subscribe(Common, kw_only=True):
    """subscribe."""

    scope_id: Id
    filter: Filter = msgspec.field(default_factory=Filter)
    after_sequence: Position | None = None
    start_sequence: Position | None = None
    delivery: DeliveryPreferences = msgspec.field(default_factory=DeliveryPreferences)
    channel: Literal["poll", "sse", "websocket", "nats", "webhook"] = "poll"
    include_content: bool = False
    webhook: Webhook | None = None


class OnSubscription(Common, kw_only=True):
    """unsubscribe, and the base of what names a subscription."""

    subscription_id: Id


class Poll(OnSubscription, kw_only=True):
    """poll."""

    max: Annotated[int, msgspec.Meta(ge=1, le=MAX_PAGE)] = 100
    after_sequence: Position | None = None


class Ack(OnSubscription, kw_only=True):
    """ack."""

    sequence: Position | None = None
    sequences: Annotated[list[Sequence], msgspec.Meta(min_length=1, max_length=1000)] | None = None


class Reset(OnSubscription, kw_only=True):
    """reset."""

    after_sequence: Position


class Replay(OnSubscription, kw_only=True):
    """replay."""

    skip: bool = False
    sequence: Sequence | None = None


class ListDeliveries(OnSubscription, kw_only=True):
    """list_deliveries."""

    pagination: Pagination = msgspec.field(default_factory=lambda: Pagination(limit=50))


class RotateSecret(OnSubscription, kw_only=True):
    """rotate_webhook_secret."""

    overlap_s: Annotated[int, msgspec.Meta(ge=0, le=MAX_OVERLAP_S)] = DAY_S


class ListSubscriptions(Common, kw_only=True):
    """list_subscriptions."""

    subscription_id: Id | None = None
    pagination: Pagination = msgspec.field(default_factory=lambda: Pagination(limit=50))


T = TypeVar("T", bound=Common)


def decode(kind: type[T], document: Any) -> T:
    """The request of a parsed document; InvalidRequest names the member that is wrong."""
    request = documents.decode(kind, document, free=("predicate",))
    named = None if request.actor is None else request.actor.delegation_id
    if kind is not Subscribe and (request.delegation_id or named) is not None:
        raise InvalidRequest(
            "A subscription keeps the grant that it was opened under; leave delegation_id out here.",
            details={"field": "delegation_id"},
        )
    if None not in (named, request.delegation_id) and named != request.delegation_id:
        raise InvalidRequest(
            "delegation_id and actor.delegation_id differ; send one of them.", details={"field": "delegation_id"}
        )
    return request


def request_hash(document: Mapping[str, Any]) -> bytes:
    """What makes two requests with one key the same: the document without its key and its waiting (S16)."""
    kept = {name: value for name, value in document.items() if name not in RETRY_FIELDS}
    return hashlib.sha256(canonical(kept)).digest()


def check_subscribe(request: Subscribe) -> int | None:
    """The position asked for; InvalidRequest for what no subscription can be."""
    if (request.channel == "webhook") != (request.webhook is not None):
        raise InvalidRequest("webhook {url} belongs to channel webhook: send both or neither.")
    if request.after_sequence is not None and request.start_sequence is not None:
        raise InvalidRequest("after_sequence and start_sequence are two names of one position; send one of them.")
    _check_filter(request.filter)
    policy = request.delivery.backpressure_policy
    if policy == "drop_oldest":
        raise InvalidRequest("drop_oldest would lose events; use close_on_lag, or block over poll, nats or webhook.")
    if policy == "block" and request.channel not in ACKNOWLEDGED:
        raise InvalidRequest(
            "block waits for an acknowledgement, which poll, nats and webhook have; use close_on_lag here."
        )
    return request.start_sequence if request.after_sequence is None else request.after_sequence


def check_ack(request: Ack) -> None:
    """Raise InvalidRequest unless it acknowledges in exactly one of the two ways."""
    if (request.sequence is None) == (request.sequences is None):
        raise InvalidRequest("Send either sequence (everything up to it) or sequences (single ones).")


def _check_filter(wanted: Filter) -> None:
    kind = wanted.object_type
    if kind is not None and kind not in STANDARD_TYPES and not is_extension_type(kind):
        raise InvalidRequest("filter.object_type is neither a standard type nor an extension type's name.")
    if wanted.predicate is not None:
        compile_predicate(wanted.predicate)


def resolve_delivery(sent: DeliveryPreferences, channel: str, keepalive_ms: int) -> Delivery:
    """Delivery preferences with the service's defaults."""
    policy = sent.backpressure_policy or ("block" if channel in BLOCKING else "close_on_lag")
    keepalive = max(MIN_KEEPALIVE_MS, sent.keepalive_interval_ms or keepalive_ms)
    return Delivery(sent.batching_max_events, sent.batching_max_wait_ms, keepalive, policy)


def actor_ids(actor: Mapping[str, Any]) -> dict[str, Any]:
    """The id fields of an actor: what ledger entries and descriptors may hold of one."""
    names = ("actor_id", "actor_kind", "on_behalf_of_actor_id", "delegation_id")
    return {name: actor[name] for name in names if actor.get(name) is not None}
