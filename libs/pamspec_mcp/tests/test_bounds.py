"""Large answers: no result is too large for a host, no cut falls inside a character, and nothing is out of reach."""

import json
from typing import Any

import mcp_types as types
import pytest
from mcp import Client

from libs.pamspec_mcp.tests.conftest import MODES, host, made
from pamspec_common.ids import mint
from pamspec_mcp.model import cursors, graph_pages
from pamspec_mcp.model.bounds import Bounds, cut
from pamspec_mcp.model.cursors import BadCursor, Cursor
from pamspec_mcp.model.graph import Entity, Graph, Observation, Relation
from services.gateway.tests.whole import Whole

WIDTHS = {1: "a", 2: "ä", 3: "☂", 4: "🏗"}
MOST = 20_000 * 3


def size(result: types.CallToolResult) -> int:
    """The bytes of a result, as a host reads them: its text and its structured content."""
    text = "".join(block.text for block in result.content if isinstance(block, types.TextContent))
    return len(text.encode()) + len(json.dumps(result.structured_content, ensure_ascii=False).encode())


async def asked(client: Client, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """A result that succeeds and is no larger than a host can take."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result
    assert size(result) <= MOST
    document: dict[str, Any] = result.structured_content
    return document


async def joined(client: Client, document: dict[str, Any]) -> Any:
    """The document whose parts begin with that one."""
    text = ""
    while True:
        part = document["truncated"]
        assert part["from"] == len(text)
        text += part["part"]
        if part["cursor"] is None:
            assert part["of"] == len(text)
            return json.loads(text)
        document = await asked(client, "pamspec.continue", {"cursor": part["cursor"]})


async def own_scope(whole: Whole) -> str:
    """A scope of one test."""
    scope_id = mint("workspace")
    status, body = await whole.post("create_scope", {"scope_id": scope_id})
    assert status == 200, body
    return scope_id


@pytest.mark.parametrize("width", WIDTHS)
def test_cuts_fall_between_characters_wherever_they_fall(width: int) -> None:
    for before in range(5):
        text = "b" * before + WIDTHS[width] * 50 + '"\\\n' * 5
        for most in range(1, 60):
            parts: list[str] = []
            begin = 0
            while begin < len(text):
                part = cut(text, begin, most)
                assert part
                assert part.encode().decode() == part
                assert len(part) == 1 or len(json.dumps(part, ensure_ascii=False).encode()) - 2 <= most
                parts.append(part)
                begin += len(part)
            assert "".join(parts) == text


@pytest.mark.parametrize(("mode", "width"), [("legacy", 1), ("legacy", 2), ("legacy", 3), ("legacy", 4), (MODES[1], 4)])
async def test_a_large_memory_is_read_in_parts(whole: Whole, mode: str, width: int) -> None:
    scope_id = await own_scope(whole)
    async with host(whole.url, whole.key, mode=mode) as client:
        for before in range(4):
            text = "b" * before + WIDTHS[width] * (45_000 // width)
            first = await client.call_tool(
                "pamspec.create",
                {
                    "scope_id": scope_id,
                    "object_type": "claim",
                    "canonical_content": {"statement": text},
                    "provenance": {"activity": "told"},
                },
            )
            assert not first.is_error, first
            assert size(first) <= MOST
            written = await joined(client, first.structured_content)
            assert written["envelope"]["canonical_content"]["statement"] == text
            ids = {"scope_id": scope_id, "object_id": written["object_id"]}
            read = await joined(client, await asked(client, "pamspec.read", ids))
            assert read["envelope"] == written["envelope"]
            if mode == "legacy":
                await client.send_ping()


@pytest.mark.parametrize("mode", MODES)
async def test_lists_end_where_a_host_can_take_them_and_lose_nothing(whole: Whole, mode: str) -> None:
    scope_id = await own_scope(whole)
    items = [
        {
            "operation": "create",
            "object_type": "claim",
            "canonical_content": {"statement": f"{number} " + WIDTHS[1 + number % 4] * 4000},
            "provenance": {"activity": "told"},
        }
        for number in range(40)
    ]
    status, body = await whole.post("batch", {"scope_id": scope_id, "items": items})
    assert status == 200, body
    everything = {one["object_id"] for one in json.loads(body)["results"]}
    calls: dict[str, tuple[str, dict[str, Any]]] = {
        "pamspec.query": ("items", {"query": {"kind": "structured", "trust": "working"}}),
        "pamspec.inspect_history": ("events", {"after_sequence": 0}),
    }
    async with host(whole.url, whole.key, mode=mode) as client:
        for tool, (member, arguments) in calls.items():
            seen: list[str] = []
            cursor: str | None = None
            while True:
                page = {"pagination": {"limit": 50, "cursor": cursor}} if cursor else {}
                answer = await asked(client, tool, {"scope_id": scope_id, **arguments, **page})
                for one in answer[member]:
                    found = one.get("envelope", one).get("object_id")
                    seen += [found] if found in everything else []
                cursor = answer["next_cursor"]
                if cursor is None:
                    break
            assert sorted(seen) == sorted(everything)


async def test_a_poll_gives_what_fits_and_acknowledges_no_more(whole: Whole) -> None:
    scope_id = await own_scope(whole)
    async with host(whole.url, whole.key) as client:
        opened = await asked(client, "pamspec.subscribe", {"scope_id": scope_id, "include_content": True})
        ids = [(await made(client, f"{number} " + "x" * 9000, scope_id=scope_id))["object_id"] for number in range(12)]
        seen: list[str] = []
        position = opened["start_sequence"]
        while len(seen) < len(ids):
            arguments = {"subscription_id": opened["subscription_id"], "after_sequence": position, "wait_ms": 20_000}
            answer = await asked(client, "pamspec.poll", arguments)
            seen += [event["object_id"] for event in answer["events"] if "object_id" in event]
            assert set(answer["envelopes"]) <= {event.get("version_id") for event in answer["events"]}
            position = answer["next_after_sequence"]
        assert seen == ids


async def test_a_cursor_opens_nothing_and_joins_no_two_answers(whole: Whole, stranger: str) -> None:
    scope_id = await own_scope(whole)
    async with host(whole.url, whole.key) as client:
        first = await made(client, "Short.", scope_id=scope_id)
        ids = {"scope_id": scope_id, "object_id": first["object_id"]}
        content = {"provenance": {"activity": "told"}, "canonical_content": {"statement": "y" * 100_000}}
        change = {**ids, **content, "expected_version_id": first["version_id"]}
        assert not (await client.call_tool("pamspec.update", change)).is_error
        cursor = (await asked(client, "pamspec.read", ids))["truncated"]["cursor"]
        async with host(whole.url, stranger) as other:
            refusal = await other.call_tool("pamspec.continue", {"cursor": cursor})
            assert refusal.structured_content["error"]["code"] == "scope_not_found"
        whole_read = await joined(client, await asked(client, "pamspec.read", ids))
        change["expected_version_id"] = whole_read["envelope"]["version_id"]
        change["canonical_content"] = {"statement": "z" * 100_000}
        assert not (await client.call_tool("pamspec.update", change)).is_error
        refusal = await client.call_tool("pamspec.continue", {"cursor": cursor})
        assert refusal.structured_content["error"]["details"] == {"reason": "answer_changed"}
        for bad in (None, 7, "", "nonsense", cursor[:-5], Cursor("create", {}, 0, "").written()):
            refusal = await client.call_tool("pamspec.continue", {"cursor": bad})
            assert refusal.structured_content["error"]["details"] == {"field": "cursor"}


def test_a_cursor_that_swells_is_refused() -> None:
    with pytest.raises(BadCursor):
        cursors.read(Cursor("read", {"text": "a" * 1_000_000}, 0, "").written())


def test_the_pages_of_a_graph_joined_are_the_graph() -> None:
    entities = tuple(Entity(f"entity:{n}", "ver:1", f"name {n} {WIDTHS[1 + n % 4]}", "kind") for n in range(30))
    said = tuple(
        Observation(f"observation:{n}:{m}", "ver:1", f"entity:{n}", WIDTHS[1 + m % 4] * (n * m % 37))
        for n in range(30)
        for m in range(n)
    )
    relations = tuple(Relation(f"rel:{n}", "ver:1", f"entity:{n}", "entity:0", "joins") for n in range(30))
    graph = Graph(entities, said, relations)
    texts = graph.texts()
    for most in (700, 1000, 5000, 100_000):
        seen: dict[str, list[str]] = {}
        joins: list[str] = []
        begin = None
        while True:
            page = graph_pages.page(graph, None, begin, most)
            assert len(json.dumps(page, ensure_ascii=False, separators=(",", ":")).encode()) <= most
            assert "truncated" not in page
            for one in page["entities"]:
                seen.setdefault(one["name"], []).extend(one["observations"])
            joins += [one["from"] for one in page["relations"]]
            if "next_cursor" not in page:
                break
            begin = graph_pages.position(page["next_cursor"])
            assert begin is not None
        assert seen == {one.name: texts[one.object_id] for one in entities}
        assert joins == [one.name for one in entities]


@pytest.mark.parametrize("width", WIDTHS)
def test_an_observation_that_fits_nowhere_is_cut_between_characters(width: int) -> None:
    entity = Entity("entity:1", "ver:1", WIDTHS[width] * 2000, "kind")
    said = tuple(Observation(f"observation:{n}", "ver:1", "entity:1", WIDTHS[width] * 5000) for n in range(3))
    begin, seen = None, []
    for _ in range(10):
        page = graph_pages.page(Graph((entity,), said, ()), None, begin, 3000)
        assert len(json.dumps(page, ensure_ascii=False, separators=(",", ":")).encode()) <= 3000
        assert page["truncated"] is True
        seen += page["entities"][0]["observations"]
        if "next_cursor" not in page:
            break
        begin = graph_pages.position(page["next_cursor"])
    assert len(seen) == 3
    assert all(text and set(text) == {WIDTHS[width]} for text in seen)


def test_bounds_count_both_halves_of_a_result() -> None:
    bounds = Bounds(20_000)
    assert 2 * bounds.document_bytes <= bounds.result_bytes == MOST
