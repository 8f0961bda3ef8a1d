"""The one error tree: every refusal a door can answer.

Invariant: a code, its HTTP status and whether a retry can help are properties of the class, and there are exactly the
19 codes of PAMSPEC P171. A class's docstring is its default message. Messages say what to do next and never carry
memory content (PAMSPEC P170, S14).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import orjson

Details = Mapping[str, Any]


class PamspecError(Exception):
    """The operation failed."""

    code: ClassVar[str] = "internal_error"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(
        self,
        message: str | None = None,
        *,
        details: Details | None = None,
        status: int | None = None,
        retry_after: int | None = None,
        policy_rule_id: str | None = None,
        retryable: bool | None = None,
    ) -> None:
        self.message = message or (type(self).__doc__ or "").strip()
        self.details: dict[str, Any] = dict(details or {})
        self.http_status = status or type(self).status
        self.retry_after = retry_after
        self.policy_rule_id = policy_rule_id
        self.can_retry = type(self).retryable if retryable is None else retryable
        super().__init__(self.message)

    def body(self, operation_id: str) -> bytes:
        """The closed error envelope of S14 as compact JSON bytes."""
        inner: dict[str, Any] = {
            "code": self.code,
            "details": self.details,
            "message": self.message,
            "operation_id": operation_id,
            "retryable": self.can_retry,
        }
        if self.policy_rule_id is not None:
            inner["policy_rule_id"] = self.policy_rule_id
        return orjson.dumps({"error": inner}, option=orjson.OPT_SORT_KEYS)


class InvalidRequest(PamspecError):
    """The request is not well formed; correct it before sending it again."""

    code, status = "invalid_request", 400


class InvalidObject(PamspecError):
    """What would be stored breaks a rule of its type; correct the named field."""

    code, status = "invalid_object", 422


class UnsupportedObjectType(PamspecError):
    """This scope does not accept objects of that type; use a type that its policy allows."""

    code, status = "unsupported_object_type", 422


class ObjectNotFound(PamspecError):
    """No such object is visible to this actor in this scope; check scope_id and object_id."""

    code, status = "object_not_found", 404


class ScopeNotFound(PamspecError):
    """No such scope is visible to this actor; check scope_id or make the scope with create_scope first."""

    code, status = "scope_not_found", 404


class SnapshotNotFound(PamspecError):
    """No such snapshot is visible to this actor; check snapshot_id."""

    code, status = "snapshot_not_found", 404


class Unauthenticated(PamspecError):
    """No valid credentials were sent; send an API key as 'Authorization: Bearer <key>'."""

    code, status = "access_denied", 401


class AccessDenied(PamspecError):
    """This actor may not do that here; ask for the right or act under a delegation."""

    code, status = "access_denied", 403


class PolicyDenied(PamspecError):
    """A policy rule forbids this; see policy_rule_id."""

    code, status = "policy_denied", 403


class VersionConflict(PamspecError):
    """The object has changed; read it again and send its current version as expected_version_id."""

    code, status, retryable = "version_conflict", 409, True


class DuplicateOperation(PamspecError):
    """This key was used for another request; use a new idempotency key or operation_id."""

    code, status = "duplicate_operation", 409


class InvalidStateTransition(PamspecError):
    """That state cannot follow the current one; see details for the states that can."""

    code, status = "invalid_state_transition", 409


class RelationshipConflict(PamspecError):
    """An active relationship of that type already joins these objects; update it instead."""

    code, status = "relationship_conflict", 409


class RetentionRestriction(PamspecError):
    """The retention state of the object forbids this; change its retention first."""

    code, status = "retention_restriction", 409


class ObjectDeleted(PamspecError):
    """The object was deleted; only its history can be read."""

    code, status = "object_deleted", 410


class ObjectRedacted(PamspecError):
    """The object was redacted; only its history can be read."""

    code, status = "object_redacted", 410


class EmbeddingSpaceMismatch(PamspecError):
    """Vectors of different embedding spaces cannot be compared; name the space of the vector."""

    code, status = "embedding_space_mismatch", 422


class LegalHold(PamspecError):
    """A legal hold covers the object; it must be released before anything is removed."""

    code, status = "legal_hold", 423


class ServiceUnavailable(PamspecError):
    """The service cannot answer now; try again after the time in Retry-After with the same key."""

    code, status, retryable = "service_unavailable", 503, True

    def __init__(self, message: str | None = None, *, retry_after: int | None = 1, **kwargs: Any) -> None:
        super().__init__(message, retry_after=retry_after, **kwargs)


class InternalError(PamspecError):
    """The service failed in a way that it did not expect; look the operation up before trying again."""

    code, status = "internal_error", 500


TREE: tuple[type[PamspecError], ...] = (
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
_BY_CODE = {kind.code: kind for kind in TREE if kind is not Unauthenticated}


def told_error(status: int, body: bytes) -> PamspecError:
    """The error that another service's refusal stands for."""
    error = orjson.loads(body).get("error", {})
    kind = _BY_CODE.get(error.get("code"), InternalError)
    return kind(
        error.get("message"),
        details=error.get("details"),
        status=status,
        policy_rule_id=error.get("policy_rule_id"),
    )
