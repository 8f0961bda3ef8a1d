"""Signed tokens of identity providers: who gets in, and every way not to."""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import jwt
import pytest
import pytest_asyncio
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from pamspec_cli.servers.databases import Database
from pamspec_common.errors import ServiceUnavailable, Unauthenticated
from pamspec_common.peers import LocalPeer
from pamspec_common.principal import Principal
from pamspec_common.server import serving
from pamspec_gateway.api_keys import Guesses
from pamspec_gateway.app import build
from pamspec_gateway.identity_tokens import IdentityTokens, TokenIssuer, actor_of
from pamspec_gateway.signing_keys import SigningKeys
from services.gateway.tests.behind import Behind, echo_service, gateway_settings

AUDIENCE = "https://memory.example"
HOUR = 3600
RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
PUBLIC_PEM = RSA_KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


class Clock:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Provider:
    """An identity provider on a free port."""

    def __init__(self) -> None:
        self.url = ""
        self.keys: dict[str, Any] = {"k1": RSA_KEY}
        self.extra: list[dict[str, Any]] = []
        self.asked = 0
        self.fails = False
        self.named: str | None = None

    async def discovery(self, _: web.Request) -> web.Response:
        """The discovery document."""
        return web.json_response({"issuer": self.named or self.url, "jwks_uri": self.url + "/keys"})

    async def jwks(self, _: web.Request) -> web.Response:
        """The published keys."""
        self.asked += 1
        if self.fails:
            return web.Response(status=503)
        return web.json_response({"keys": [*map(self._public, self.keys), *self.extra]})

    def _public(self, kid: str) -> dict[str, Any]:
        key = self.keys[kid].public_key()
        if isinstance(key, rsa.RSAPublicKey):
            return {**jwt.algorithms.RSAAlgorithm.to_jwk(key, as_dict=True), "kid": kid, "alg": "RS256", "use": "sig"}
        if isinstance(key, ec.EllipticCurvePublicKey):
            return {**jwt.algorithms.ECAlgorithm.to_jwk(key, as_dict=True), "kid": kid, "alg": "ES256", "use": "sig"}
        return {**jwt.algorithms.OKPAlgorithm.to_jwk(key, as_dict=True), "kid": kid, "alg": "EdDSA", "use": "sig"}

    def token(self, kid: str = "k1", key: Any = None, algorithm: str = "RS256", **claims: Any) -> str:
        """A token as the provider would sign it; a claim of None is left out."""
        now = int(time.time())
        whole = {"iss": self.url, "aud": AUDIENCE, "sub": "ada", "iat": now, "exp": now + HOUR, "tenant": "tenant:x"}
        whole.update(claims)
        kept = {name: value for name, value in whole.items() if value is not None}
        signing = self.keys[kid] if key is None else key
        return jwt.encode(kept, signing, algorithm, headers={"kid": kid})


@pytest_asyncio.fixture(loop_scope="session")
async def provider() -> AsyncIterator[Provider]:
    """A running provider."""
    made = Provider()
    app = web.Application()
    app.router.add_get("/.well-known/openid-configuration", made.discovery)
    app.router.add_get("/keys", made.jwks)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


@asynccontextmanager
async def trusting(provider: Provider, clock: Clock | None = None, **changed: Any) -> AsyncIterator[IdentityTokens]:
    """An authenticator that trusts the provider."""
    given = {"issuer": provider.url, "audience": AUDIENCE, "tenant_claim": "tenant", **changed}
    keys = SigningKeys() if clock is None else SigningKeys(clock=clock)
    yield IdentityTokens([TokenIssuer.model_validate(given)], keys, Guesses(1000, 1000))
    await keys.close()


async def test_a_bearer_is_who_its_issuer_says(provider: Provider) -> None:
    provider.keys |= {"ec": ec.generate_private_key(ec.SECP256R1()), "ed": ed25519.Ed25519PrivateKey.generate()}
    async with trusting(provider) as tokens:
        for kid, algorithm in (("k1", "RS256"), ("ec", "ES256"), ("ed", "EdDSA")):
            text = provider.token(kid, algorithm=algorithm)
            assert tokens.accepts(text)
            identity = await tokens.identify(text, "127.0.0.1")
            assert identity.principal == Principal("tenant:x", "user:ada", "human")
            assert 0 < identity.lifetime_s <= HOUR
    assert provider.asked == 1


