"""Credentials that nobody gave out, at the public door and at the services behind it, of a running product."""

from __future__ import annotations

import base64
import json
import time

import aiohttp
import pytest

from pamspec_common.principal import Principal, TokenSigner
from tests.security.people import GARDEN, People

SECRET_OF_SERVICES = "a key between services"


def _jwt(header: dict[str, object], claims: dict[str, object], signature: bytes = b"") -> str:
    parts = [json.dumps(header).encode(), json.dumps(claims).encode(), signature]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


CLAIMS: dict[str, object] = {
    "sub": "agent:a",
    "tenant_id": "tenant:t",
    "iss": "https://issuer.example",
    "exp": time.time() + 600,
}
FORGED = {
    "nothing": "",
    "alg none": _jwt({"alg": "none", "typ": "JWT"}, CLAIMS),
    "alg None": _jwt({"alg": "None", "typ": "JWT"}, CLAIMS, b"x"),
    "a symmetric signature": _jwt({"alg": "HS256", "typ": "JWT"}, CLAIMS, b"x" * 32),
    "a key set of its own": _jwt({"alg": "RS256", "jku": "http://127.0.0.1:1/keys", "kid": "x"}, CLAIMS, b"x" * 256),
    "an embedded key": _jwt(
        {"alg": "ES256", "jwk": {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}}, CLAIMS, b"x" * 64
    ),
    "a path for a kid": _jwt({"alg": "HS256", "kid": "../../dev/null"}, CLAIMS, b"x" * 32),
    "two dots": "..",
    "many dots": "." * 5_000,
    "a key that is not": "pam_" + "A" * 43,
    "a wildcard": "pam_%",
    "a list of keys": "pam_a,pam_b",
    "brackets": '{"$ne": null}',
    "a long one": "pam_" + "A" * 30_000,
}


async def _status(url: str, headers: dict[str, str]) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            url, data=json.dumps({"scope_id": GARDEN}), headers={"Content-Type": "application/json", **headers}
        ) as response,
    ):
        return response.status, await response.text()


@pytest.mark.parametrize("name", FORGED)
async def test_a_forged_credential_opens_nothing(people: People, name: str) -> None:
    """In either header: one answer, which says nothing of why, nor repeats what was sent."""
    url = f"{people.product.url}/v1/get_scope"
    for headers in ({"Authorization": f"Bearer {FORGED[name]}"}, {"X-API-Key": FORGED[name]}):
        status, text = await _status(url, headers)
        assert status in (401, 429, 431), text
        assert not FORGED[name] or FORGED[name] not in text
        if status == 401:
            assert json.loads(text)["error"]["code"] == "access_denied"


async def test_cut_and_changed_keys_open_nothing(people: People) -> None:
    """A key is one text: no prefix, no other case, no white space within, nobody else's beside it."""
    url, key = f"{people.product.url}/v1/get_scope", people.owner.key
    changed = [
        key[:-1],
        key[1:],
        key.upper(),
        key.swapcase(),
        key + key,
        key[:20] + " " + key[20:],
        f"{key}, {people.guest.key}",
    ]
    for one in changed:
        status, _ = await _status(url, {"Authorization": f"Bearer {one}"})
        assert status in (401, 429), one
    both = {"Authorization": f"Bearer {people.guest.key}", "X-API-Key": key}
    status, text = await _status(f"{people.product.url}/v1/list_scopes", both)
    assert status in (400, 401) or "workspace:vault" not in text
    assert (await _status(url, {"Authorization": f"Bearer {key}"}))[0] == 200


async def test_a_principal_of_the_services_opens_no_public_door(people: People) -> None:
    """Neither as a bearer nor in the services' own header: what comes from outside is dropped."""
    for secret in (SECRET_OF_SERVICES.encode(), b"another key"):
        token = TokenSigner("k1", secret).sign(Principal("tenant:t", "agent:a", "agent", roles=frozenset({"admin"})))
        url = f"{people.product.url}/v1/get_scope"
        assert (await _status(url, {"Authorization": f"Bearer {token}"}))[0] in (401, 429)
        assert (await _status(url, {"X-Pamspec-Principal": token}))[0] in (401, 429)
        sent = {"Authorization": f"Bearer {people.foreigner.key}", "X-Pamspec-Principal": token}
        status, text = await _status(f"{people.product.url}/v1/list_scopes", sent)
        assert status == 200
        assert "workspace:vault" not in text
