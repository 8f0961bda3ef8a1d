"""Tokens of identity providers (OIDC, signed JWTs) as credentials.

Invariants: a token is believed only under an asymmetric key that its issuer publishes now, with an algorithm that the
operator pinned for that issuer, for our audience, and inside its own times (P9, P172). What its claims say of tenant
and actor goes through the issuer's mapping; nothing else of it becomes a right.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import jwt
from pydantic import BaseModel, ConfigDict, Field

from pamspec_common.authorization.vocabulary import ROLES
from pamspec_common.errors import Unauthenticated
from pamspec_common.ids import is_id
from pamspec_common.principal import RIGHT_ADMIN, RIGHT_ASSERT_ACTOR, RIGHT_AUDIT, Principal
from pamspec_gateway.api_keys import Guesses
from pamspec_gateway.authentication import Identity
from pamspec_gateway.signing_keys import SigningKeys

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
MAX_SKEW_S = 60

_TOKEN = re.compile(r"^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\Z")
_PLAIN = re.compile(r"[^A-Za-z0-9._:/\-]")
_GIVEN = frozenset({RIGHT_ADMIN, RIGHT_ASSERT_ACTOR, RIGHT_AUDIT})


class TokenIssuer(BaseModel):
    """An identity provider that the operator trusts, and what its claims mean here."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    issuer: str = Field(min_length=1)
    """The claim `iss`, letter by letter; its discovery document is looked for below it."""
    audience: str = Field(min_length=1)
    jwks_url: str | None = None
    """Where the keys are, when the discovery document shall not be asked."""
    algorithms: tuple[Algorithm, ...] = ("RS256", "ES256", "EdDSA")
    tenant_id: str | None = None
    """The tenant of everybody whom this issuer knows; otherwise `tenant_claim` names it."""
    tenant_claim: str | None = None
    actor_claim: str = "sub"
    actor_prefix: str = "user:"
    """Written before the claim's value; a different one per issuer keeps their users apart within a tenant."""
    actor_kind: str = "human"
    rights_claim: str | None = None
    """A claim that lists rights of a key (admin, assert_actor, audit); without it a token has none of them."""
    roles_claim: str | None = None
    """A claim that lists roles in the whole tenant; the others are bound to the actor here."""
    max_age_s: int = Field(default=24 * 3600, ge=1)
    """A token that is valid for longer than this is refused."""


class IdentityTokens:
    """Identifies the bearers of signed tokens."""

    def __init__(
        self,
        issuers: Sequence[TokenIssuer],
        keys: SigningKeys,
        guesses: Guesses,
        *,
        skew_s: int = 30,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._issuers = {issuer.issuer: issuer for issuer in issuers}
        self._keys, self._guesses, self._clock = keys, guesses, clock
        self._skew_s = min(skew_s, MAX_SKEW_S)

    def accepts(self, credential: str) -> bool:
        """Whether the text has the form of a signed token."""
        return _TOKEN.match(credential) is not None

    async def identify(self, credential: str, address: str) -> Identity:
        """The bearer. Unauthenticated: not signed, not for us, not now; ServiceUnavailable: no keys can be had."""
        self._guesses.check(address)
        try:
            return await self._identify(credential)
        except Unauthenticated:
            self._guesses.charge(address)
            raise

    async def _identify(self, credential: str) -> Identity:
        try:
            header = jwt.get_unverified_header(credential)
            unverified = jwt.decode(credential, options={"verify_signature": False})
        except jwt.InvalidTokenError:
            raise Unauthenticated from None
        issuer = self._issuers.get(str(unverified.get("iss")))
        algorithm, kid = header.get("alg"), header.get("kid")
        if issuer is None or algorithm not in issuer.algorithms or "crit" in header:
            raise Unauthenticated
        key = await self._keys.find(issuer.issuer, issuer.jwks_url, kid if isinstance(kid, str) else None)
        if key is None or key.algorithm_name != algorithm:
            raise Unauthenticated
        claims = self._verified(credential, key, algorithm, issuer)
        now = self._clock()
        expires, issued = float(claims["exp"]), float(claims["iat"])
        if expires - issued > issuer.max_age_s or issued > now + self._skew_s:
            raise Unauthenticated
        left_s = max(0.0, expires - now)
        return Identity(_principal(issuer, claims), left_s, left_s)

    def _verified(self, credential: str, key: jwt.PyJWK, algorithm: str, issuer: TokenIssuer) -> Mapping[str, Any]:
        try:
            claims: dict[str, Any] = jwt.decode(
                credential,
                key.key,
                algorithms=[algorithm],
                audience=issuer.audience,
                issuer=issuer.issuer,
                leeway=self._skew_s,
                options={"require": ["exp", "iat", "iss", "aud", issuer.actor_claim]},
            )
        except (jwt.InvalidTokenError, ValueError, TypeError, OverflowError):
            raise Unauthenticated from None
        return claims


def _principal(issuer: TokenIssuer, claims: Mapping[str, Any]) -> Principal:
    tenant = issuer.tenant_id if issuer.tenant_id is not None else claims.get(issuer.tenant_claim or "")
    named = claims.get(issuer.actor_claim)
    actor_id = actor_of(issuer.actor_prefix, named) if isinstance(named, str) and named else ""
    if not (isinstance(tenant, str) and is_id(tenant) and is_id(actor_id)):
        raise Unauthenticated("The token names no tenant or actor that can exist here.")
    rights = _listed(claims, issuer.rights_claim) & _GIVEN
    roles = _listed(claims, issuer.roles_claim) & frozenset(ROLES)
    return Principal(tenant, actor_id, issuer.actor_kind, rights, roles=roles)


def _listed(claims: Mapping[str, Any], claim: str | None) -> frozenset[str]:
    """The texts that a claim lists."""
    given = claims.get(claim) if claim is not None else None
    return frozenset(one for one in given if isinstance(one, str)) if isinstance(given, list) else frozenset()


def actor_of(prefix: str, name: str) -> str:
    """The actor id of a claim's value: what an id cannot hold is written as +XX, so that two names stay two ids."""
    return prefix + _PLAIN.sub(lambda found: "".join(f"+{byte:02X}" for byte in found[0].encode()), name)
