"""Embedding spaces: described whole, for good, by administrators, in one tenant; named by snapshots."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

import asyncpg
import orjson
import pytest

from pamspec_common.calls import HEADER_REPLAYED
from pamspec_common.embedding_spaces import NAMES, EmbeddingSpace, check_vector
from pamspec_common.errors import PamspecError
from pamspec_common.principal import Principal, service_principal
from services.write.tests.writer import TENANT, Document, Writer

READER = Principal(TENANT, "agent:reader", "agent", roles=frozenset({"reader"}))


@pytest.fixture
def writer(shared: Writer) -> Writer:
    """A scope of its own is all that a test here needs."""
    return shared


def space(**more: Any) -> Document:
    """A descriptor under an id of its own."""
    return {
        "embedding_space_id": f"space:{secrets.token_hex(6)}",
        "provider": "local",
        "model": "mini",
        "model_revision": "2",
        "dimensions": 3,
        "distance_metric": "cosine",
        "normalization": "l2",
        "preprocessing_profile": "plain-text",
        "embedding_kind": "dense",
        "canonicalization_rules": "none",
        **more,
    }


async def test_a_space_is_described_for_good(writer: Writer) -> None:
    document = space()
    first = await writer.ok("register_embedding_space", document)
    shown = first["embedding_space"]
    assert {name: shown[name] for name in NAMES} == document
    assert shown["created_at"].endswith("Z")
    assert shown["created_by"]["actor_id"]
    again = await writer.call("register_embedding_space", document)
    assert (orjson.loads(again.body)["embedding_space"], again.headers[HEADER_REPLAYED]) == (shown, "true")
    for name, other in {"dimensions": 4, "model_revision": "3", "normalization": "none", "provider": "x"}.items():
        error = await writer.refused("register_embedding_space", {**document, name: other})
        assert (error["code"], error["details"]["reason"]) == ("duplicate_operation", "space_exists")
    listed = await writer.ok("list_embedding_spaces", {"embedding_space_id": document["embedding_space_id"]})
    assert (listed["embedding_spaces"], listed["next_cursor"]) == ([shown], None)
    with pytest.raises(asyncpg.PostgresError):
        await writer.admin.execute("UPDATE core.embedding_space SET dimensions = 9")


async def test_two_at_once_are_one_space(writer: Writer) -> None:
    document = space()
    answers = await asyncio.gather(*(writer.ok("register_embedding_space", document) for _ in range(8)))
    assert len({orjson.dumps(answer["embedding_space"]) for answer in answers}) == 1
    sql = "SELECT count(*) FROM core.embedding_space WHERE embedding_space_id = $1"
    assert await writer.admin.fetchval(sql, document["embedding_space_id"]) == 1


@pytest.mark.parametrize("name", NAMES)
async def test_each_member_is_required(writer: Writer, name: str) -> None:
    document = {key: value for key, value in space().items() if key != name}
    assert (await writer.refused("register_embedding_space", document))["code"] == "invalid_request"


@pytest.mark.parametrize("wrong", [{"dimensions": 0}, {"dimensions": 16001}, {"distance_metric": "far"}, {"model": ""}])
async def test_what_no_index_could_serve_is_refused(writer: Writer, wrong: Document) -> None:
    assert (await writer.refused("register_embedding_space", space(**wrong)))["code"] == "invalid_request"


async def test_administrators_and_services_describe_and_all_list(writer: Writer) -> None:
    document = space()
    assert (await writer.refused("register_embedding_space", document, by=READER))["code"] == "access_denied"
    made = await writer.ok("register_embedding_space", document, by=service_principal("indexing", TENANT))
    named = {"embedding_space_id": document["embedding_space_id"]}
    assert (await writer.ok("list_embedding_spaces", named, by=READER))["embedding_spaces"] == [made["embedding_space"]]
    elsewhere = service_principal("indexing", "tenant:elsewhere")
    assert (await writer.ok("list_embedding_spaces", named, by=elsewhere))["embedding_spaces"] == []


async def test_pages_go_by_ids(writer: Writer) -> None:
    for _ in range(3):
        await writer.ok("register_embedding_space", space())
    found, cursor = [], None
    while True:
        page = {"limit": 2} if cursor is None else {"limit": 2, "cursor": cursor}
        answer = await writer.ok("list_embedding_spaces", {"pagination": page})
        found += [one["embedding_space_id"] for one in answer["embedding_spaces"]]
        if (cursor := answer["next_cursor"]) is None:
            break
    assert found == sorted(set(found))
    assert len(found) >= 3


async def test_snapshots_name_spaces_that_exist(writer: Writer) -> None:
    document = space()
    await writer.ok("register_embedding_space", document)
    named = [document["embedding_space_id"]]
    seal = {"scope_id": writer.scope, "included_embedding_space_ids": named}
    sealed = await writer.ok("seal_snapshot", seal)
    assert sealed["snapshot"]["included_embedding_space_ids"] == named
    error = await writer.refused("seal_snapshot", {**seal, "included_embedding_space_ids": [*named, "space:none"]})
    assert error["code"] == "embedding_space_mismatch"


@pytest.mark.parametrize(
    ("vector", "code"),
    [
        ([1.0, 0.0], "embedding_space_mismatch"),
        ([1.0, 0.0, 0.0, 0.0], "embedding_space_mismatch"),
        ([1.0, 1.0, 0.0], "embedding_space_mismatch"),
        ([0.0, 0.0, 0.0], "embedding_space_mismatch"),
        ([1e39, 0.0, 0.0], "invalid_request"),
        ([0.6, 0.8, 0.0], None),
        ([1, 0, 0], None),
    ],
)
def test_a_vector_is_one_of_its_space(vector: list[float], code: str | None) -> None:
    described = EmbeddingSpace(**space())
    found = None
    try:
        check_vector(described, vector)
    except PamspecError as error:
        found = error.code
    assert found == code


@pytest.mark.parametrize("least", [1e-8, 1e-30, 1e-60, 1e-320, 0.0])
def test_a_vector_that_an_index_takes_for_zero_has_no_direction(least: float) -> None:
    """Its cosine with anything would be no number, and one such vector would spoil the order of all."""
    described = EmbeddingSpace(**space(normalization="none"))
    with pytest.raises(PamspecError) as refused:
        check_vector(described, [least, -least, least])
    assert (refused.value.code, refused.value.details["reason"]) == ("embedding_space_mismatch", "zero")
    check_vector(described, [least, 1e-7, least])
    check_vector(EmbeddingSpace(**space(normalization="none", distance_metric="l2")), [least, 0.0, 0.0])
