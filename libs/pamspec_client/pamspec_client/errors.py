"""What a call can raise: one class per error code of the service, and the failures of the way to it.

Invariant: every refusal of the service is a `PamspecError` of the class of its code (PAMSPEC P171) and carries the
members of the error envelope; a call that got no answer at all raises `NoAnswer`. No message holds memory content.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar


class ClientError(Exception):
    """The root of everything that this package raises on purpose."""


class PamspecError(ClientError):
    """A refusal of the service."""

    code: ClassVar[str] = ""

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        retryable: bool = False,
        operation_id: str = "",
        details: Mapping[str, Any] | None = None,
        policy_rule_id: str | None = None,
        correlation_id: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.retryable = retryable
        self.operation_id = operation_id
        self.details: Mapping[str, Any] = dict(details or {})
        self.policy_rule_id = policy_rule_id
        self.correlation_id = correlation_id
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        return f"{self.code}: {self.message}" if self.code else self.message

    @property
    def reason(self) -> str | None:
        """`details.reason`, where the service gave one."""
        found = self.details.get("reason")
        return found if isinstance(found, str) else None


class InvalidRequest(PamspecError):
    """The request is not well formed, breaks a limit, or names a position that cannot be used."""

    code = "invalid_request"


class InvalidObject(PamspecError):
    """What would be stored breaks a rule of its type."""

    code = "invalid_object"


class UnsupportedObjectType(PamspecError):
    """The scope does not accept objects of that type."""

    code = "unsupported_object_type"


class ObjectNotFound(PamspecError):
    """No such object is visible in this scope."""

    code = "object_not_found"


class ScopeNotFound(PamspecError):
    """No such scope is visible."""

    code = "scope_not_found"


class SnapshotNotFound(PamspecError):
    """No such snapshot is visible."""

    code = "snapshot_not_found"


class AccessDenied(PamspecError):
    """The actor may not do that here, or the key is not valid (status 401)."""

    code = "access_denied"


class PolicyDenied(PamspecError):
    """A policy rule forbids it."""

    code = "policy_denied"


class VersionConflict(PamspecError):
    """The object has changed: read it again, decide again, send its current version. Never retried by the client."""

    code = "version_conflict"

    @property
    def current_version_id(self) -> str | None:
        """The version that is current, when the actor may see it."""
        return self.details.get("current_version_id")


class DuplicateOperation(PamspecError):
    """The key was used for another request."""

    code = "duplicate_operation"


class InvalidStateTransition(PamspecError):
    """That state cannot follow the current one."""

    code = "invalid_state_transition"


class RelationshipConflict(PamspecError):
    """An active relationship of that type already joins these objects."""

    code = "relationship_conflict"


class RetentionRestriction(PamspecError):
    """The retention state of the object forbids it."""

    code = "retention_restriction"


class ObjectDeleted(PamspecError):
    """The object was deleted."""

    code = "object_deleted"


class ObjectRedacted(PamspecError):
    """The object was redacted."""

    code = "object_redacted"


class EmbeddingSpaceMismatch(PamspecError):
    """Vectors of different embedding spaces cannot be compared."""

    code = "embedding_space_mismatch"


class LegalHold(PamspecError):
    """A legal hold covers the object."""

    code = "legal_hold"


class ServiceUnavailable(PamspecError):
    """The service cannot answer now; the client has already tried again as often as its retry policy says."""

    code = "service_unavailable"


class InternalError(PamspecError):
    """The service failed unexpectedly; look the operation up before trying again."""

    code = "internal_error"


class NoAnswer(ClientError):
    """No answer came, even after the retries. Of a write the outcome is open: it may be committed.

    To settle it, send the same request with the same `idempotency_key`, which answers the first outcome if there is
    one, or call `get_operation(operation_id=...)`. `unknown` is final there: the write can no longer happen.
    """

    def __init__(self, message: str, *, operation: str, operation_id: str | None, idempotency_key: str | None) -> None:
        super().__init__(message)
        self.operation = operation
        self.operation_id = operation_id
        self.idempotency_key = idempotency_key


class SubscriptionClosed(ClientError):
    """The subscription ended for good; subscribe again with `after_sequence=last_delivered_sequence` to go on."""

    def __init__(self, subscription_id: str, reason: str, last_delivered_sequence: int) -> None:
        super().__init__(
            f"subscription {subscription_id} is closed ({reason}) after sequence {last_delivered_sequence}"
        )
        self.subscription_id = subscription_id
        self.reason = reason
        self.last_delivered_sequence = last_delivered_sequence


class ChannelReplaced(ClientError):
    """Another consumer of the same subscription took over; two would end each other for ever, so this one stops."""


class ProtocolError(ClientError):
    """What came is no answer of this service; check the address."""


_CLASSES: dict[str, type[PamspecError]] = {
    cls.code: cls
    for cls in (
        InvalidRequest,
        InvalidObject,
        UnsupportedObjectType,
        ObjectNotFound,
        ScopeNotFound,
        SnapshotNotFound,
        AccessDenied,
        PolicyDenied,
        VersionConflict,
        DuplicateOperation,
        InvalidStateTransition,
        RelationshipConflict,
        RetentionRestriction,
        ObjectDeleted,
        ObjectRedacted,
        EmbeddingSpaceMismatch,
        LegalHold,
        ServiceUnavailable,
        InternalError,
    )
}


def refusal(document: object, *, status: int = 0, retry_after_s: float | None = None) -> PamspecError | None:
    """The error of an error envelope `{"error": {...}}`; None when the document is none."""
    inner = document.get("error") if isinstance(document, Mapping) else None
    if not isinstance(inner, Mapping) or not isinstance(inner.get("code"), str):
        return None
    details = inner.get("details")
    return _CLASSES.get(inner["code"], PamspecError)(
        str(inner.get("message", "")),
        status=status,
        retryable=inner.get("retryable") is True,
        operation_id=str(inner.get("operation_id", "")),
        details=details if isinstance(details, Mapping) else None,
        policy_rule_id=inner.get("policy_rule_id"),
        correlation_id=inner.get("correlation_id"),
        retry_after_s=retry_after_s,
    )


def refusal_of(body: bytes, *, status: int, retry_after_s: float | None = None) -> PamspecError | None:
    """The error of an answer's bytes; None when they hold no error envelope."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return refusal(document, status=status, retry_after_s=retry_after_s)
