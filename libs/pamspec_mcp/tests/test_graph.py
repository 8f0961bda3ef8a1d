"""The nine tools over a scope, as desktop hosts call them, by many writers at once."""

import asyncio
import itertools
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio
from mcp import Client

from libs.pamspec_mcp.tests.conftest import MODES, host
from pamspec_common import contracts
from pamspec_common.calls import Answer
from pamspec_mcp.handlers.graph import erasing, writing
from pamspec_mcp.handlers.graph.reading import Place
from pamspec_mcp.handlers.graph.writing import Unknown
from pamspec_mcp.model.graph_tools import TOOLS
from services.gateway.tests.whole import SCOPE, Whole

_numbers = itertools.count(1)
WRITERS = 100


@pytest_asyncio.fixture(loop_scope="session")
async def scope(whole: Whole) -> str:
    """A scope of this test alone."""
    scope_id = f"workspace:graph-{next(_numbers)}"
    status, body = await whole.post("create_scope", {"scope_id": scope_id})
    assert status == 200, body
    return scope_id


@pytest_asyncio.fixture(loop_scope="session")
async def path(scope: str) -> str:
    """The address of the scope's graph."""
    return f"/mcp/graph?scope={scope}"


async def done(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """The answer of a tool that must succeed."""
    answer = await client.call_tool(tool, arguments)
    assert not answer.is_error, answer
    document: dict[str, Any] = answer.structured_content
    return document


async def refused(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """The error of a tool that must be refused."""
    answer = await client.call_tool(tool, arguments)
    assert answer.is_error, answer
    contracts.check("error", answer.structured_content)
    error: dict[str, Any] = answer.structured_content["error"]
    return error


def entity(name: str, *observations: str, kind: str = "person") -> dict[str, Any]:
    """An entity as hosts send it."""
    return {"name": name, "entityType": kind, "observations": list(observations)}


def relation(source: str, kind: str, target: str) -> dict[str, Any]:
    """A relation as hosts send it."""
    return {"from": source, "to": target, "relationType": kind}


@pytest.mark.parametrize("mode", MODES)
async def test_nine_tools_and_their_whole_life(whole: Whole, path: str, mode: str) -> None:
    async with host(whole.url, whole.key, path, mode=mode) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == set(TOOLS)
        ada, bert = entity("Ada", "speaks Welsh", "likes tea"), entity("Bert")
        assert (await done(client, "create_entities", entities=[ada, bert]))["entities"] == [ada, bert]
        assert (await done(client, "create_entities", entities=[entity("Ada", "ignored")]))["entities"] == []
        knows = relation("Ada", "knows", "Bert")
        works = relation("Bert", "works at: the “depot” 🏗", "Ada")
        assert (await done(client, "create_relations", relations=[knows, works]))["relations"] == [knows, works]
        assert (await done(client, "create_relations", relations=[works, knows]))["relations"] == []
        told = [{"entityName": "Ada", "contents": ["likes tea", "rows"]}, {"entityName": "Bert", "contents": ["rows"]}]
        assert (await done(client, "add_observations", observations=told))["results"] == [
            {"entityName": "Ada", "addedObservations": ["rows"]},
            {"entityName": "Bert", "addedObservations": ["rows"]},
        ]
        graph = await done(client, "read_graph")
        assert graph["entities"] == [entity("Ada", "speaks Welsh", "likes tea", "rows"), entity("Bert", "rows")]
        assert graph["relations"] == [knows, works]
        for text, names in {"WELSH": ["Ada"], "person": ["Ada", "Bert"], "ber": ["Bert"], "nothing": []}.items():
            found = await done(client, "search_nodes", query=text)
            assert [one["name"] for one in found["entities"]] == names
        opened = await done(client, "open_nodes", names=["Bert", "Nobody"])
        assert [one["name"] for one in opened["entities"]] == ["Bert"]
        assert opened["relations"] == [knows, works]
        await done(client, "delete_observations", deletions=[{"entityName": "Ada", "observations": ["rows", "none"]}])
        await done(client, "delete_relations", relations=[works, relation("Ada", "none", "Nobody")])
        graph = await done(client, "read_graph")
        assert graph["entities"][0] == entity("Ada", "speaks Welsh", "likes tea")
        assert graph["relations"] == [knows]
        await done(client, "delete_entities", entityNames=["Ada", "Nobody"])
        assert await done(client, "read_graph") == {"entities": [entity("Bert", "rows")], "relations": []}


async def test_what_was_deleted_can_be_said_again(whole: Whole, path: str) -> None:
    async with host(whole.url, whole.key, path) as client:
        for _ in range(3):
            await done(client, "create_entities", entities=[entity("Ada", "rows"), entity("Bert")])
            await done(client, "create_relations", relations=[relation("Ada", "knows", "Bert")])
            for _ in range(3):
                one = [{"entityName": "Ada", "observations": ["rows"]}]
                await done(client, "delete_observations", deletions=one)
                again = await done(
                    client, "add_observations", observations=[{"entityName": "Ada", "contents": ["rows"]}]
                )
                assert again["results"][0]["addedObservations"] == ["rows"]
            assert entity("Ada", "rows") in (await done(client, "read_graph"))["entities"]
            await done(client, "delete_entities", entityNames=["Ada"])
            assert (await done(client, "read_graph"))["relations"] == []


async def test_what_is_deleted_is_erased_and_leaves_no_orphan(whole: Whole, scope: str, path: str) -> None:
    async with host(whole.url, whole.key, path) as client:
        await done(client, "create_entities", entities=[entity("Ada", "SECRET-77"), entity("Bert")])
        await done(client, "create_relations", relations=[relation("Ada", "told of SECRET-77", "Bert")])
        await done(client, "delete_entities", entityNames=["Ada"])
    where = {
        "or": [
            {"field": "object_type", "op": "eq", "value": "observation"},
            {"field": "source_object_id", "op": "exists", "value": True},
        ]
    }
    status, body = await whole.post(
        "query", {"scope_id": scope, "query": {"kind": "structured", "trust": "all", "where": where}}
    )
    assert status == 200, body
    assert b"SECRET-77" not in body


async def test_a_hundred_writers_lose_nothing(whole: Whole, path: str) -> None:
    """All say the same and each something of its own, over two sessions, about the same nodes."""
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(host(whole.url, whole.key, path, mode=mode)) for mode in MODES]
        shared = [entity(f"node {number}", "shared") for number in range(5)]
        made = await asyncio.gather(
            *(
                done(clients[number % 2], "create_entities", entities=[*shared, entity(f"own {number}", "first")])
                for number in range(WRITERS)
            )
        )
        new = [one["name"] for answer in made for one in answer["entities"]]
        assert len(new) == len(set(new)) == 5 + WRITERS
        told = await asyncio.gather(
            *(
                done(
                    clients[number % 2],
                    "add_observations",
                    observations=[{"entityName": "node 0", "contents": ["said by all", f"said by {number}"]}],
                )
                for number in range(WRITERS)
            )
        )
        added = [text for answer in told for one in answer["results"] for text in one["addedObservations"]]
        assert len(added) == len(set(added)) == 1 + WRITERS
        await asyncio.gather(
            *(
                done(
                    clients[number % 2],
                    "create_relations",
                    relations=[relation("node 0", "knows", "node 1"), relation("node 1", "made", f"own {number}")],
                )
                for number in range(WRITERS)
            )
        )
        graph = await done(clients[0], "read_graph")
        pages = [graph]
        while "next_cursor" in pages[-1]:
            pages.append(await done(clients[0], "read_graph", cursor=pages[-1]["next_cursor"]))
    names = [one["name"] for page in pages for one in page["entities"]]
    assert sorted(set(names)) == sorted(
        [f"node {number}" for number in range(5)] + [f"own {number}" for number in range(WRITERS)]
    )
    said = [
        text for page in pages for one in page["entities"] if one["name"] == "node 0" for text in one["observations"]
    ]
    assert sorted(said) == sorted(["shared", "said by all", *(f"said by {number}" for number in range(WRITERS))])
    relations = [(one["from"], one["relationType"], one["to"]) for page in pages for one in page["relations"]]
    assert sorted(relations) == sorted(
        [("node 0", "knows", "node 1"), *(("node 1", "made", f"own {number}") for number in range(WRITERS))]
    )


async def test_adding_to_what_is_deleted_meanwhile_leaves_nothing(whole: Whole, scope: str, path: str) -> None:
    """The entity is deleted after it was found, and before anything is said of it."""

    async def plain(operation: str, document: bytes) -> Answer:
        return Answer(*await whole.post(operation, document))

    deleted = False

    async def interposed(operation: str, document: bytes) -> Answer:
        nonlocal deleted
        if operation == "batch" and not deleted:
            deleted = True
            await erasing.delete_entities(Place(plain, scope), ["Ada"])
        return await plain(operation, document)

    async with host(whole.url, whole.key, path) as client:
        await done(client, "create_entities", entities=[entity("Ada")])
        with pytest.raises(Unknown):
            await writing.observe(Place(interposed, scope), {"Ada": ["told too late"]})
        assert deleted
        assert (await done(client, "read_graph"))["entities"] == []
    where = {"field": "object_type", "op": "eq", "value": "observation"}
    status, body = await whole.post(
        "query", {"scope_id": scope, "query": {"kind": "structured", "trust": "working", "where": where}}
    )
    assert status == 200, body
    assert b"told too late" not in body


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("create_entities", {}),
        ("create_entities", {"entities": [{"name": "Ada", "entityType": "person"}]}),
        ("create_entities", {"entities": [{"name": "", "entityType": "person", "observations": []}]}),
        ("create_entities", {"entities": [{"name": "Ada", "entityType": 7, "observations": []}]}),
        ("create_entities", {"entities": [], "scope_id": SCOPE}),
        ("add_observations", {"observations": [{"entityName": "Ada", "contents": "rows"}]}),
        ("create_relations", {"relations": [{"from": "Ada", "to": "Bert"}]}),
        ("read_graph", {"cursor": "e0"}),
        ("read_graph", {"cursor": "x1.1"}),
        ("search_nodes", {"query": None}),
        ("open_nodes", {"names": [{"$ne": None}]}),
    ],
)
async def test_malformed_arguments_are_refused_whole(
    whole: Whole, path: str, tool: str, arguments: dict[str, Any]
) -> None:
    async with host(whole.url, whole.key, path) as client:
        assert (await refused(client, tool, **arguments))["code"] == "invalid_request"
        assert (await done(client, "read_graph"))["entities"] == []


