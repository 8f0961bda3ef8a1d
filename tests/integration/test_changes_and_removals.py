"""What users of such systems ran into with updates, identity and removal, over HTTP at two doors."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.integration.harness import SECOND_DOOR, Fleet
from tests.integration.plain_http import Answer, Document, Http, in_own_scope

BASIS = {"policy_basis": "test"}
PROVENANCE = {"activity": "test"}
CLIENTS = 20


@pytest_asyncio.fixture(loop_scope="session")
async def http(fleet: Fleet) -> AsyncIterator[Http]:
    async with in_own_scope(fleet) as http:
        yield http


def following(of: Document, **more: Any) -> Document:
    """What names an object and the version that a change follows."""
    return {"object_id": of["object_id"], "expected_version_id": of["version_id"], **more}


async def at_once(http: Http, operation: str, documents: list[Document]) -> list[Answer]:
    """These requests from as many clients at once, in turns at the two doors."""
    doors = ("gateway", SECOND_DOOR)
    return await asyncio.gather(
        *(http.call(operation, document, door=doors[number % 2]) for number, document in enumerate(documents))
    )


def one_won(answers: list[Answer], losers: set[str]) -> Document:
    """The answer of the only winner; the others were refused with one of these codes, and none with a 5xx."""
    won = [answer for answer in answers if answer.code is None]
    assert len(won) == 1, [answer.code for answer in answers]
    assert {answer.code for answer in answers} - {None} <= losers
    assert all(answer.status < 500 for answer in answers)
    return won[0].document


CHANGES: dict[str, Document] = {
    "update": {"canonical_content": {"n": 2}, "provenance": PROVENANCE},
    "transition": {"dimension": "lifecycle", "target_state": "deprecated", **BASIS},
    "redact": {"redaction_target": {"paths": ["/n"]}, **BASIS},
    "delete": BASIS,
}


@pytest.mark.parametrize("operation", CHANGES)
async def test_of_twenty_stale_clients_one_wins_whatever_they_do(operation: str, http: Http) -> None:
    """M020: twenty changes that follow one version make one version, and the losers learn the current one."""
    made = await http.claim({"n": 1, "kept": True})
    answers = await at_once(http, operation, [following(made, **CHANGES[operation])] * CLIENTS)
    removed = {"object_deleted"} if operation == "delete" else set()
    winner = one_won(answers, {"version_conflict"} | removed)
    for answer in answers:
        if answer.code == "version_conflict":
            assert answer.document["error"]["details"]["current_version_id"] == winner["version_id"]
    assert winner["sequence"] == 2
    if operation != "delete":
        versions = await http.versions(made["object_id"])
        assert [version["version_id"] for version in versions] == [made["version_id"], winner["version_id"]]


async def test_of_twenty_promotes_and_relates_one_wins(http: Http) -> None:
    """M020: working memory is promoted once; two objects are joined once; an edge has one next version."""
    content = {"task_ref": "task:1", "purpose": "plan", "content": {}}
    memory = {"object_type": "working_memory", "canonical_content": content, "provenance": PROVENANCE}
    source = (await http.call("create", memory)).document
    promote = {
        "source_object_id": source["object_id"],
        "expected_version_id": source["version_id"],
        "target_object_type": "task",
        "target_canonical_content": {"title": "dig"},
        "provenance": PROVENANCE,
    }
    one_won(await at_once(http, "promote", [promote] * CLIENTS), {"version_conflict", "invalid_state_transition"})
    one, other = await http.claim({"n": 1}), await http.claim({"n": 2})
    ends = {
        "source_object_id": one["object_id"],
        "target_object_id": other["object_id"],
        "relationship_type": "supports",
        "directionality": "directed",
        "provenance": PROVENANCE,
    }
    edge = one_won(await at_once(http, "relate", [ends] * CLIENTS), {"relationship_conflict"})
    change = ends | {"relationship_id": edge["relationship_id"], "expected_version_id": edge["version_id"]}
    weighed = [change | {"canonical_content": {"weight": weight}} for weight in range(CLIENTS)]
    assert one_won(await at_once(http, "relate", weighed), {"version_conflict"})["sequence"] == 2


@pytest.mark.parametrize(
    "smuggled",
    [
        {"tenant_id": "tenant:other"},
        {"owner": "agent:other"},
        {"new_object_id": "obj:other"},
        {"object_type": "decision"},
        {"version_id": "ver:mine"},
    ],
)
async def test_an_update_moves_no_identity(smuggled: Document, http: Http) -> None:
    """M001: an update that brings an identity is refused; content that looks like one is content."""
    made = await http.claim({"n": 1})
    refused = await http.call("update", {**http.following(made, {"n": 2}), **smuggled})
    assert refused.code == "invalid_request"
    inside = (await http.update(made, {"scope_id": "scope:other", **smuggled})).document["envelope"]
    for name in ("scope_id", "object_id", "object_type"):
        assert inside[name] == made["envelope"][name]
    elsewhere = await http.call("read", {"scope_id": "scope:other", "object_id": made["object_id"]})
    assert elsewhere.code == "scope_not_found"


async def test_two_that_replace_different_members_lose_nothing(http: Http) -> None:
    """M022: both read one version; the second is told of the first, and brings its change on top."""
    made = await http.claim({"name": "a", "place": "b"})
    first = (await http.update(made, {"name": "A", "place": "b"})).document
    late = await http.update(made, {"name": "a", "place": "B"})
    assert late.code == "version_conflict"
    seen = (await http.call("read", {"object_id": made["object_id"]})).document["envelope"]
    assert seen["version_id"] == first["version_id"] == late.document["error"]["details"]["current_version_id"]
    merged = await http.update(first, {**seen["canonical_content"], "place": "B"})
    assert merged.document["envelope"]["canonical_content"] == {"name": "A", "place": "B"}


@pytest.mark.parametrize(
    "object_id",
    ["urn:uuid:0195590c-7a00-7000-8000-000000000001", "obj:01ARZ3NDEKTSV4RRFFQ69G5FAV", "urn:x:1", f"obj:{'o' * 251}"],
)
async def test_an_id_of_the_client_is_taken_once(object_id: str, http: Http) -> None:
    """M033: uuid, ulid, urn and the longest; a second create of it is a conflict, at either door.

    An id without a prefix is none by the draft, and is refused with the member's name.
    """
    bare = await http.call("create", {**http.made({"n": 1}), "object_id": object_id.replace(":", "")})
    assert (bare.code, bare.document["error"]["details"]["field"]) == ("invalid_request", "object_id")
    create = {**http.made({"n": 1}), "object_id": object_id, "expected_absent": True}
    answers = await at_once(http, "create", [create] * 4)
    assert one_won(answers, {"version_conflict", "invalid_object"})["object_id"] == object_id
    assert len(await http.versions(object_id)) == 1


async def test_deleting_a_referrer_leaves_what_it_refers_to(http: Http) -> None:
    """M040: of two objects that refer to a third one goes; the third, the other and its edge stay as they were."""
    shared, going, staying = [await http.claim({"n": number}) for number in range(3)]
    edges = []
    for source in (going, staying):
        ends = {
            "source_object_id": source["object_id"],
            "target_object_id": shared["object_id"],
            "relationship_type": "supports",
            "directionality": "directed",
            "provenance": PROVENANCE,
        }
        edges.append((await http.call("relate", ends)).document)
    assert (await http.call("delete", following(going, **BASIS))).code is None
    for one in (shared, staying):
        found = (await http.call("read", {"object_id": one["object_id"]})).document["envelope"]
        assert found == one["envelope"]
    kept = (await http.call("read", {"relationship_id": edges[1]["relationship_id"]})).document["envelope"]
    assert kept == edges[1]["envelope"]


@pytest.mark.parametrize("size", [2_001, 64 * 1024 + 1, 1024 * 1024])
async def test_content_is_stored_whole_or_refused_with_the_limit(size: int, http: Http) -> None:
    """M053: never cut."""
    answer = await http.call("create", http.made({"text": "x" * size}))
    if answer.code is None:
        found = (await http.call("read", {"object_id": answer.document["object_id"]})).document
        assert len(found["envelope"]["canonical_content"]["text"]) == size
    else:
        assert answer.code in ("invalid_object", "invalid_request")
        assert str(answer.document["error"]["details"]).count("max") or "limit" in str(answer.document["error"])


async def test_what_an_update_leaves_out_stays(http: Http) -> None:
    """M105: only the text changes; references, quality, times and schema of the version before are kept."""
    kept = {
        "valid_from": "2026-03-01T00:00:00.000000Z",
        "quality_signals": {"assessed_confidence": 0.5},
        "relationship_refs": ["rel:1"],
        "schema_id": "urn:schema:claim",
    }
    made = await http.claim({"text": "a"}, **kept)
    changed = (await http.update(made, {"text": "b"})).document["envelope"]
    assert {name: changed[name] for name in kept} == kept


async def test_an_old_version_comes_back_as_a_new_one(http: Http) -> None:
    """M107: history shows three versions, and the third has the content of the first."""
    made = await http.claim({"text": "a"})
    second = (await http.update(made, {"text": "b"})).document
    restore = {"restore_version_id": made["version_id"], "provenance": PROVENANCE}
    third = (await http.call("update", following(second, **restore))).document
    contents = [version["canonical_content"]["text"] for version in await http.versions(made["object_id"])]
    assert (contents, third["sequence"]) == (["a", "b", "a"], 3)


@pytest.mark.parametrize("padded", [" obj:1", "obj:1 ", "\tobj:1", "obj:1\n"])
async def test_padding_is_no_part_of_an_id(padded: str, http: Http) -> None:
    """M109: refused where it is made and where it is asked for, so that no two ids look alike."""
    assert (await http.call("create", {**http.made({"n": 1}), "object_id": padded})).code == "invalid_request"
    assert (await http.call("read", {"object_id": padded})).code == "invalid_request"
