"""The typed client of a memory service, synchronous and asynchronous."""

from pamspec_client.blocking import Client
from pamspec_client.client import AsyncClient
from pamspec_client.errors import (
    AccessDenied,
    ChannelReplaced,
    ClientError,
    DuplicateOperation,
    EmbeddingSpaceMismatch,
    InternalError,
    InvalidObject,
    InvalidRequest,
    InvalidStateTransition,
    LegalHold,
    NoAnswer,
    ObjectDeleted,
    ObjectNotFound,
    ObjectRedacted,
    PamspecError,
    PolicyDenied,
    ProtocolError,
    RelationshipConflict,
    RetentionRestriction,
    ScopeNotFound,
    ServiceUnavailable,
    SnapshotNotFound,
    SubscriptionClosed,
    UnsupportedObjectType,
    VersionConflict,
)
from pamspec_client.follow import Follow
from pamspec_client.models import Envelope, Event, Outcome, Promotion
from pamspec_client.nats_channel import NatsLogin
from pamspec_client.transport import RetryPolicy
from pamspec_client.wire import RawJson

__all__ = [
    "AccessDenied",
    "AsyncClient",
    "ChannelReplaced",
    "Client",
    "ClientError",
    "DuplicateOperation",
    "EmbeddingSpaceMismatch",
    "Envelope",
    "Event",
    "Follow",
    "InternalError",
    "InvalidObject",
    "InvalidRequest",
    "InvalidStateTransition",
    "LegalHold",
    "NatsLogin",
    "NoAnswer",
    "ObjectDeleted",
    "ObjectNotFound",
    "ObjectRedacted",
    "Outcome",
    "PamspecError",
    "PolicyDenied",
    "Promotion",
    "ProtocolError",
    "RawJson",
    "RelationshipConflict",
    "RetentionRestriction",
    "RetryPolicy",
    "ScopeNotFound",
    "ServiceUnavailable",
    "SnapshotNotFound",
    "SubscriptionClosed",
    "UnsupportedObjectType",
    "VersionConflict",
]