async def test_a_name_that_nobody_has_is_told_by_its_place(whole: Whole, path: str) -> None:
    async with host(whole.url, whole.key, path) as client:
        await done(client, "create_entities", entities=[entity("Ada")])
        told = [{"entityName": "Ada", "contents": ["rows"]}, {"entityName": "Nobody", "contents": ["rows"]}]
        error = await refused(client, "add_observations", observations=told)
        assert (error["code"], error["details"]) == ("object_not_found", {"indexes": [1]})
        assert "Nobody" not in error["message"]
        error = await refused(client, "create_relations", relations=[relation("Ada", "knows", "Nobody")])
        assert error["details"] == {"indexes": [0]}
        assert (await done(client, "read_graph"))["entities"] == [entity("Ada")]


async def test_another_tenants_graph_is_not_there(whole: Whole, stranger: str, path: str) -> None:
    async with host(whole.url, whole.key, path) as client:
        await done(client, "create_entities", entities=[entity("Ada")])
    async with host(whole.url, stranger, path) as client:
        calls: dict[str, dict[str, Any]] = {
            "read_graph": {},
            "open_nodes": {"names": ["Ada"]},
            "create_entities": {"entities": [entity("Eve")]},
            "delete_entities": {"entityNames": ["Ada"]},
        }
        for tool, arguments in calls.items():
            assert (await refused(client, tool, **arguments))["code"] == "scope_not_found"
    async with host(whole.url, whole.key, path) as client:
        assert (await done(client, "read_graph"))["entities"] == [entity("Ada")]
