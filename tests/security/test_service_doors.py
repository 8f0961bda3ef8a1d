"""Each service as somebody meets it who has found its port: over HTTP, past the gateway."""

from __future__ import annotations

import base64
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack

import aiohttp
import msgspec
import orjson
import pytest
import pytest_asyncio

import pamspec_delegation.app
import pamspec_indexing.app
import pamspec_query.app
import pamspec_subscription.app
import pamspec_write.app
from pamspec_common.calls import Call
from pamspec_common.internal import RemoteOperations
from pamspec_common.peers import LocalPeer
from pamspec_common.principal import EVERY_SERVICE, PRINCIPAL_HEADER, Principal, TokenSigner
from pamspec_common.server import serving
from pamspec_common.service import Service
from pamspec_delegation.settings import Settings as DelegationSettings
from pamspec_indexing.settings import Settings as IndexingSettings
from pamspec_query.settings import Settings as QuerySettings
from pamspec_subscription.settings import Settings as SubscriptionSettings
from pamspec_write.settings import Settings as WriteSettings
from tests.security.people import GARDEN, People

KID, KEY, OTHER_KEY = "k1", b"a key of these services", b"a key of another deployment"
MIGHTY = Principal(
    "tenant:t", "service:gateway", "service", frozenset({"service", "admin"}), roles=frozenset({"admin"})
)
HEADER = PRINCIPAL_HEADER.decode()
NAMES = ("write", "query", "subscription", "delegation", "indexing")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def services(people: People) -> AsyncIterator[Mapping[str, tuple[Service, str]]]:
    """Each service with its address, as in a process of its own."""
    database, bus = people.product.database, people.product.nats_url

    def given(name: str) -> dict[str, object]:
        return {"database_url": database.role(name), "nats_url": bus, "token_keys": {KID: KEY}, "drain_s": 2.0}

    write = pamspec_write.app.build(WriteSettings.model_validate(given("write")))
    built = {
        "write": write,
        "query": pamspec_query.app.build(QuerySettings.model_validate(given("query")), LocalPeer(write)),
        "subscription": pamspec_subscription.app.build(
            SubscriptionSettings.model_validate(given("subscription")), LocalPeer(write)
        ),
        "delegation": pamspec_delegation.app.build(
            DelegationSettings.model_validate(given("delegation")), LocalPeer(write)
        ),
        "indexing": pamspec_indexing.app.build(IndexingSettings.model_validate(given("indexing")), LocalPeer(write)),
    }
    async with AsyncExitStack() as stack:
        yield {name: (one, await stack.enter_async_context(serving(one))) for name, one in built.items()}


def _token(key: bytes = KEY, *, kid: str = KID, audience: str = EVERY_SERVICE, age_s: float = 0.0) -> str:
    return TokenSigner(kid, key, audience, clock=lambda: time.time() - age_s).sign(MIGHTY)


def _bad(service: str) -> dict[str, tuple[str, int]]:
    """Tokens that open nothing, with the status that each is answered with."""
    kid, body, mac = _token().split(".")
    claims = base64.urlsafe_b64decode(body)
    other = base64.urlsafe_b64encode(claims.replace(b"tenant:t", b"tenant:u")).decode()
    jwt = ".".join(
        base64.urlsafe_b64encode(part).decode() for part in (b'{"alg":"none"}', orjson.dumps({"sub": "service:a"}), b"")
    )
    return {
        "missing": ("", 401),
        "no token": ("not-a-token", 401),
        "alg none": (jwt, 401),
        "no signature": (f"{kid}.{body}.", 401),
        "cut signature": (f"{kid}.{body}.{mac[:-1]}", 401),
        "cut claims": (f"{kid}.{body[:-4]}.{mac}", 401),
        "other claims": (f"{kid}.{other}.{mac}", 401),
        "other key": (_token(OTHER_KEY), 401),
        "empty key": (_token(b""), 401),
        "other kid": (_token(OTHER_KEY, kid="k2"), 401),
        "a kid that does not match": (f"k2.{body}.{mac}", 401),
        "wrong audience": (_token(audience="browsers"), 401),
        "of the other services": (_token(audience=EVERY_SERVICE.replace(service, "")), 401),
        "after its minute": (_token(age_s=61), 503),
        "of another day": (_token(age_s=86_400), 503),
        "of tomorrow": (_token(age_s=-86_400), 503),
    }


@pytest.mark.parametrize("name", NAMES)
async def test_no_operation_answers_without_a_signed_principal(
    services: Mapping[str, tuple[Service, str]], name: str
) -> None:
    """All operations of the service with every bad token; a good one is told from them."""
    service, url = services[name]
    document = msgspec.json.encode({"scope_id": GARDEN})
    async with aiohttp.ClientSession() as session:
        remote = RemoteOperations(session, url)
        for kind, (token, status) in _bad(name).items():
            for operation in service.operations:
                answer = await remote.call(Call(operation, token, document))
                error = orjson.loads(answer.body)["error"]
                assert answer.status == status, (kind, operation, answer)
                assert error["code"] == ("access_denied" if status == 401 else "service_unavailable")
                assert not token or token not in answer.body.decode()
        for operation in service.operations:
            answer = await remote.call(Call(operation, _token(), document))
            assert answer.status != 401, (operation, answer)


@pytest.mark.parametrize(
    ("name", "method", "path"),
    [
        ("write", "POST", "/v1/import?scope_id=workspace:garden"),
        ("query", "POST", "/v1/export"),
        ("subscription", "GET", "/v1/subscriptions/sub:1/stream"),
    ],
)
async def test_no_stream_opens_without_a_signed_principal(
    services: Mapping[str, tuple[Service, str]], name: str, method: str, path: str
) -> None:
    _, url = services[name]
    async with aiohttp.ClientSession() as session:
        for kind, (token, status) in _bad(name).items():
            headers = {HEADER: token, "Authorization": f"Bearer {token}"} if token else {}
            async with session.request(method, url + path, headers=headers, data=b"{}") as response:
                assert response.status == status, (kind, await response.text())
        # A key of the public door is nothing here.
        async with session.request(
            method, url + path, headers={"Authorization": "Bearer pam_x"}, data=b"{}"
        ) as response:
            assert response.status == 401


async def test_a_replayed_principal_is_good_for_its_minute_alone(services: Mapping[str, tuple[Service, str]]) -> None:
    """Verified before or not: what was kept of it ends with it."""
    _, url = services["write"]
    nearly = _token(age_s=57)
    async with aiohttp.ClientSession() as session:
        remote = RemoteOperations(session, url)
        call = Call("get_operation", nearly, msgspec.json.encode({"scope_id": GARDEN, "operation_id": "op:1"}))
        deadline = time.monotonic() + 60
        statuses = [(await remote.call(call)).status]
        while statuses[-1] != 503 and time.monotonic() < deadline:
            statuses.append((await remote.call(call)).status)
    assert statuses[-1] == 503
    assert 401 not in statuses
