"""Quotas: what a tenant, each of its principals and each of its scopes may take, as every service reads it.

Invariant: a bound that a tenant's own document leaves out is that of the deployment (`PAMSPEC_QUOTA_DEFAULTS`), and one
that both leave out does not exist. The document's form is contracts/schemas/quotas.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from pamspec_common.errors import ServiceUnavailable

MAX_BODY_BYTES = 16 * 1024 * 1024
_MOST = 10**12

Count = Annotated[int, msgspec.Meta(ge=0, le=_MOST)]
PerSecond = Annotated[int, msgspec.Meta(ge=1, le=10**9)]
BodyBytes = Annotated[int, msgspec.Meta(ge=1024, le=MAX_BODY_BYTES)]


class StorageBounds(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True):
    """What may be stored: objects and relationships ever made, their versions, bytes of content that is not erased."""

    objects: Count | None = None
    versions: Count | None = None
    content_bytes: Count | None = None


class PrincipalBounds(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True):
    """What one principal may do."""

    requests_per_s: PerSecond | None = None
    burst: PerSecond | None = None
    """How many at once; without it as many as in a second."""
    subscriptions: Count | None = None


class TenantBounds(StorageBounds, frozen=True):
    """What a whole tenant may do; `concurrency` and `channels` hold for each gateway process."""

    requests_per_s: PerSecond | None = None
    burst: PerSecond | None = None
    subscriptions: Count | None = None
    concurrency: Annotated[int, msgspec.Meta(ge=1, le=10**6)] | None = None
    """Requests under way at once."""
    channels: Annotated[int, msgspec.Meta(ge=1, le=10**6)] | None = None
    """Polls, streams and transfers open at once."""
    body_bytes: BodyBytes | None = None


class Quotas(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True):
    """A whole document."""

    tenant: TenantBounds = TenantBounds()
    principal: PrincipalBounds = PrincipalBounds()
    scope: StorageBounds = StorageBounds()

    def over(self, defaults: Quotas) -> Quotas:
        """What holds: these bounds, and those of the defaults where these say nothing."""
        merged = {part: {**_said(defaults, part), **_said(self, part)} for part in ("tenant", "principal", "scope")}
        return msgspec.convert(merged, Quotas)


def _said(quotas: Quotas, part: str) -> dict[str, Any]:
    said: dict[str, Any] = msgspec.to_builtins(getattr(quotas, part))
    if "requests_per_s" in said:
        said.setdefault("burst", said["requests_per_s"])
    return said


NO_QUOTAS = Quotas()


def quotas_of(document: Mapping[str, Any]) -> Quotas:
    """The quotas of a document; ValueError naming the member that is wrong."""
    return msgspec.convert(document, Quotas)


def stored_quotas(text: bytes | str | None) -> Quotas:
    """The quotas of a stored document; none where there is none."""
    return NO_QUOTAS if text is None else msgspec.json.decode(text, type=Quotas)


def over_quota(limit: str, bound: int, why: str, retry_after: int, **facts: Any) -> ServiceUnavailable:
    """The refusal (429) of what goes beyond a limit: `limit` is its name in the document, like tenant.objects."""
    return ServiceUnavailable(
        why,
        details={"reason": "quota", "limit": limit, "bound": bound, **facts},
        status=429,
        retry_after=retry_after,
    )
