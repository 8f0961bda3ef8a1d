"""Any `where` tree gives what the model gives, whether its rows are walked over or found by the search index."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest_asyncio
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from conftest import TemplateDatabase
from pamspec_cli.servers import databases
from pamspec_cli.servers.databases import Database
from pamspec_common.principal import Principal
from pamspec_common.strict_json import dumps, loads
from pamspec_query.app import build
from services.query.tests.asking import SCOPE, eq
from services.query.tests.door import Door
from services.query.tests.door import settings as service_settings
from services.query.tests.seeds import TENANT, Scope
from services.query.tests.where_model import holds

OBJECTS, FILLERS = 90, 600
"""The fillers are newer and more than the search walks over, so the others are found through the index."""
NAMES = ("a", "b", "0", "ü/~")
SCALARS: tuple[Any, ...] = ("x", "xy", "", "ü", 0, 1, 1.5, -2, 2**60, True, False, None)
TYPES, ACTORS = ("claim", "task", "observation"), ("agent:a", "agent:b")
SCHEMAS = (None, "https://s.example/1", "https://s.example/2")
VALIDATIONS = ("unverified", "corroborated", "disputed")


def some_content(random_: random.Random, depth: int = 0) -> Any:
    choice = random_.random()
    if depth > 2 or choice < 0.35:
        return random_.choice(SCALARS)
    if choice < 0.55:
        return [some_content(random_, depth + 1) for _ in range(random_.randrange(4))]
    return {name: some_content(random_, depth + 1) for name in NAMES if random_.random() < 0.6}


class Known(list[tuple[str, dict[str, Any], Any]]):
    """The objects that the model knows; a failing example need not show them all."""

    def __repr__(self) -> str:
        return f"<{len(self)} objects>"


def seeded() -> tuple[Scope, Known]:
    """A scope, and of each of its objects the id, the fields and the content, newest first."""
    random_, scope = random.Random(7), Scope(SCOPE)
    known = []
    for index in range(OBJECTS + FILLERS):
        content = some_content(random_) if index < OBJECTS else {"filler": index}
        fields: dict[str, Any] = {
            "object_id": f"obj:{index:04d}",
            "object_type": random_.choice(TYPES),
            "actor.actor_id": random_.choice(ACTORS),
            "validation_state": random_.choice(VALIDATIONS),
            "sequence": 1,
            "ledger_sequence": index + 1,
        }
        schema_id = random_.choice(SCHEMAS)
        scope.put(
            fields["object_id"],
            content,
            object_type=fields["object_type"],
            actor={"actor_id": fields["actor.actor_id"], "actor_kind": "agent"},
            validation_state=fields["validation_state"],
            schema_id=schema_id,
        )
        known.append(
            (fields["object_id"], fields if schema_id is None else {**fields, "schema_id": schema_id}, content)
        )
    return scope, Known(known[::-1])


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def world(template_database: TemplateDatabase) -> AsyncIterator[tuple[Door, Known]]:
    """A service over the seeded scope."""
    name = databases.new_name("pamspec_where")
    dsn = await databases.create_database(template_database.server_dsn, name, template_database.name)
    conn = await asyncpg.connect(dsn)
    scope, known = seeded()
    await scope.flush(conn)
    await conn.close()
    service = build(service_settings(Database(name, dsn, databases.role_dsns(dsn, template_database.passwords))))
    await service.start()
    yield Door(service, Principal(TENANT, "agent:reader", "agent", roles=frozenset({"reader"}))), known
    await service.stop()
    await databases.drop_database(template_database.server_dsn, name)


pointers = st.lists(st.sampled_from(NAMES), max_size=3).map(
    lambda names: "content:" + "".join("/" + name.replace("~", "~0").replace("/", "~1") for name in names)
)
scalars = st.sampled_from(SCALARS)
texts = st.sampled_from([one for one in SCALARS if isinstance(one, str)])
comparable = st.sampled_from(
    [one for one in SCALARS if isinstance(one, str | int | float) and not isinstance(one, bool)]
)
parts = st.recursive(
    scalars, lambda below: st.lists(below, max_size=2) | st.dictionaries(st.sampled_from(NAMES), below, max_size=2)
)


def condition(field: Any, op: Any, value: Any) -> Any:
    return st.builds(lambda f, o, v: {"field": f, "op": o, "value": v}, field, op, value)


def words(field: str, values: tuple[Any, ...], *ops: str) -> Any:
    one = st.sampled_from([value for value in values if value is not None])
    return condition(st.just(field), st.sampled_from(["eq", "ne", *ops]), one) | condition(
        st.just(field), st.sampled_from(["in", "nin"]), st.lists(one, min_size=1, max_size=3)
    )


orders = ("gt", "gte", "lt", "lte")
conditions = st.one_of(
    condition(pointers, st.sampled_from(["eq", "ne"]), scalars),
    condition(pointers, st.sampled_from(["in", "nin"]), st.lists(scalars, min_size=1, max_size=3)),
    condition(pointers, st.sampled_from(orders), comparable),
    condition(pointers, st.just("contains"), parts),
    condition(pointers, st.just("starts_with"), texts),
    condition(pointers | st.just("schema_id"), st.just("exists"), st.booleans()),
    words("object_type", TYPES, *orders),
    words("actor.actor_id", ACTORS, "contains", "starts_with"),
    words("schema_id", SCHEMAS, *orders),
    words("validation_state", VALIDATIONS),
    words("object_id", ("obj:0003", "obj:0050", "obj:0650"), *orders),
    words("ledger_sequence", (0, 1, 40, 91, 700), *orders),
    words("sequence", (1, 2), *orders),
)
trees = st.recursive(
    conditions,
    lambda below: st.builds(
        lambda joint, members: {joint: members},
        st.sampled_from(["and", "or", "not"]),
        st.lists(below, min_size=1, max_size=3),
    ),
    max_leaves=6,
)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(tree=trees)
@example(tree={"and": [eq("content:/a", "x"), eq("content:/b", "x")]})
@example(tree={"and": [eq("content:/a/0", 1), eq("content:/a", 1)]})
@example(tree={"and": [eq("content:/0", None), eq("actor.actor_id", "agent:a"), eq("object_type", "task")]})
@example(tree={"field": "content:", "op": "contains", "value": {"a": {}}})
@example(tree={"field": "content:", "op": "contains", "value": []})
@example(tree={"or": [eq("content:/a", 1), {"field": "content:/b", "op": "in", "value": ["x", 1.5]}]})
@example(tree={"and": [{"field": "ledger_sequence", "op": "lte", "value": 40}, eq("content:/a", "x")]})
async def test_a_tree_means_what_the_model_says(world: tuple[Door, Known], tree: dict[str, Any]) -> None:
    door, known = world
    expected = [object_id for object_id, fields, content in known if holds(tree, fields, content)]
    found = await asked(door, tree, "all", 1000)
    assert names(found) == expected
    assert found["count"] == {"exact": True, "value": len(expected)}
    assert names(await asked(door, tree, "all", 5)) == expected[:5]
    corroborated = {object_id for object_id, fields, _ in known if fields["validation_state"] == "corroborated"}
    trusted = [object_id for object_id in expected if object_id in corroborated]
    assert names(await asked(door, tree, "trusted", 20)) == trusted[:20]


def leaves(content: Any, pointer: str = "") -> list[tuple[str, Any]]:
    """The pointers to all texts, numbers, truth values and nulls, with what stands there."""
    if isinstance(content, dict):
        members = [(name.replace("~", "~0").replace("/", "~1"), below) for name, below in content.items()]
    elif isinstance(content, list):
        members = [(str(index), below) for index, below in enumerate(content)]
    else:
        return [(pointer, content)]
    return [leaf for name, below in members for leaf in leaves(below, f"{pointer}/{name}")]


async def test_every_leaf_finds_its_object(world: tuple[Door, Known]) -> None:
    """By equality through objects and arrays, alone and with another leaf of the same content."""
    door, known = world
    for object_id, _, content in known[FILLERS:]:
        found = leaves(content)
        for pointer, value in found:
            tree = {"and": [eq(f"content:{pointer}", value), eq(f"content:{found[0][0]}", found[0][1])]}
            expected = [other for other, fields, said in known if holds(tree, fields, said)]
            assert object_id in expected
            assert names(await asked(door, tree, "all", 1000)) == expected, tree


async def asked(door: Door, tree: dict[str, Any], trust: str, limit: int) -> Any:
    """The answer, without the check of its contract, which takes longer than the answer."""
    query = {"kind": "structured", "trust": trust, "where": tree}
    document = {"scope_id": SCOPE, "query": query, "fields": ["object_id"], "count": "exact"}
    answer = await door.raw("query", dumps({**document, "pagination": {"limit": limit}}))
    assert answer.status == 200, answer.body
    return loads(answer.body)


def names(found: Any) -> list[str]:
    return [item["projection"]["object_id"] for item in found["items"]]
