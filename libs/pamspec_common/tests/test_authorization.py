"""Rules and decisions: what a rule may say, and that a decision and its SQL agree with the engine memory by memory."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from itertools import product
from typing import Any

import asyncpg
import cedarpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pamspec_cli.servers.databases import Database
from pamspec_common.authorization.decisions import Decision, Subject, decide
from pamspec_common.authorization.policies import MAX_RULES, Policies, PolicyRefused, default_text, parse
from pamspec_common.authorization.rights import Asker, Authorizer, Epochs, Stored
from pamspec_common.authorization.vocabulary import ACTIONS, ATTRIBUTES, ROLES
from pamspec_common.errors import AccessDenied

Memory = dict[str, str]
NOW = 1_000

TYPES = ("claim", "task", "org.example.note")
CREATORS = ("agent:a", "agent:b", "agent:c")
SUBJECTS = [
    Subject(actor, "agent", frozenset(roles)) for actor in CREATORS[:2] for roles in ((), ("reader",), ROLES[:3])
]
COLUMNS = {name: f"m.{name}" for name in ATTRIBUTES}

states = {name: values for name, values in ATTRIBUTES.items() if values is not None}
memories = st.fixed_dictionaries(
    {
        "object_type": st.sampled_from(TYPES),
        "creator": st.sampled_from(CREATORS),
        **{name: st.sampled_from(values) for name, values in states.items()},
    }
)


def _tests() -> st.SearchStrategy[str]:
    """Conditions of every kind that a rule may have."""
    words = {"object_type": TYPES, "creator": CREATORS, "lifecycle_state": states["lifecycle_state"]}
    name = st.sampled_from(sorted(words))
    one = name.flatmap(
        lambda found: st.tuples(st.just(found), st.sampled_from(words[found]), st.sampled_from(["==", "!="])).map(
            lambda test: f'resource.{test[0]} {test[2]} "{test[1]}"'
        )
    )
    member = name.flatmap(
        lambda found: st.lists(st.sampled_from(words[found]), min_size=1, max_size=3).map(
            lambda group: f"[{', '.join(f'{word!r}' for word in group)}].contains(resource.{found})".replace("'", '"')
        )
    )
    fixed = st.sampled_from(
        [
            "principal.actor_id == resource.creator",
            'principal.roles.contains("reader")',
            "context.now < 1000",
            "1000 <= context.now",
            "context.now == 999",
            "principal has delegation_id",
        ]
    )
    return st.recursive(
        st.one_of(one, member, fixed),
        lambda below: st.one_of(
            st.tuples(below, st.sampled_from(["&&", "||"]), below).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
            below.map(lambda t: f"!({t})"),
        ),
        max_leaves=5,
    )


policies = st.lists(
    st.tuples(st.sampled_from(["permit", "forbid"]), st.sampled_from(["when", "unless"]), _tests()),
    min_size=1,
    max_size=4,
).map(
    lambda rules: "\n".join(
        f'@id("r{number}") {effect}(principal, action, resource) {kind} {{ {test} }};'
        for number, (effect, kind, test) in enumerate(rules)
    )
)


def engine_allows(rules: Policies, subject: Subject, action: str, memory: Memory, now: int) -> bool:
    """What the engine says of one memory."""
    entities: list[dict[Any, Any]] = [
        subject.entity(),
        {"uid": {"type": "Memory", "id": "m"}, "attrs": memory, "parents": []},
    ]
    request = {
        "principal": {"type": "Agent", "id": subject.actor_id},
        "action": {"type": "Action", "id": action},
        "resource": {"type": "Memory", "id": "m"},
        "context": {"now": now},
    }
    return cedarpy.is_authorized(request, rules.rules, entities).allowed


@settings(max_examples=150, deadline=None)
@given(policies, st.sampled_from(SUBJECTS), st.lists(memories, min_size=1, max_size=6), st.integers(997, 1003))
def test_a_decision_is_the_engines_for_every_memory(text: str, subject: Subject, found: list[Memory], now: int) -> None:
    rules = parse(text)
    decision = decide(rules, subject, "read", now)
    for memory in found:
        assert decision.allows(memory) == engine_allows(rules, subject, "read", memory, now)
        if decision.until is not None:
            last = decision.until - 1
            assert decision.allows(memory) == engine_allows(rules, subject, "read", memory, last)


async def test_the_sql_of_a_decision_selects_what_it_allows(database: Database) -> None:
    chance = random.Random(7)
    found = [
        {"object_type": kind, "creator": creator, **dict(zip(states, values, strict=True))}
        for kind, creator in product(TYPES, CREATORS)
        for values in [[chance.choice(group) for group in states.values()] for _ in range(8)]
    ]
    names = list(ATTRIBUTES)
    conn = await asyncpg.connect(database.dsn)
    try:
        for decision in [*_decisions(chance), *_of_roles()]:
            condition, arguments = decision.sql(COLUMNS, len(names) + 1)
            columns = ", ".join(f"${place}::text[]" for place in range(1, len(names) + 1))
            source = f"unnest({columns}) WITH ORDINALITY AS m ({', '.join(names)}, place)"
            rows = await conn.fetch(
                f"SELECT place - 1 AS i FROM {source} WHERE {condition}",
                *[[memory[name] for memory in found] for name in names],
                *arguments,
            )
            expected = {number for number, memory in enumerate(found) if decision.allows(memory)}
            assert {row["i"] for row in rows} == expected
    finally:
        await conn.close()


def _decisions(chance: random.Random) -> list[Decision]:
    made = []
    for _ in range(120):
        tests = []
        for number in range(chance.randint(1, 4)):
            name = chance.choice(["object_type", "creator", *states])
            words = {"object_type": TYPES, "creator": CREATORS, **states}[name]
            group = ", ".join(f'"{word}"' for word in chance.sample(words, chance.randint(1, 3)))
            effect, kind = chance.choice(["permit", "permit", "forbid"]), chance.choice(["when", "unless"])
            more = chance.choice(["", " && resource.creator == principal.actor_id"])
            test = f"[{group}].contains(resource.{name}){more}"
            tests.append(f'@id("r{number}") {effect}(principal, action, resource) {kind} {{ {test} }};')
        made.append(decide(parse("\n".join(tests)), chance.choice(SUBJECTS), "query", NOW))
    return made


def _of_roles() -> list[Decision]:
    rules = parse(default_text())
    return [
        decide(rules, Subject("agent:a", "agent", frozenset({role})), action, NOW)
        for role in ROLES
        for action in ACTIONS
    ]


@pytest.mark.parametrize(
    ("test", "said"),
    [
        ('resource.object_type like "a*"', "like"),
        ("resource.object_type == resource.creator", "compared with texts"),
        ("principal.roles.contains(resource.object_type)", "set that is written out"),
        ("resource == resource", "itself"),
        ("context.now + 1 > 5", "size"),
        ("context.now == principal.actor_id", ""),
        ("[context.now].contains(5)", "tell the end"),
        ('resource.colour == "red"', "colour"),
        ('principal.secret == "x"', "secret"),
        ("resource has creator", "itself"),
    ],
)
def test_what_no_query_could_decide_is_refused(test: str, said: str) -> None:
    with pytest.raises(PolicyRefused) as refused:
        parse(f'@id("bad") permit(principal, action, resource) when {{ {test} }};')
    assert any(rule == "bad" and said in problem for rule, problem in refused.value.problems)


@pytest.mark.parametrize(
    "text",
    [
        "permit(principal, action, resource)",
        "permit(principal, action, resource);",
        '@id("a") permit(principal, action == Action::"fly", resource);',
        '@id("a") permit(principal in Agent::"g", action, resource);',
        '@id("a") permit(principal, action, resource == Memory::"m");',
        '@id("a") permit(principal == ?principal, action, resource);',
        '@id("a") permit(principal, action, resource);\n' * 2,
        "\n".join(f'@id("r{n}") permit(principal, action, resource);' for n in range(MAX_RULES + 1)),
        "\n".join(
            f'@id("r{n}") permit(principal, action, resource) when {{ resource.object_type == "t{n}" '
            f'&& resource.creator == "agent:{n}" }};'
            for n in range(100)
        ),
        "x" * 70_000,
    ],
)
def test_a_text_that_cannot_apply_is_refused(text: str) -> None:
    with pytest.raises(PolicyRefused):
        parse(text)


def _may(role: str, action: str, **memory: str) -> bool:
    whole = {
        "object_type": "claim",
        "creator": "agent:b",
        "lifecycle_state": "active",
        "availability_state": "available",
        "retention_state": "retained",
        "validation_state": "unverified",
    }
    decision = decide(parse(default_text()), Subject("agent:a", "agent", frozenset({role})), action, NOW)
    return decision.allows({**whole, **memory})


def test_roles_have_their_rights() -> None:
    assert not any(_may("", action) for action in ACTIONS)
    assert _may("reader", "query")
    assert not _may("reader", "create")
    assert _may("contributor", "create")
    assert not _may("contributor", "create", validation_state="corroborated")
    assert not _may("contributor", "transition_validation", validation_state="corroborated")
    assert not _may("contributor", "transition_lifecycle")
    assert not _may("contributor", "delete")
    assert _may("contributor", "delete", creator="agent:a")
    assert not _may("editor", "transition_lifecycle", lifecycle_state="active")
    assert _may("editor", "transition_lifecycle", lifecycle_state="archived")
    assert _may("reviewer", "transition_validation", validation_state="corroborated")
    assert _may("reviewer", "transition_lifecycle", lifecycle_state="active")
    assert not _may("reviewer", "hold")
    assert _may("curator", "hold")
    assert _may("auditor", "audit")
    assert not _may("auditor", "update")
    assert all(_may("admin", action) for action in ACTIONS if action != "assert_actor")
    assert _may("platform", "assert_actor")


def test_a_forbidding_rule_is_named() -> None:
    rules = parse(
        '@id("all") permit(principal, action, resource);\n'
        '@id("no-tasks") forbid(principal, action == Action::"delete", resource)\n'
        'when { resource.object_type == "task" };'
    )
    subject = Subject("agent:a", "agent")
    deletes, reads = decide(rules, subject, "delete", NOW), decide(rules, subject, "read", NOW)
    assert reads.always
    assert not deletes.always
    memory = {"object_type": "task"}
    assert deletes.rule(memory) == "no-tasks"
    assert deletes.rule({"object_type": "claim"}) is None
    nothing = decide(parse('@id("x") forbid(principal, action, resource);'), subject, "read", NOW)
    assert nothing.never


@pytest.mark.parametrize(
    "condition",
    [
        "(" * 15_000 + "true" + ")" * 15_000,
        "[" * 10_000 + "1" + "]" * 10_000 + " == 1",
        "{a: " * 8_000 + "1" + "}" * 8_000 + " == 1",
        '(")" == ' * 6_000 + "true" + ")" * 6_000,
        "( //)\n" * 8_000 + "true" + ")" * 8_000,
        "context has " + ".".join(["a"] * 8_000),
        "context has " + "a. //\n" * 7_000 + "a",
    ],
)
def test_rules_that_would_end_or_stop_the_parser_are_refused_before_it_sees_them(condition: str) -> None:
    started = time.monotonic()
    with pytest.raises(PolicyRefused, match="nests deeper"):
        parse(f'@id("a") permit(principal, action, resource) when {{ {condition} }};')
    assert time.monotonic() - started < 20


def test_rules_with_a_nul_are_refused() -> None:
    with pytest.raises(PolicyRefused, match="NUL"):
        parse('@id("a\0") permit(principal, action, resource);')


def test_brackets_in_texts_and_comments_nest_nothing() -> None:
    text = "(" * 500
    parse(f'// {text}\n@id("a") permit(principal, action, resource) when {{ resource.object_type == "{text}" }};')


async def test_callers_at_the_same_moment_share_one_look_up() -> None:
    looked: list[int] = []
    fails = True

    async def load(tenant_id: str, scope_key: int, actors: Sequence[str]) -> Stored:
        looked.append(scope_key)
        await asyncio.sleep(0)
        if fails:
            raise AccessDenied
        return Stored(Epochs(1, 1), {}, [])

    authorizer = Authorizer(load)
    asker = Asker("tenant:t", "agent:a", "agent", "agent:a", frozenset({"reader"}))
    refused = await asyncio.gather(*(authorizer.rights(asker, 7) for _ in range(50)), return_exceptions=True)
    assert all(isinstance(one, AccessDenied) for one in refused)
    fails = False
    found = await asyncio.gather(*(authorizer.rights(asker, key) for key in (7, 8) for _ in range(50)))
    assert len({id(one) for one in found}) == 2
    assert looked == [7, 7, 8]
    await authorizer.rights(asker, 7, again=True)
    assert looked == [7, 7, 8, 7]
