"""SEMANTIC-QUERY (18.8): embedding spaces, result metadata, refusal of what cannot be compared, disclosure."""

from __future__ import annotations

import secrets
from typing import Any

from pamspec_conformance.case import CaseList
from pamspec_conformance.trial import Made, Trial

LIST = CaseList("SEMANTIC-QUERY")
case = LIST.case
DESCRIPTOR = frozenset(
    [
        "embedding_space_id",
        "provider",
        "model",
        "model_revision",
        "dimensions",
        "distance_metric",
        "normalization",
        "preprocessing_profile",
        "embedding_kind",
        "canonicalization_rules",
        "created_at",
    ]
)


async def _space(t: Trial, **members: Any) -> str:
    space_id = f"space:conformance-{secrets.token_hex(6)}"
    document: dict[str, Any] = {
        "embedding_space_id": space_id,
        "provider": "conformance",
        "model": "three-axes",
        "model_revision": "1",
        "dimensions": 3,
        "distance_metric": "cosine",
        "normalization": "none",
        "preprocessing_profile": "none",
        "embedding_kind": "dense",
        "canonicalization_rules": "none",
        **members,
    }
    await t.ok("register_embedding_space", **document)
    return space_id


async def _vector(t: Trial, made: Made, space_id: str, vector: list[float]) -> Made:
    about: dict[str, Any] = {"object_id": made["object_id"], "version_id": made["version_id"]}
    return await t.ok("put_vectors", embedding_space_id=space_id, vectors=[{**about, "vector": vector}])


async def _asked(t: Trial, space_id: str, vector: list[float], floor: int, **members: Any) -> Made:
    query = {"kind": "semantic", "vector": vector}
    wait = {"min_sequence": floor, "wait_ms": 20_000}
    return await t.ok("query", **{"query": query, "embedding_space_id": space_id, **wait, **members})


async def _three(t: Trial) -> tuple[str, list[Made], int]:
    space_id = await _space(t)
    made = [await t.claim({"axis": axis}) for axis in range(3)]
    for axis, one in enumerate(made):
        await _vector(t, one, space_id, [float(axis == number) for number in range(3)])
    return space_id, made, (await t.events())[-1]["sequence"]


@case("P29", "P123")
async def a_semantic_query_names_its_space(t: Trial) -> None:
    """A semantic query without an embedding space is invalid_request."""
    await t.refused("invalid_request", "query", query={"kind": "semantic", "text": "rain"})


@case("P28", "P31")
async def an_unknown_space_is_a_mismatch(t: Trial) -> None:
    """A semantic query over a space that nobody registered is embedding_space_mismatch."""
    query = {"kind": "semantic", "vector": [1.0, 0.0, 0.0]}
    await t.refused("embedding_space_mismatch", "query", query=query, embedding_space_id="space:none")


@case("P30", "P223")
async def spaces_have_whole_descriptors(t: Trial) -> None:
    """A space is registered with its whole descriptor; one that lacks a member is refused."""
    made = await t.ok("register_embedding_space", **_descriptor("space:whole"))
    found = made.get("embedding_space", made)
    t.same(DESCRIPTOR - set(found), frozenset(), "missing members")
    for name in ("dimensions", "model_revision", "distance_metric"):
        document: dict[str, Any] = {key: value for key, value in _descriptor("space:part").items() if key != name}
        await t.refused("invalid_request invalid_object", "register_embedding_space", **document)


def _descriptor(space_id: str) -> dict[str, Any]:
    return {
        "embedding_space_id": f"{space_id}-{secrets.token_hex(6)}",
        "provider": "conformance",
        "model": "three-axes",
        "model_revision": "1",
        "dimensions": 3,
        "distance_metric": "cosine",
        "normalization": "none",
        "preprocessing_profile": "none",
        "embedding_kind": "dense",
        "canonicalization_rules": "none",
    }


@case("P27")
async def a_vector_needs_a_space(t: Trial) -> None:
    """A vector without a space, or of a space that is not there, is embedding_space_mismatch or invalid_request."""
    made = await t.claim()
    about: dict[str, Any] = {
        "object_id": made["object_id"],
        "version_id": made["version_id"],
        "vector": [1.0, 0.0, 0.0],
    }
    await t.refused("embedding_space_mismatch invalid_request", "put_vectors", vectors=[about])
    await t.refused("embedding_space_mismatch", "put_vectors", vectors=[about], embedding_space_id="space:none")


