"""Words of ranked queries: of any script, without syntax, bounded, and none that only hidden memories hold."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from services.query.tests.asking import SCOPE, item_name, names
from services.query.tests.door import Conn, Door
from services.query.tests.indexed import index, lexical
from services.query.tests.seeds import Scope
from services.query.tests.test_rights import NO_DECISIONS, reader, rules


async def test_what_is_hidden_weighs_no_words(seeding: Conn, door: Door) -> None:
    """How rare a word is tells of every text that has it: who sees a part is answered by that part alone."""
    scope = Scope(SCOPE)
    texts = ("harvest and rain", "rain on the roof", "harvest moon", "a moon of rain, and rain again", "nothing")
    for number, text in enumerate(texts):
        scope.put(f"obj:{number}", {"text": text}, object_type="claim")
    await scope.flush(seeding)
    await index(seeding, scope)
    await rules(seeding, NO_DECISIONS, scope)
    guest = reader(door, "reader")
    asked = 'rain harvest moon "harvest moon"'
    whole: dict[str, Any] = {"scope_id": SCOPE, "query": lexical(asked), "explain_ranking": True, "count": "bounded"}
    exact = {**whole, "query": lexical('"harvest moon"'), "exact": True}

    async def told(by: Door) -> list[Any]:
        found = [await by.ok("query", **one) for one in (whole, exact)]
        return [(one["items"], one["count"], [each["complete"] for each in one["index"]["lists"]]) for one in found]

    before = await told(guest)
    for number in range(60):
        text = "harvest moon " * (number % 3 + 1) + "la récolte et la pluie dans le jardin " * (number % 2 * 20)
        scope.put(f"obj:secret{number}", {"text": text}, object_type="decision")
    await scope.flush(seeding)
    await index(seeding, scope)
    assert await told(guest) == before
    assert {item_name(item) for item in before[0][0]} == {"0", "1", "2", "3"}


async def test_the_same_state_gives_the_same_bytes(seeding: Conn, door: Door) -> None:
    """P156."""
    scope = Scope(SCOPE)
    for number in range(40):
        scope.put(f"obj:{number}", {"text": "rain in the garden " * (1 + number % 4)})
    await scope.flush(seeding)
    await index(seeding, scope)
    document = {"scope_id": SCOPE, "query": lexical("garden rain"), "explain_ranking": True, "pagination": {"limit": 7}}
    bodies = {(await door.raw("query", orjson.dumps(document))).body for _ in range(5)}
    assert len(bodies) == 1


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("今日は成語しりとりをした", "しりとり"),
        ("人工智能技术发展迅速", "人工智能"),
        ("오늘 끝말잇기", "끝말잇기"),
        ("see C:\\x\\y.py for it", "C:\\x\\y.py"),
        ("foo/bar is a path", "foo/bar"),
    ],
)
async def test_words_of_any_script_are_found(seeding: Conn, door: Door, text: str, query: str) -> None:
    """M066, M068."""
    scope = Scope(SCOPE)
    scope.put("obj:it", {"text": text})
    scope.put("obj:other", {"text": "something else in English"})
    await scope.flush(seeding)
    await index(seeding, scope)
    assert await names(door, lexical(query)) == ["it"]


@pytest.mark.parametrize("text", ["(((", "AND OR NOT", ":*", "&/!", "' OR 1=1 --", "%_", '"', "\\", "🙂", "\x01"])
async def test_texts_have_no_syntax(seeding: Conn, door: Door, text: str) -> None:
    """M068: every text is looked for literally, and none fails."""
    scope = Scope(SCOPE)
    scope.put("obj:x", {"text": "rain"})
    await scope.flush(seeding)
    await index(seeding, scope)
    assert await names(door, lexical(text)) == []


async def test_a_long_text_is_clamped_with_a_mark(seeding: Conn, door: Door) -> None:
    """M054."""
    scope = Scope(SCOPE)
    scope.put("obj:x", {"text": "rain"})
    await scope.flush(seeding)
    await index(seeding, scope)
    found = await door.ok("query", scope_id=SCOPE, query=lexical("rain " + "word " * 40_000))
    assert [item_name(item) for item in found["items"]] == ["x"]
    assert found["index"]["text_clamped"] is True
