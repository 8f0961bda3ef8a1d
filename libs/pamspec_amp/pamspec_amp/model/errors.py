"""The errors of the protocol, and which of them stands for a refusal of an operation (AMP A20)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pamspec_common import strict_json


class AmpError(Exception):
    """The request was refused."""

    code: ClassVar[str]
    status: ClassVar[int]

    def __init__(self, message: str | None = None, details: Mapping[str, Any] | None = None) -> None:
        self.message = message or (type(self).__doc__ or "").strip()
        self.details = dict(details or {})
        super().__init__(self.message)

    def body(self) -> bytes:
        """The error as JSON bytes."""
        error = {"code": self.code, "message": self.message, "details": self.details}
        return strict_json.dumps({"error": error})


class MissingAgentId(AmpError):
    """Say which agent calls: send the header X-AMP-Agent-ID."""

    code, status = "MISSING_AGENT_ID", 401


class Unauthenticated(AmpError):
    """No valid key for this agent was sent; send one as X-AMP-API-Key, and the agent that it is for."""

    code, status = "UNAUTHENTICATED", 401


class AccessDenied(AmpError):
    """No cell of this id may be used so by this agent."""

    code, status = "ACCESS_DENIED", 403


class AdminDisabled(AmpError):
    """Nothing is run by hand here; the lifecycle runs by itself."""

    code, status = "ADMIN_DISABLED", 403


class InvalidTransition(AmpError):
    """That status cannot follow the current one; read the cell again."""

    code, status = "INVALID_TRANSITION", 409


class CellTooLarge(AmpError):
    """The cell is too large; send less text or metadata."""

    code, status = "CELL_TOO_LARGE", 413


class Invalid(AmpError):
    """The request breaks a rule; see details.errors."""

    code, status = "VALIDATION_ERROR", 422

    def __init__(self, errors: Sequence[Mapping[str, str]], message: str | None = None) -> None:
        super().__init__(message, {"errors": list(errors)})


class RateLimited(AmpError):
    """Too much at once; try again after the time in Retry-After."""

    code, status = "RATE_LIMITED", 429

    def __init__(self, retry_after_s: float, message: str | None = None) -> None:
        self.retry_after_s = max(1, math.ceil(retry_after_s))
        super().__init__(message, {"retry_after_seconds": self.retry_after_s})


def invalid(field: str, rule: str) -> Invalid:
    """A request of which one member breaks a rule."""
    return Invalid([{"field": field, "rule": rule}])


def refused(status: int, error: Mapping[str, Any], retry_after: str | None) -> AmpError:
    """What a refusal of an operation is called here. Every code of the operations has one place.

    What may not be done, is not there or is gone is one answer, in the same bytes (A14, AY4).
    """
    code = error.get("code")
    if status == 401:
        return Unauthenticated()
    if code in ("invalid_state_transition", "retention_restriction", "legal_hold"):
        return InvalidTransition()
    if code in ("service_unavailable", "version_conflict"):
        return RateLimited(float(retry_after) if retry_after and retry_after.isdigit() else 1)
    if status == 413:
        return CellTooLarge()
    if code in ("invalid_request", "invalid_object", "embedding_space_mismatch", "duplicate_operation"):
        details = error.get("details") or {}
        return invalid(str(details.get("field", "")), str(code))
    if code == "internal_error":
        raise RuntimeError("an operation failed")
    return AccessDenied()