@case("P28", "P31", "P223")
async def other_dimensions_are_a_mismatch(t: Trial) -> None:
    """A vector of other dimensions is embedding_space_mismatch, to store and to query."""
    space_id = await _space(t)
    made = await t.claim()
    about: dict[str, Any] = {"object_id": made["object_id"], "version_id": made["version_id"], "vector": [1.0, 0.0]}
    await t.refused("embedding_space_mismatch", "put_vectors", vectors=[about], embedding_space_id=space_id)
    query = {"kind": "semantic", "vector": [1.0, 0.0]}
    await t.refused("embedding_space_mismatch", "query", query=query, embedding_space_id=space_id)


@case("P31", "P26")
async def equal_dimensions_are_not_equal_spaces(t: Trial) -> None:
    """Vectors of one space are never found through another, however alike the two are."""
    space_id, _, floor = await _three(t)
    twin = await _space(t)
    answer = await _asked(t, twin, [1.0, 0.0, 0.0], floor)
    t.same(answer["items"], [], "found through the twin")
    t.check((await _asked(t, space_id, [1.0, 0.0, 0.0], floor))["items"], "nothing found through its own space")


@case("P148", "P149", "P223", "P29")
async def answers_disclose_their_index(t: Trial) -> None:
    """A semantic answer names space, index, watermark, applied filters and tie-break, and says if it approximates."""
    space_id, made, floor = await _three(t)
    answer = await _asked(t, space_id, [0.0, 1.0, 0.0], floor)
    index = answer["index"]
    t.same(index["embedding_space_id"], space_id, "the space")
    t.check(index["watermark"] >= floor, "the watermark is below the floor")
    t.check(isinstance(index["approximate"], bool), "approximate is no boolean")
    for name in ("index_id", "filters_applied", "tie_break"):
        t.check(name in index, f"the index lacks {name}")
    t.same(answer["items"][0]["envelope"]["object_id"], made[1]["object_id"], "the nearest")
    t.check(all("score" in item for item in answer["items"]), "an item has no score")


@case("P156", "P223")
async def exact_answers_repeat(t: Trial) -> None:
    """An exact semantic query repeats byte for byte on the same index state."""
    space_id, _, floor = await _three(t)
    query = {"kind": "semantic", "vector": [1.0, 0.5, 0.25]}
    members: dict[str, Any] = {
        "query": query,
        "embedding_space_id": space_id,
        "exact": True,
        "min_sequence": floor,
        "wait_ms": 20_000,
    }
    states: dict[Any, list[bytes]] = {}
    for _ in range(20):
        reply = await t.send("query", **members)
        t.check(reply.refusal is None, "an exact query was refused")
        bodies = states.setdefault(reply.document["index"]["watermark"], [])
        bodies.append(reply.body)
        t.same(len(set(bodies)), 1, "different answers of one state")
        if len(bodies) == 3:
            return
    t.check(False, "no index state was met three times")


@case("P14", "P184", "P25", "P122")
async def indexes_keep_scopes_and_deletions(t: Trial) -> None:
    """A semantic query never answers another scope's objects nor deleted ones."""
    space_id, made, _ = await _three(t)
    elsewhere = await t.new_scope()
    await t.delete(made[0])
    floor = (await t.events())[-1]["sequence"]
    found = (await _asked(t, space_id, [1.0, 0.0, 0.0], floor))["items"]
    t.check(made[0]["object_id"] not in [item["envelope"]["object_id"] for item in found], "a deleted object is found")
    query = {"kind": "semantic", "vector": [1.0, 0.0, 0.0]}
    there = await t.ok("query", scope_id=elsewhere, query=query, embedding_space_id=space_id)
    t.same(there["items"], [], "found in another scope")


@case("P18", "P19", "P193")
async def a_rebuilt_index_makes_no_version(t: Trial) -> None:
    """Vectors and index maintenance leave operational events and no version."""
    _, made, _ = await _three(t)
    versions = (await t.history())["versions"]
    t.same([one["version_id"] for one in versions], [one["version_id"] for one in made], "versions")