async def test_the_mapping_of_an_issuer_decides(provider: Provider) -> None:
    async with trusting(
        provider,
        tenant_id="tenant:ours",
        actor_claim="client",
        actor_prefix="service:crm/",
        actor_kind="service",
        rights_claim="rights",
        roles_claim="groups",
    ) as tokens:
        text = provider.token(client="app|7", rights=["audit", "service", "root", 3], groups=["reader", "king", []])
        found = (await tokens.identify(text, "a")).principal
        assert found == Principal(
            "tenant:ours", "service:crm/app+7C7", "service", frozenset({"audit"}), roles=frozenset({"reader"})
        )
    async with trusting(provider) as tokens:
        assert (await tokens.identify(provider.token(rights=["admin"]), "a")).principal.rights == frozenset()


def test_two_names_stay_two_actors() -> None:
    names = ["a|b", "a+7Cb", "a b", "a+20b", "ä", "a\x00", "a/b", "A/b"]
    assert len({actor_of("user:", name) for name in names}) == len(names)


def _part(document: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).decode().rstrip("=")


def _forgeries(provider: Provider) -> dict[str, str]:
    now = int(time.time())
    good = provider.token()
    header, body, signature = good.split(".")
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    claims = jwt.decode(good, options={"verify_signature": False})
    tampered = _part({**claims, "sub": "root"})
    confused = f"{_part({'alg': 'HS256', 'kid': 'k1'})}.{body}"
    mac = base64.urlsafe_b64encode(hmac.digest(PUBLIC_PEM, confused.encode(), "sha256")).decode().rstrip("=")
    signed_as_text = jwt.encode(claims, "a" * 32, "HS256", headers={"kid": "k1"})
    return {
        "no signature": f"{_part({'alg': 'none', 'kid': 'k1'})}.{body}.AA",
        "none with capitals": f"{_part({'alg': 'nOnE', 'kid': 'k1'})}.{body}.{signature}",
        "public key as secret": f"{confused}.{mac}",
        "signed as a text": signed_as_text,
        "other payload": f"{header}.{tampered}.{signature}",
        "cut signature": f"{header}.{body}.{signature[:-8]}",
        "foreign key": provider.token(key=other),
        "unknown kid": provider.token(kid="k9", key=other),
        "critical extension": f"{_part({'alg': 'RS256', 'kid': 'k1', 'crit': ['x'], 'x': 1})}.{body}.{signature}",
        "key in the header": f"{_part({'alg': 'RS256', 'jwk': {'kty': 'RSA'}, 'jku': 'http://x'})}.{body}.{signature}",
        "another algorithm than the key's": provider.token(algorithm="RS512"),
        "not pinned": provider.token(algorithm="PS256"),
        "wrong audience": provider.token(aud="https://else.example"),
        "no audience": provider.token(aud=None),
        "unknown issuer": provider.token(iss="https://else.example"),
        "issuer with a slash": provider.token(iss=provider.url + "/"),
        "expired": provider.token(iat=now - 2 * HOUR, exp=now - HOUR),
        "no end": provider.token(exp=None),
        "no beginning": provider.token(iat=None),
        "not yet": provider.token(nbf=now + HOUR),
        "from the future": provider.token(iat=now + HOUR, exp=now + 2 * HOUR),
        "too long": provider.token(exp=now + 365 * 24 * HOUR),
        "no subject": provider.token(sub=None),
        "empty subject": provider.token(sub=""),
        "no tenant": provider.token(tenant=None),
        "tenant that is no id": provider.token(tenant="../other"),
        "tenant of another type": provider.token(tenant=["tenant:x"]),
        "endless number": f"{header}.{_part({**claims, 'exp': 10**400})}.{signature}",
        "a text as time": f"{header}.{_part({**claims, 'exp': 'tomorrow'})}.{signature}",
        "no object": f"{header}.{base64.urlsafe_b64encode(b'[]').decode()}.{signature}",
        "no base64": "a.b.c",
    }


@pytest.mark.parametrize("name", sorted(_forgeries(Provider())))
async def test_no_forgery_gets_in(provider: Provider, name: str) -> None:
    text = _forgeries(provider)[name]
    async with trusting(provider) as tokens:
        with pytest.raises(Unauthenticated):
            await tokens.identify(text, "127.0.0.1")


