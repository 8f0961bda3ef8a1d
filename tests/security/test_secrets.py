"""Neither content nor credentials in an error, a log line, a metric or a readiness page, however a request fails."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from pamspec_common import contracts
from services.gateway.tests.behind import PEPPER
from tests.security.people import GARDEN, People

EXAMPLES = Path(__file__).resolve().parents[2] / "contracts" / "examples" / "valid"
WORDS = "the safe opens with 4711 to the left"
OPERATIONS = [name for name, one in contracts.operations().items() if one.public and one.streams is None]


def _spoken(value: Any, *, everywhere: bool) -> Any:
    """The document with the words in every text of it, or in every text that is not an id."""
    if isinstance(value, dict):
        return {name: _spoken(below, everywhere=everywhere) for name, below in value.items()}
    if isinstance(value, list):
        return [_spoken(below, everywhere=everywhere) for below in value]
    if isinstance(value, str) and (everywhere or ":" not in value):
        return WORDS
    return value


def _wrong(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Documents that break in many ways and say the words in all of them."""
    spoken = _spoken(document, everywhere=False) | {"scope_id": GARDEN}
    found = [spoken, _spoken(document, everywhere=True), {**document, "colour": WORDS}]
    for name in document:
        found += [{**document, name: wrong} for wrong in (WORDS, [WORDS], {"a": {"b": [WORDS]}})]
        found += [{**spoken, name: 7}]
    return found


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_no_error_and_no_log_repeats_what_was_sent(
    people: People, operation: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Words that were sent come back in answers of what was asked for, and never in a refusal or a log line."""
    examples = [json.loads(path.read_bytes()) for path in sorted((EXAMPLES / f"{operation}.request").glob("*.json"))]
    with caplog.at_level(logging.DEBUG):
        for document in examples[:2]:
            for wrong in _wrong(document):
                wrong.pop("wait_ms", None)
                answer = await people.owner.ask(operation, wrong)
                assert answer.status < 500 or answer.status == 503, (wrong, answer)
                assert answer.status < 400 or WORDS.encode() not in answer.body, (wrong, answer)
    assert WORDS not in caplog.text
    assert people.owner.key not in caplog.text


async def test_no_page_shows_a_credential(people: People, caplog: pytest.LogCaptureFixture) -> None:
    """Keys, right and wrong, the pepper and the words of content: on no page, in no metric, in no log line."""
    wrong = "pam_" + "B" * 43
    with caplog.at_level(logging.DEBUG):
        await people.owner.create(GARDEN, canonical_content={"statement": WORDS})
        async with aiohttp.ClientSession() as session:
            for key in (people.owner.key, wrong):
                for page in ("/metrics", "/readyz", "/healthz", "/docs", "/openapi.json", "/v1/scopes", "/v1/nowhere"):
                    headers = {"Authorization": f"Bearer {key}"}
                    async with session.get(f"{people.product.url}{page}", headers=headers) as response:
                        text = await response.text()
                    for secret in (people.owner.key, wrong, PEPPER, WORDS, "a key between services"):
                        assert secret not in text, page
                        assert secret not in str(response.headers), page
    for secret in (people.owner.key, wrong, PEPPER, WORDS, "a key between services"):
        assert secret not in caplog.text
