"""No secret in what the processes say, at the most talkative level, whatever clients do well or badly."""

import secrets
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest_asyncio

from pamspec_cli.deployment import SERVICES
from pamspec_common import contracts
from tests.integration.harness import Fleet, deployed
from tests.integration.plain_http import Document, Http, in_own_scope

BASIS = {"policy_basis": "test"}


@pytest_asyncio.fixture(loop_scope="session")
async def talkative() -> AsyncIterator[Fleet]:
    """A deployment that logs everything, and writes every span to its log."""
    variables = {"PAMSPEC_LOG_LEVEL": "DEBUG", "PAMSPEC_DENIAL_WINDOW_S": "1", "OTEL_TRACES_EXPORTER": "console"}
    async with deployed(variables) as fleet:
        yield fleet


def of_deployment(fleet: Fleet) -> Iterator[tuple[str, str]]:
    """The secrets that the processes were started with, by name."""
    yield "the development key", fleet.key.text
    yield "the pepper of keys", fleet.deployment.key_pepper
    for kid, key in fleet.deployment.token_keys.items():
        yield f"the key between services {kid}", key
    for service in SERVICES:
        for name, value in fleet.deployment.variables(service).items():
            if "SEED" in name or name in ("PAMSPEC_CHECKPOINT_KEY",):
                yield name, value
            password = urlsplit(value).password if "://" in value else None
            if password:
                yield f"the password in {name} of {service}", password


def found_in(document: Any) -> Iterator[str]:
    """Every text of an answer under a name that says secret."""
    if isinstance(document, dict):
        for name, value in document.items():
            if "secret" in name and isinstance(value, str):
                yield value
            yield from found_in(value)
    elif isinstance(document, list):
        for value in document:
            yield from found_in(value)


async def session(http: Http) -> list[tuple[str, str]]:
    """Everything once, well and badly; the secrets that answers have told."""
    told: list[tuple[str, str]] = []

    async def done(path: str, document: Document) -> Document:
        url = f"{http.fleet['gateway'].url}/v1/{path}"
        async with http.session.post(url, json=document, headers=http.fleet.headers) as answer:
            body: Document = await answer.json()
            assert answer.status < 300, body
        told.extend((f"of {path}", text) for text in found_in(body))
        return body

    content = f"content {secrets.token_urlsafe(16)}"
    made = await http.claim({"n": 1, "told": content})
    await http.update(made, {"n": 2, "told": content})
    # Refused by its schema, and under a type that is none: errors do not repeat what they refuse.
    refused = {"canonical_content": {"told": content}, "provenance": {"activity": content}}
    for wrong_type in ("tool_result", "no-such-type"):
        assert (await http.call("create", {"object_type": wrong_type, **refused})).status >= 400
    where = {"field": "/told", "op": "eq", "value": content}
    await http.call("query", {"query": {"kind": "structured", "where": where}})
    key = await done("create_key", {"actor_id": "agent:talker", "actor_kind": "agent", "roles": ["reader"], **BASIS})
    await done("rotate_key", {"key_id": key["key"]["key_id"], **BASIS})
    webhook = {"channel": "webhook", "webhook": {"url": "http://127.0.0.1:1/hook"}}
    await http.call("subscribe", webhook)
    bearer = told[0][1]
    told.append(("content", content))
    await http.call("create", http.made({"n": 3}), bearer=bearer)
    wrong = secrets.token_urlsafe(32)
    told.append(("a wrong key", wrong))
    jwt = f"eyJhbGciOiJub25lIn0.{secrets.token_urlsafe(40)}.{secrets.token_urlsafe(20)}"
    told.append(("a token", jwt))
    for credential in (wrong, jwt):
        assert (await http.call("query", {"query": {"kind": "structured"}}, bearer=credential)).status == 401
    for operation, one in contracts.operations().items():
        if one.public and one.streams is None:
            for document in ({}, {"colour": "blue"}, {"object_id": "obj:none", "expected_version_id": "ver:none"}):
                answer = await http.call(operation, document)
                told.extend((f"of {operation}", text) for text in found_in(answer.document))
    return told


async def test_no_process_says_a_secret(talkative: Fleet) -> None:
    async with in_own_scope(talkative) as http:
        told = [*of_deployment(talkative), *await session(http)]
        said = {}
        for service in SERVICES:
            for page in ("/metrics", "/readyz", "/healthz"):
                async with http.session.get(talkative[service].url + page) as answer:
                    said[service + page] = await answer.text()
    for service in reversed(SERVICES):
        await talkative.terminate(service)
    said.update(talkative.logs(10_000))
    for log in (talkative.data.path / "services").glob("*/*.log"):
        said[log.name] = log.read_text()
    assert len(told) > 12
    assert any('"level":"debug"' in text for text in said.values()), "the processes are talkative"
    assert any('"name": "write/create"' in text for text in said.values()), "the processes write their spans"
    for name, secret in told:
        for where, text in said.items():
            assert secret not in text, f"{name} in {where}"