async def test_symmetric_weak_and_foreign_keys_are_not_used(provider: Provider) -> None:
    weak = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    public = jwt.algorithms.RSAAlgorithm.to_jwk(weak.public_key(), as_dict=True)
    secret = base64.urlsafe_b64encode(b"s" * 32).decode()
    provider.extra = [
        {"kty": "oct", "k": secret, "kid": "shared", "alg": "HS256"},
        {**public, "kid": "weak", "alg": "RS256"},
        {**provider._public("k1"), "kid": "encrypts", "use": "enc"},
        {"kty": "RSA", "kid": "broken"},
        "nonsense",  # type: ignore[list-item]
    ]
    async with trusting(provider) as tokens:
        for kid, key in (("weak", weak), ("encrypts", RSA_KEY), ("broken", RSA_KEY)):
            with pytest.raises(Unauthenticated):
                await tokens.identify(provider.token(kid, key=key), "a")
        await tokens.identify(provider.token(), "a")


async def test_keys_rotate(provider: Provider) -> None:
    clock = Clock()
    async with trusting(provider, clock) as tokens:
        old = provider.token()
        await tokens.identify(old, "a")
        provider.keys["k2"] = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        new = provider.token("k2")
        with pytest.raises(Unauthenticated):
            await tokens.identify(new, "a")
        clock.now += 11
        await tokens.identify(new, "a")
        await tokens.identify(old, "a")
        del provider.keys["k1"]
        clock.now += 301
        with pytest.raises(Unauthenticated):
            await tokens.identify(old, "a")
        await tokens.identify(new, "a")
    assert provider.asked == 3


async def test_strange_tokens_do_not_make_an_issuer_be_asked(provider: Provider) -> None:
    clock = Clock()
    async with trusting(provider, clock) as tokens:
        await tokens.identify(provider.token(), "a")
        for number in range(20):
            with pytest.raises(Unauthenticated):
                await tokens.identify(provider.token(f"unknown-{number}", key=RSA_KEY), "a")
    assert provider.asked == 1


async def test_an_issuer_that_is_away(provider: Provider) -> None:
    clock = Clock()
    provider.fails = True
    async with trusting(provider, clock) as tokens:
        with pytest.raises(ServiceUnavailable):
            await tokens.identify(provider.token(), "a")
        provider.fails = False
        clock.now += 11
        await tokens.identify(provider.token(), "a")
        provider.fails = True
        clock.now += 301
        await tokens.identify(provider.token(), "a")
        clock.now += 3600
        with pytest.raises(ServiceUnavailable):
            await tokens.identify(provider.token(), "a")


async def test_a_discovery_document_of_another_issuer_is_not_believed(provider: Provider) -> None:
    provider.named = "https://else.example"
    async with trusting(provider) as tokens:
        with pytest.raises(ServiceUnavailable):
            await tokens.identify(provider.token(), "a")
    assert provider.asked == 0


async def test_guessers_are_put_off(provider: Provider) -> None:
    keys = SigningKeys()
    issuer = TokenIssuer(issuer=provider.url, audience=AUDIENCE, tenant_claim="tenant")
    tokens = IdentityTokens([issuer], keys, Guesses(0.001, 3))
    for _ in range(3):
        with pytest.raises(Unauthenticated):
            await tokens.identify(provider.token(aud="x"), "10.0.0.1")
    with pytest.raises(ServiceUnavailable):
        await tokens.identify(provider.token(aud="x"), "10.0.0.1")
    await tokens.identify(provider.token(), "10.0.0.2")
    await keys.close()


async def test_the_gateway_lets_bearers_in(provider: Provider, database: Database) -> None:
    behind = Behind()
    echo = echo_service("echo", behind)
    trusted = [{"issuer": provider.url, "audience": AUDIENCE, "tenant_claim": "tenant"}]
    gateway = build(
        gateway_settings(database, token_issuers=trusted),
        dict.fromkeys(("write", "query", "subscription", "delegation", "indexing"), LocalPeer(echo)),
    )
    await echo.start()
    async with serving(gateway) as url, aiohttp.ClientSession() as session:
        for text, status in ((provider.token(), 200), (provider.token(aud="else"), 401)):
            headers = {"Authorization": f"Bearer {text}", "Content-Type": "application/json"}
            async with session.post(url + "/v1/create", data=b"{}", headers=headers) as response:
                assert response.status == status
    await echo.stop()
    assert [call.principal.actor_id for call in behind.calls] == ["user:ada"]
