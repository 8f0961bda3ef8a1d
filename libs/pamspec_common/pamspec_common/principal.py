"""Principals: who calls, and the short-lived signed form in which services pass that on.

Invariant: a service trusts a principal only from a token that it verified itself: HMAC-SHA256 under a named key, made
for this service, at most 60 seconds old. A token for one service opens no other one; a service that hands a caller's
request on signs the caller, whom it verified, anew for that one. Verified tokens are cached by their text until they
expire. A clock that jumps, in whichever direction, costs a new signature and no caller its access.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import time
from collections.abc import Callable, Mapping

import msgspec

from pamspec_common.errors import ServiceUnavailable, Unauthenticated
from pamspec_common.settings import CommonSettings

PRINCIPAL_HEADER = b"x-pamspec-principal"
"""Carries the signed principal on streams between services; one from outside is dropped."""
EVERY_SERVICE = "write query subscription delegation indexing retention_sweeper relay"
"""The audience of tools that speak to several services; what services sign names one."""
TOKEN_LIFETIME_S = 60
_MINT_AGAIN_S = 30
_SKEW_S = 5
_CACHE_LIMIT = 10_000

RIGHT_ASSERT_ACTOR = "assert_actor"
RIGHT_ADMIN = "admin"
RIGHT_AUDIT = "audit"
RIGHT_OPERATOR = "operator"
"""Administers every tenant of the deployment. No role gives it, since a tenant's administrators give roles."""
RIGHT_SERVICE = "service"


class Principal(msgspec.Struct, frozen=True):
    """An authenticated caller: its tenant, its actor, and the rights that its credentials carry."""

    tenant_id: str
    actor_id: str
    actor_kind: str
    rights: frozenset[str] = frozenset()
    epoch: int = 0
    roles: frozenset[str] = frozenset()
    """The roles that the credentials carry in the whole tenant; more can be bound to the actor."""

    def has(self, right: str) -> bool:
        """Whether the credentials carry a right."""
        return right in self.rights


class _Claims(msgspec.Struct, array_like=True):
    audience: str
    """Names of services, with a space between them."""
    expires: float
    principal: Principal


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Claims)


class TokenSigner:
    """Mints `<kid>.<claims>.<mac>` for a service; a token is reused for half of its life."""

    def __init__(
        self, kid: str, key: bytes, audience: str = EVERY_SERVICE, clock: Callable[[], float] = time.time
    ) -> None:
        self._kid, self._key, self._audience, self._clock = kid, key, audience, clock
        self._minted: dict[tuple[str, Principal], tuple[float, str]] = {}

    @classmethod
    def of(cls, settings: CommonSettings, audience: str = "write") -> TokenSigner:
        """With the first of the keys between services; without any, its tokens verify nowhere.

        What services ask of one another is mostly a command of the write service.
        """
        kid, key = next(iter(settings.token_key_bytes().items()), ("none", b""))
        return cls(kid, key, audience)

    def sign(self, principal: Principal, audience: str | None = None) -> str:
        """A token for a principal at a service (its own audience where none is named), valid for 30 to 60 seconds."""
        now, audience = self._clock(), audience or self._audience
        held = self._minted.get((audience, principal))
        if held is not None and 0 <= now - held[0] < _MINT_AGAIN_S:
            return held[1]
        claims = _encoder.encode(_Claims(audience, now + TOKEN_LIFETIME_S, principal))
        body = base64.urlsafe_b64encode(claims).decode()
        token = f"{self._kid}.{body}.{_mac(self._key, self._kid, body)}"
        if len(self._minted) >= _CACHE_LIMIT:
            self._minted.clear()
        self._minted[audience, principal] = (now, token)
        return token


class TokenVerifier:
    """Verifies tokens for one service; keys are held by kid so that they can rotate with overlap."""

    def __init__(self, keys: Mapping[str, bytes], audience: str, clock: Callable[[], float] = time.time) -> None:
        self._keys, self._audience, self._clock = dict(keys), audience, clock
        self._verified: dict[str, tuple[float, Principal]] = {}

    def verify(self, token: str | None) -> Principal:
        """The principal of a token; Unauthenticated when it is missing, foreign or forged.

        ServiceUnavailable when it is too old, or from the future: that tells of our clocks and not of the caller.
        """
        if not token:
            raise Unauthenticated("This service answers only to a signed principal; call it through the gateway.")
        now = self._clock()
        held = self._verified.get(token)
        if held is not None:
            _check_age(held[0], now)
            return held[1]
        claims = self._claims(token)
        _check_age(claims.expires, now)
        if len(self._verified) >= _CACHE_LIMIT:
            self._verified.clear()
        self._verified[token] = (claims.expires, claims.principal)
        return claims.principal

    def _claims(self, token: str) -> _Claims:
        forged = Unauthenticated("The signed principal does not verify; call through the gateway.")
        kid, _, rest = token.partition(".")
        body, _, mac = rest.partition(".")
        key = self._keys.get(kid)
        if key is None or not hmac.compare_digest(mac.encode(), _mac(key, kid, body).encode()):
            raise forged
        try:
            claims = _decoder.decode(base64.urlsafe_b64decode(body))
        except (binascii.Error, msgspec.DecodeError):
            raise forged from None
        if self._audience not in claims.audience.split(" "):
            raise Unauthenticated("The signed principal is for another service; sign it for this one.")
        return claims


def _check_age(expires: float, now: float) -> None:
    if not now < expires <= now + TOKEN_LIFETIME_S + _SKEW_S:
        raise ServiceUnavailable(
            "The signed principal is not of the last minute; try again, and compare the clocks if that stays so."
        )


def _mac(key: bytes, kid: str, body: str) -> str:
    return hmac.digest(key, f"{kid}.{body}".encode(), "sha256").hex()


def service_principal(service: str, tenant_id: str) -> Principal:
    """The principal as which a service sends its own commands in a tenant."""
    return Principal(tenant_id, f"service:{service}", "service", frozenset({RIGHT_SERVICE}), roles=frozenset({"admin"}))
